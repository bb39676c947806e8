//! The saved conversations, as the page, `hone conversations` and the chat's own commands use them: in the store, or,
//! if saving is off, in memory until the process ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_protocol::{Branches, OwnerId, Timestamp};
use time::OffsetDateTime;

use super::names::fresh_name;
use super::saved::{ConversationEntry, ConversationError, FoundConversation, SavedConversation};
use super::session::SavedExchange;
use super::store::ConversationStore;

/// The saved conversations of one owner.
pub struct Conversations {
    place: KeptIn,
    /// Instructions before a new conversation.
    system: String,
}

/// Where conversations are kept.
enum KeptIn {
    Saved(ConversationStore),
    /// In memory, until the process ends.
    Memory(Mutex<HashMap<String, (Timestamp, SavedConversation)>>),
}

/// The result of looking up a name, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    /// The conversation with this name.
    One(String),
    /// Several conversations match, by name or first question.
    Several(Vec<FoundConversation>),
    /// No conversation matches.
    Nothing,
}

impl Conversations {
    /// The conversations in a store. New ones begin with the instructions `system`.
    pub fn of_store(store: ConversationStore, system: String) -> Conversations {
        Conversations { place: KeptIn::Saved(store), system }
    }

    /// No conversations yet; new ones are kept in memory until the process ends.
    pub fn in_memory(system: String) -> Conversations {
        Conversations { place: KeptIn::Memory(Mutex::default()), system }
    }

    /// All conversations, the most recently written first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn list(&self) -> Result<Vec<ConversationEntry>, ConversationError> {
        let entry = |(written, name)| ConversationEntry { name, written };
        match &self.place {
            KeptIn::Saved(store) => {
                let entries = store.entries().map_err(storage)?;
                Ok(entries.into_iter().map(|(written, name)| entry((Timestamp::from(written), name))).collect())
            }
            KeptIn::Memory(conversations) => {
                let of_memory = |(name, (written, _)): (&String, &(Timestamp, _))| entry((*written, name.clone()));
                let mut entries: Vec<ConversationEntry> = lock(conversations).iter().map(of_memory).collect();
                entries.sort_by(|a, b| (b.written, &b.name).cmp(&(a.written, &a.name)));
                Ok(entries)
            }
        }
    }

    /// Whether a conversation has this name.
    fn contains(&self, name: &str) -> anyhow::Result<bool> {
        match &self.place {
            KeptIn::Saved(store) => store.contains(name),
            KeptIn::Memory(conversations) => Ok(lock(conversations).contains_key(name)),
        }
    }

    /// Checks that a conversation exists.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self, name: &str) -> Result<(), ConversationError> {
        self.contains(name).map_err(storage)?.then_some(()).ok_or_else(|| missing(name))
    }

    /// The conversation with this name.
    ///
    /// # Errors
    /// When it does not exist or cannot be read.
    pub fn load(&self, name: &str) -> Result<SavedConversation, ConversationError> {
        self.check(name)?;
        match &self.place {
            KeptIn::Saved(store) => store.load(name).and_then(SavedConversation::of_file).map_err(storage),
            KeptIn::Memory(conversations) => {
                lock(conversations).get(name).map(|(_, found)| found.clone()).ok_or_else(|| missing(name))
            }
        }
    }

    /// Saves a new, empty conversation named after its first question, and returns its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&self, question: &str, model: &str) -> Result<String, ConversationError> {
        let day = OffsetDateTime::now_utc().date();
        let (model, system) = (model.to_owned(), self.system.clone());
        let conversation = SavedConversation { model, system, exchanges: Branches::default() };
        match &self.place {
            KeptIn::Saved(store) => store.begin(day, question, &conversation.into_file()).map_err(storage),
            KeptIn::Memory(conversations) => {
                let mut conversations = lock(conversations);
                let name = fresh_name(day, question, |name| Ok(conversations.contains_key(name)));
                conversations.insert(name.clone(), (Timestamp::now(), conversation));
                Ok(name)
            }
        }
    }

    /// Writes a saved conversation. Exchanges that another process has added to its saved version stay, as branches.
    ///
    /// # Errors
    /// When another process has removed or renamed it, or it cannot be written; the previous version is then kept.
    pub fn save(&self, name: &str, conversation: SavedConversation) -> Result<(), ConversationError> {
        let is_written = match &self.place {
            KeptIn::Saved(store) => store.save(name, &conversation.into_file()).map_err(storage)?,
            KeptIn::Memory(conversations) => match lock(conversations).get_mut(name) {
                Some(saved) => {
                    *saved = (Timestamp::now(), conversation);
                    true
                }
                None => false,
            },
        };
        is_written.then_some(()).ok_or_else(|| missing(name))
    }

    /// Gives a conversation another name.
    ///
    /// # Errors
    /// When it does not exist, or the new name is taken or not valid.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<(), ConversationError> {
        self.check(name)?;
        if self.contains(new_name).map_err(storage)? {
            return Err(ConversationError::Taken(new_name.to_owned()));
        }
        match &self.place {
            KeptIn::Saved(store) => {
                store.rename(name, new_name).map_err(|error| ConversationError::Name(format!("{error:#}")))
            }
            KeptIn::Memory(conversations) => {
                let mut conversations = lock(conversations);
                let conversation = conversations.remove(name).ok_or_else(|| missing(name))?;
                conversations.insert(new_name.to_owned(), conversation);
                Ok(())
            }
        }
    }

    /// Removes a conversation.
    ///
    /// # Errors
    /// When it does not exist or cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), ConversationError> {
        self.check(name)?;
        match &self.place {
            KeptIn::Saved(store) => store.remove(name).map_err(storage),
            KeptIn::Memory(conversations) => lock(conversations).remove(name).map(drop).ok_or_else(|| missing(name)),
        }
    }

    /// The conversations with `text` in the name, a question or an answer of any branch, ignoring case; an empty text
    /// finds all. The most recently written comes first. One that cannot be read is found by its name.
    ///
    /// # Errors
    /// When the conversations cannot be listed.
    pub fn search(&self, text: &str) -> Result<Vec<FoundConversation>, ConversationError> {
        let text = text.to_lowercase();
        let holds = |of: &str| of.to_lowercase().contains(&text);
        let found = |ConversationEntry { name, written }| {
            let conversation = self.load(&name).ok();
            let is_in = |exchange: &SavedExchange| holds(&exchange.question) || holds(&exchange.answer);
            let is_found = holds(&name) || conversation.iter().flat_map(|it| it.exchanges.all()).any(is_in);
            is_found.then_some(FoundConversation { name, written, conversation })
        };
        Ok(self.list()?.into_iter().filter_map(found).collect())
    }

    /// The conversation that is called `text`, or else those whose names or first questions contain it, ignoring case.
    ///
    /// # Errors
    /// When the conversations cannot be listed.
    pub fn named(&self, text: &str) -> Result<Named, ConversationError> {
        if self.contains(text).map_err(storage)? {
            return Ok(Named::One(text.to_owned()));
        }
        let holds = |of: &str| of.to_lowercase().contains(&text.to_lowercase());
        let is_called = |found: &FoundConversation| holds(&found.name) || holds(found.first_question());
        let mut found: Vec<FoundConversation> = self.search("")?.into_iter().filter(is_called).collect();
        Ok(match found.len() {
            0 => Named::Nothing,
            1 => Named::One(found.remove(0).name),
            _ => Named::Several(found),
        })
    }
}

/// The saved conversations of each owner: a key of the server, or the user at the terminal (`None`).
pub struct OwnedConversations {
    /// `None` if saving is off.
    store: Option<ConversationStore>,
    /// Instructions before a new conversation.
    system: String,
    unsaved: Mutex<HashMap<Option<OwnerId>, Arc<Conversations>>>,
}

impl OwnedConversations {
    /// The conversations in a store, or, without one, in memory until the process ends. New ones begin with the
    /// instructions `system`.
    pub fn new(store: Option<ConversationStore>, system: String) -> OwnedConversations {
        OwnedConversations { store, system, unsaved: Mutex::default() }
    }

    /// The conversations of an owner.
    pub fn of(&self, owner: Option<OwnerId>) -> Arc<Conversations> {
        let system = || self.system.clone();
        match &self.store {
            Some(store) => Arc::new(Conversations::of_store(store.of(owner), system())),
            None => {
                let unsaved = || Arc::new(Conversations::in_memory(system()));
                Arc::clone(lock(&self.unsaved).entry(owner).or_insert_with(unsaved))
            }
        }
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

#[cfg(test)]
mod tests {
    use hone_protocol::{FinishReason, QueryId, Timings};

    use super::*;

    fn kept() -> (tempfile::TempDir, ConversationStore, Conversations) {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().join("conversations"));
        (folder, store.clone(), Conversations::of_store(store, "be brief".to_owned()))
    }

    #[test]
    fn what_the_page_saves_the_terminal_loads() {
        let (_folder, store, kept) = kept();
        let name = kept.begin("Why is the sky blue?", "m").unwrap();
        let exchange = SavedExchange {
            question: "Why is the sky blue?".to_owned(),
            thinking: "Rayleigh…".to_owned(),
            answer: "It scatters.".to_owned(),
            model: "m".to_owned(),
            finish_reason: Some(FinishReason::Stop),
            timings: Timings::default(),
            query_id: Some(QueryId::from_bits(7)),
            recalled: Vec::new(),
        };
        let conversation =
            SavedConversation { exchanges: [exchange].into_iter().collect(), ..kept.load(&name).unwrap() };
        assert_eq!((conversation.model.as_str(), conversation.system.as_str()), ("m", "be brief"));
        kept.save(&name, conversation.clone()).unwrap();
        assert_eq!(kept.load(&name).unwrap(), conversation);
        let loaded = store.load(&name).unwrap();
        assert_eq!((loaded.exchanges.len(), loaded.exchanges[0].answer.as_str()), (1, "It scatters."));
        assert_eq!(kept.list().unwrap()[0].name, name);
    }

    #[test]
    fn a_part_of_a_name_or_title_is_enough_if_one_conversation_has_it() {
        let (_folder, _, kept) = kept();
        let (sky, sea) = (kept.begin("Why is the sky blue?", "m").unwrap(), kept.begin("Why is it wet?", "m").unwrap());
        let names = |text: &str| match kept.named(text).unwrap() {
            Named::One(name) => vec![name],
            Named::Several(found) => found.into_iter().map(|it| it.name).collect(),
            Named::Nothing => Vec::new(),
        };
        assert_eq!((names(&sky), names("SKY"), names("it-wet")), (vec![sky.clone()], vec![sky.clone()], vec![sea]));
        assert_eq!((names("why").len(), names("tides").len()), (2, 0));
    }

    #[test]
    fn names_that_are_missing_taken_or_not_valid_are_refused() {
        let (_folder, _, kept) = kept();
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

    #[test]
    fn conversations_that_are_not_saved_are_kept_while_the_server_runs() {
        let owners = OwnedConversations::new(None, "be brief".to_owned());
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
}
