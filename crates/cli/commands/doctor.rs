//! stub
use crate::arguments::DoctorArguments;
use crate::config::{Config, Places};
use crate::failure::Outcome;
use crate::output::Output;
pub(crate) fn run(
    _: &DoctorArguments,
    _: &Places,
    _: anyhow::Result<(Config, Vec<String>)>,
    _: Output,
) -> anyhow::Result<Outcome> {
    Ok(Outcome::Done)
}
