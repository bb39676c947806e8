//! The conversations of the page where none are to be saved: they are kept in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_protocol::{Branches, OwnerId, Timestamp};
use hone_server::{ConversationEntry, ConversationError, Conversations, SavedConversation};
use time::OffsetDateTime;

use crate::chat::store::fresh_name;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
