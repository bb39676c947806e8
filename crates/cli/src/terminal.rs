//! The terminal as a whole: output, progress displays, input, and Ctrl-C.
//!
//! [`output`] is the only exit for text; it makes characters visible that could control the terminal, renders an
//! answer's Markdown, and wraps lines between words. [`lines`] prints a line when that disturbs neither an answer nor a
//! line being typed, [`progress`] shows bars, [`choice`] asks the user to choose from a list, [`editing`] runs the
//! user's editor, [`interrupt`] turns Ctrl-C into an event and restores the terminal when the process is terminated,
//! and [`keyboard`] keeps typed input off the screen.

pub(crate) mod choice;
pub(crate) mod editing;
pub(crate) mod interrupt;
pub(crate) mod keyboard;
pub(crate) mod lines;
mod output;
pub(crate) mod progress;
mod wrap;

pub(crate) use output::{Line, Markdown, Output, Region, is_active, visible};
pub(crate) use wrap::Wrap;
