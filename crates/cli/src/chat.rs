//! A conversation in the terminal.
//!
//! The core is pure: [`input`] and [`slash`] parse input, [`announcements`] reports later events, and [`explanation`]
//! says why an answer got its grade. Around it, [`shell`] executes each line, [`fetching`] downloads a model in the
//! meantime, [`screen`] is the display, and only [`repl`] uses a keyboard. All but the last run in tests against a
//! scripted model.

pub(crate) mod announcements;
pub(crate) mod attachments;
pub(crate) mod completion;
pub(crate) mod editor;
pub(crate) mod explanation;
pub(crate) mod export;
pub(crate) mod fetching;
pub(crate) mod input;
pub(crate) mod pastes;
pub(crate) mod repl;
pub(crate) mod screen;
pub(crate) mod shell;
pub(crate) mod slash;
pub(crate) mod typeahead;

#[cfg(test)]
mod scripted;
