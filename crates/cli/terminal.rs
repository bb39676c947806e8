//! The terminal as one room: what is printed, what moves while somebody waits, what is typed, and Ctrl-C.
//!
//! [`output`] is the one exit of text, which makes visible what could drive the terminal, and breaks an answer's lines
//! between words; [`lines`] lets a line through when
//! it spoils neither an answer nor a line that is being typed; [`progress`] shows bars, [`interrupt`] turns Ctrl-C into an
//! event and leaves the terminal as it was when the process is ended, [`keyboard`] keeps what is typed off the screen.

pub(crate) mod interrupt;
pub(crate) mod keyboard;
pub(crate) mod lines;
mod output;
pub(crate) mod progress;
mod wrap;

pub(crate) use output::{Line, Output, bytes, is_active, visible};
pub(crate) use wrap::Wrap;
