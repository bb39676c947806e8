//! The conversations of the terminal, for the page: both use one store. Where none are to be saved, those of the page are
//! kept in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_protocol::{Branches, OwnerId, Timestamp};
use hone_server::{ConversationEntry, ConversationError, Conversations, SavedConversation, SavedExchange};
use time::OffsetDateTime;

use crate::chat::session::{Conversation, Exchange, FORMAT};
use crate::chat::store::{ConversationStore, fresh_name};

/// The saved conversations.
pub(super) struct Kept {
    pub(super) store: ConversationStore,
    /// Instructions before a new conversation.
    pub(super) system: String,
}

impl Conversations for Kept {
    fn list(&self) -> Result<Vec<ConversationEntry>, ConversationError> {
        let entries = self.store.entries().map_err(storage)?;
        let entry = |(written, name)| ConversationEntry { name, written: Timestamp::from(written) };
        Ok(entries.into_iter().map(entry).collect())
    }

    fn load(&self, name: &str) -> Result<SavedConversation, ConversationError> {
        self.check(name)?;
        let Conversation { model, system, exchanges, forks, .. } = self.store.load(name).map_err(storage)?;
        let exchanges = exchanges.into_iter().map(saved).collect();
        let exchanges = Branches::from_list(exchanges, &forks).map_err(|error| storage(error.into()))?;
        Ok(SavedConversation { model, system, exchanges })
    }

    fn begin(&self, question: &str, model: &str) -> Result<String, ConversationError> {
        let name = self.store.fresh_name(OffsetDateTime::now_utc().date(), question);
        let (model, system) = (model.to_owned(), self.system.clone());
        self.save(&name, SavedConversation { model, system, exchanges: Branches::default() })?;
        Ok(name)
    }

    fn save(&self, name: &str, conversation: SavedConversation) -> Result<(), ConversationError> {
        let SavedConversation { model, system, exchanges } = conversation;
        let (exchanges, forks) = exchanges.map(exchange).into_list();
        self.store.save(name, &Conversation { format: FORMAT, model, system, exchanges, forks }).map_err(storage)
    }

    fn rename(&self, name: &str, new_name: &str) -> Result<(), ConversationError> {
        self.check(name)?;
        if self.store.contains(new_name) {
            return Err(ConversationError::Taken(new_name.to_owned()));
        }
        self.store.rename(name, new_name).map_err(|error| ConversationError::Name(format!("{error:#}")))
    }

    fn remove(&self, name: &str) -> Result<(), ConversationError> {
        self.check(name)?;
        self.store.remove(name).map_err(storage)
    }
}

impl Kept {
    /// Checks that a conversation exists.
    fn check(&self, name: &str) -> Result<(), ConversationError> {
        self.store.contains(name).then_some(()).ok_or_else(|| missing(name))
    }
}

/// Conversations that end with the server, for each owner.
pub(super) struct UnsavedOfOwners {
    /// Instructions before a new conversation.
    system: String,
    owners: Mutex<HashMap<Option<OwnerId>, Arc<Unsaved>>>,
}

impl UnsavedOfOwners {
    /// None yet; new ones begin with these instructions.
    pub(super) fn new(system: String) -> UnsavedOfOwners {
        UnsavedOfOwners { system, owners: Mutex::default() }
    }

    /// The conversations of an owner.
    pub(super) fn of(&self, owner: Option<OwnerId>) -> Arc<Unsaved> {
        let mut owners = lock(&self.owners);
        Arc::clone(owners.entry(owner).or_insert_with(|| Arc::new(Unsaved::new(self.system.clone()))))
    }
}

/// Conversations of one owner that end with the server.
#[derive(Default)]
pub(super) struct Unsaved {
    /// Instructions before a new conversation.
    system: String,
    conversations: Mutex<HashMap<String, (Timestamp, SavedConversation)>>,
}

impl Conversations for Unsaved {
    fn list(&self) -> Result<Vec<ConversationEntry>, ConversationError> {
        let entry = |(name, (written, _)): (&String, &(Timestamp, SavedConversation))| ConversationEntry {
            name: name.clone(),
            written: *written,
        };
        let mut entries: Vec<ConversationEntry> = self.lock().iter().map(entry).collect();
        entries.sort_by(|a, b| (b.written, &b.name).cmp(&(a.written, &a.name)));
        Ok(entries)
    }

    fn load(&self, name: &str) -> Result<SavedConversation, ConversationError> {
        self.lock().get(name).map(|(_, conversation)| conversation.clone()).ok_or_else(|| missing(name))
    }

    fn begin(&self, question: &str, model: &str) -> Result<String, ConversationError> {
        let day = OffsetDateTime::now_utc().date();
        let name = fresh_name(day, question, |name| self.lock().contains_key(name));
        let (model, system) = (model.to_owned(), self.system.clone());
        self.save(&name, SavedConversation { model, system, exchanges: Branches::default() })?;
        Ok(name)
    }

    fn save(&self, name: &str, conversation: SavedConversation) -> Result<(), ConversationError> {
        self.lock().insert(name.to_owned(), (Timestamp::now(), conversation));
        Ok(())
    }

    fn rename(&self, name: &str, new_name: &str) -> Result<(), ConversationError> {
        let mut conversations = self.lock();
        if conversations.contains_key(new_name) {
            return Err(ConversationError::Taken(new_name.to_owned()));
        }
        let conversation = conversations.remove(name).ok_or_else(|| missing(name))?;
        conversations.insert(new_name.to_owned(), conversation);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), ConversationError> {
        self.lock().remove(name).map(drop).ok_or_else(|| missing(name))
    }
}

impl Unsaved {
    /// None yet; new ones begin with these instructions.
    fn new(system: String) -> Unsaved {
        Unsaved { system, ..Unsaved::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Timestamp, SavedConversation)>> {
        lock(&self.conversations)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn missing(name: &str) -> ConversationError {
    ConversationError::Missing(name.to_owned())
}

fn storage(error: anyhow::Error) -> ConversationError {
    ConversationError::Storage(format!("{error:#}"))
}

fn saved(exchange: Exchange) -> SavedExchange {
    let Exchange { question, answer, thinking, model, finish_reason, timings, query_id } = exchange;
    SavedExchange { question, answer, thinking, model, finish_reason, timings, query_id }
}

fn exchange(saved: SavedExchange) -> Exchange {
    let SavedExchange { question, answer, thinking, model, finish_reason, timings, query_id } = saved;
    Exchange { question, answer, thinking, model, finish_reason, timings, query_id }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{FinishReason, QueryId, Timings};

    use super::*;

    fn kept() -> (tempfile::TempDir, Kept) {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().join("conversations"));
        (folder, Kept { store, system: "be brief".to_owned() })
    }

    #[test]
    fn what_the_page_saves_the_terminal_loads() {
        let (_folder, kept) = kept();
        let name = kept.begin("Why is the sky blue?", "m").unwrap();
        let exchange = SavedExchange {
            question: "Why is the sky blue?".to_owned(),
            thinking: "Rayleigh…".to_owned(),
            answer: "It scatters.".to_owned(),
            model: "m".to_owned(),
            finish_reason: Some(FinishReason::Stop),
            timings: Timings::default(),
            query_id: Some(QueryId::from_bits(7)),
        };
        let conversation =
            SavedConversation { exchanges: [exchange].into_iter().collect(), ..kept.load(&name).unwrap() };
        assert_eq!((conversation.model.as_str(), conversation.system.as_str()), ("m", "be brief"));
        kept.save(&name, conversation.clone()).unwrap();
        assert_eq!(kept.load(&name).unwrap(), conversation);
        let loaded = kept.store.load(&name).unwrap();
        assert_eq!((loaded.exchanges.len(), loaded.exchanges[0].answer.as_str()), (1, "It scatters."));
        assert_eq!(kept.list().unwrap()[0].name, name);
    }

    #[test]
    fn conversations_that_are_not_saved_are_kept_while_the_server_runs() {
        let owners = UnsavedOfOwners::new("be brief".to_owned());
        let unsaved = owners.of(None);
        let (one, two) = (unsaved.begin("Why?", "m").unwrap(), unsaved.begin("Why?", "m").unwrap());
        assert_eq!(two, format!("{one}-2"));
        assert_eq!(unsaved.load(&one).unwrap().system, "be brief");
        assert_eq!(unsaved.rename(&one, &two), Err(ConversationError::Taken(two.clone())));
        unsaved.rename(&one, "tides").unwrap();
        unsaved.remove(&two).unwrap();
        let names: Vec<String> = unsaved.list().unwrap().into_iter().map(|entry| entry.name).collect();
        let of_key = owners.of(Some(OwnerId::from_bits(1)));
        assert_eq!((of_key.list(), owners.of(None).list().map(|list| list.len())), (Ok(Vec::new()), Ok(1)));
        assert_eq!((names, unsaved.load(&one)), (vec!["tides".to_owned()], Err(ConversationError::Missing(one))));
    }

    #[test]
    fn names_that_are_missing_taken_or_not_valid_are_refused() {
        let (_folder, kept) = kept();
        let (one, two) = (kept.begin("one", "m").unwrap(), kept.begin("two", "m").unwrap());
        assert_eq!(kept.rename(&one, &two), Err(ConversationError::Taken(two)));
        for name in ["", "../x", "a/b", ".hidden"] {
            assert!(matches!(kept.rename(&one, name), Err(ConversationError::Name(_))), "{name:?}");
            assert_eq!(kept.load(name), Err(ConversationError::Missing(name.to_owned())));
            assert_eq!(kept.remove(name), Err(ConversationError::Missing(name.to_owned())));
        }
        kept.rename(&one, "tides").unwrap();
        kept.remove("tides").unwrap();
        assert_eq!(kept.remove("tides"), Err(ConversationError::Missing("tides".to_owned())));
    }
}
