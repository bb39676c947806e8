//! TODO
mod log;
pub(crate) use log::count_damage;
