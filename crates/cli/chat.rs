//! A conversation in the terminal.
//!
//! The core is pure: [`session`] holds the conversation and knows which turn is open, [`input`] and [`slash`] read what was
//! typed, [`answer`] turns what the agents say about one question into an answer, [`announcements`] hears what comes of it later.
//! Around it, [`shell`] does what a line asks for,
//! [`store`] keeps conversations on disk, [`screen`] is what the person sees, and only [`repl`] knows a keyboard. All
//! but the last run in tests against a scripted model.

pub(crate) mod announcements;
pub(crate) mod answer;
pub(crate) mod completion;
pub(crate) mod input;
pub(crate) mod repl;
pub(crate) mod screen;
pub(crate) mod session;
pub(crate) mod shell;
pub(crate) mod slash;
pub(crate) mod store;
pub(crate) mod typeahead;

#[cfg(test)]
pub(crate) mod scripted;
