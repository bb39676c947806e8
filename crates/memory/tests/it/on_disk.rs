//! The suite of memory in a folder.

#[path = "store/suite.rs"]
mod store;

pub(crate) use crate::support::Home;
pub(crate) use store::check_whole;
