//! What `hone ps` and `hone judge list` print, for the page.

use hone_server::Reporter;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::commands::judge;
use crate::running::processes;

/// Looks into the running processes and the marks.
pub(super) struct Reports(pub(super) App);

impl Reporter for Reports {
    fn processes(&self) -> Result<Value, String> {
        to_json(&processes(self.0.data_folder()))
    }

    fn judges(&self) -> Result<Value, String> {
        to_json(&judge::rows(&self.0).map_err(|error| format!("{error:#}"))?)
    }
}

fn to_json(value: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}
