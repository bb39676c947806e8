//! Stories: a user's questions, and the expected results: answers, events on the bus, engrams in memory.
//!
//! [`script`] defines the file format, [`check`] compares fields with expectations, `watch` follows the results of a
//! turn, and [`run`] plays a story against the whole stack. A story that does not hold is a finding with its reasons,
//! never an error.

pub mod check;
pub mod run;
pub mod script;
mod watch;
