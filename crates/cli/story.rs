//! Stories: what a person asks, and what must come of it: answers, events on the bus, engrams in memory.
//!
//! [`script`] is the file's form, [`check`] compares fields with what is expected of them, and [`run`] plays a story
//! against the whole stack. A story that does not hold is a finding with its reasons and never an error.

pub(crate) mod check;
pub(crate) mod run;
pub(crate) mod script;
