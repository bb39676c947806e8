//! Subjects and mailboxes through which agents communicate, and the threads that they run on.
//!
//! A [`Bus`] delivers every envelope to the mailboxes that subscribed to its subject, one after the other, in the order
//! of subscription: an earlier subscriber has a message before a later one can react to it. Mailboxes are bounded; an
//! [`Overload`] determines what happens to a message for a full one.
//!
//! An agent is a thread with a public handle, a private state and an [`Inbox`]. A supervisor on that thread restarts
//! the agent after a panic: the inbox, with all pending messages, belongs to the supervisor and outlives the state.
//! There is no async runtime and no polling; an agent sleeps until a message arrives, its own work continues, or it has
//! to stop.

mod agent;
mod bus;
mod inbox;
mod sessions;
mod subscriber;
mod subscribers;

pub use agent::{Agent, AgentHandle, spawn};
pub use bus::{Bus, Mailbox, Overloaded};
pub use inbox::{Inbox, Wakeup};
pub use sessions::SessionSet;
pub use subscriber::{MailboxState, Overload, Subscription};
