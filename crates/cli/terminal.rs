//! The terminal as a whole: what is printed, progress displays, what is typed, and Ctrl-C.
//!
//! [`output`] is the only exit for text; it makes visible what could control the terminal, and wraps an answer's lines
//! between words. [`lines`] prints a line when that disturbs neither an answer nor a line being typed, [`progress`]
//! shows bars, [`interrupt`] turns Ctrl-C into an event and restores the terminal when the process is terminated, and
//! [`keyboard`] keeps what is typed off the screen.

pub(crate) mod interrupt;
pub(crate) mod keyboard;
pub(crate) mod lines;
mod output;
pub(crate) mod progress;
mod wrap;

pub(crate) use output::{Line, Output, bytes, is_active, visible};
pub(crate) use wrap::Wrap;
