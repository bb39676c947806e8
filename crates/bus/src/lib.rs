//! Subjects and mailboxes through which agents talk, and the threads that agents live on.
//!
//! A [`Bus`] hands every envelope to the mailboxes that subscribed to its subject, one after the other, in the order in
//! which they subscribed: an earlier subscriber has a message before a later one can react to
//! it. Mailboxes are bounded, and what happens to a message for a full one is said by its [`Overload`].
//!
//! An agent is a thread with a public handle, a private state and an [`Inbox`]. A supervisor on that thread starts the
//! agent again after a panic: the inbox, with everything that waits in it, belongs to the supervisor and outlives
//! the state. There is no runtime and no polling; an agent sleeps until a message, its own work or the end comes.

mod agent;
mod inbox;
mod mailbox;

pub use agent::{Agent, AgentHandle, spawn};
pub use inbox::{Inbox, Wakeup};
pub use mailbox::{Bus, Mailbox, MailboxState, Overload, Overloaded, Subscription};
