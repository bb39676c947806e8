//! The saved conversations, as the page, `hone conversations` and the chat's own commands use them: the store's files, with
//! their branches.

use hone_protocol::{Branches, Timestamp};
use hone_server::{
    ConversationEntry, ConversationError, Conversations, FoundConversation, SavedConversation, SavedExchange,
    search_saved,
};
use time::OffsetDateTime;

use super::session::{Conversation, Exchange, FORMAT};
use super::store::ConversationStore;

/// The saved conversations.
pub(crate) struct Kept {
    pub(crate) store: ConversationStore,
    /// Instructions before a new conversation.
    pub(crate) system: String,
}

/// What a name, or a part of one, stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Named {
    /// The conversation with this name.
    One(String),
    /// Several have it in their names or first questions.
    Several(Vec<FoundConversation>),
    /// None has.
    Nothing,
}

impl Kept {
    /// The conversation that is called `text`, or else those whose names or first questions contain it, ignoring case.
    ///
    /// # Errors
    /// When the conversations cannot be listed.
    pub(crate) fn named(&self, text: &str) -> Result<Named, ConversationError> {
        if self.store.contains(text) {
            return Ok(Named::One(text.to_owned()));
        }
        let holds = |of: &str| of.to_lowercase().contains(&text.to_lowercase());
        let is_called = |found: &FoundConversation| holds(&found.name) || holds(first_question(found));
        let mut found: Vec<FoundConversation> = search_saved(self, "")?.into_iter().filter(is_called).collect();
        Ok(match found.len() {
            0 => Named::Nothing,
            1 => Named::One(found.remove(0).name),
            _ => Named::Several(found),
        })
    }
}

/// What a conversation began with; empty if that cannot be read.
pub(crate) fn first_question(found: &FoundConversation) -> &str {
    let first = found.conversation.as_ref().and_then(|conversation| conversation.exchanges.shown().next());
    first.map_or("", |exchange| &exchange.question)
}

/// A conversation of a file, with its branches.
///
/// # Errors
/// When its forks do not belong to its exchanges.
pub(crate) fn with_branches(conversation: Conversation) -> anyhow::Result<SavedConversation> {
    let Conversation { model, system, exchanges, forks, .. } = conversation;
    let exchanges = Branches::from_list(exchanges.into_iter().map(saved).collect(), &forks)?;
    Ok(SavedConversation { model, system, exchanges })
}

impl Conversations for Kept {
    fn list(&self) -> Result<Vec<ConversationEntry>, ConversationError> {
        let entries = self.store.entries().map_err(storage)?;
        let entry = |(written, name)| ConversationEntry { name, written: Timestamp::from(written) };
        Ok(entries.into_iter().map(entry).collect())
    }

    fn load(&self, name: &str) -> Result<SavedConversation, ConversationError> {
        self.check(name)?;
        self.store.load(name).and_then(with_branches).map_err(storage)
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
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn check(&self, name: &str) -> Result<(), ConversationError> {
        self.store.contains(name).then_some(()).ok_or_else(|| ConversationError::Missing(name.to_owned()))
    }
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
    fn a_part_of_a_name_or_title_is_enough_if_one_conversation_has_it() {
        let (_folder, kept) = kept();
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
