//! Conversations: the state of a chat ([`Session`]), the store of saved conversations ([`ConversationStore`]), and the
//! operations on them ([`Conversations`]).

pub mod attached;
pub mod import;
mod kept;
mod names;
mod remembered;
mod saved;
mod session;
mod store;

pub use kept::{Conversations, Named, OwnedConversations};
pub use names::fresh_name;
pub use remembered::remembered_of;
pub use saved::{ConversationEntry, ConversationError, FoundConversation, SavedConversation};
pub use session::{Conversation, FORMAT, SavedExchange, Session};
pub use store::{ConversationStore, merge_versions};
