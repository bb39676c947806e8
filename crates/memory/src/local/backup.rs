//! Making backups, and removing forgotten answers from them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use hone_protocol::{QueryId, Timestamp};
use serde_json::Value;

use super::Local;
use super::forgetting::blank_parts;
use super::opened::Opened;
use crate::backup::{self, BackupWriter};
use crate::error::MemoryError;
use crate::records::{Numbered, from_json, id_of, number_of};
use crate::storage::of_io;

impl Local {
    /// Makes a backup if the last one is a day old, and removes the oldest ones. Memory can be written to meanwhile;
    /// writes after the start of the backup are part of the next one.
    ///
    /// # Errors
    /// When it cannot be written; the old ones then stay.
    pub(crate) fn back_up_if_due(&self, now: Timestamp, should_stop: &AtomicBool) -> Result<(), MemoryError> {
        let of_io = |error: io::Error| of_io(&self.folder, &error);
        let keep = self.options.backups;
        if keep > 0 && backup::is_due(&self.folder, now).map_err(of_io)? {
            let begun = std::time::Instant::now();
            let Some(file) = self.with_opened(|opened| self.back_up(opened, now, should_stop))? else { return Ok(()) };
            tracing::info!(file = %file.display(), seconds = begun.elapsed().as_secs_f64(), "memory is backed up");
        }
        backup::remove_old(&self.folder, keep).map_err(of_io)
    }

    fn back_up(
        &self,
        opened: &Opened,
        now: Timestamp,
        should_stop: &AtomicBool,
    ) -> Result<Option<std::path::PathBuf>, MemoryError> {
        let of_io = |error: io::Error| of_io(&self.folder, &error);
        let head = opened.head()?;
        // It is compressed, so it takes less space than its source.
        opened.storage.check_room(opened.storage.n_bytes()?)?;
        let mut writer = BackupWriter::begin(&self.folder, now).map_err(of_io)?;
        for record in opened.storage.range(Numbered::Engram.key(0)..=Numbered::Engram.key(head.last_engram)) {
            if should_stop.load(Ordering::Acquire) {
                return Ok(None);
            }
            // Engrams removed in the meantime are left out.
            if let Some(engram) = opened.fields(id_of(&record?.1)?)? {
                writer.engram(engram).map_err(of_io)?;
            }
        }
        for record in opened.storage.range(Numbered::Event.key(0)..=Numbered::Event.key(head.last_event)) {
            if should_stop.load(Ordering::Acquire) {
                return Ok(None);
            }
            let (key, value) = record?;
            writer.event(number_of(&key)?, from_json("an event", &value)?).map_err(of_io)?;
        }
        writer.finish().map(Some).map_err(of_io)
    }

    /// Removes answers from the backups.
    pub(super) fn forget_in_backups(&self, ids: &[QueryId]) {
        if self.options.url.is_some() {
            return;
        }
        let names: Vec<String> = ids.iter().map(QueryId::to_string).collect();
        let blank = |event: &mut Value| blank_parts(event, &names);
        if let Err(error) = backup::forget(&self.folder, ids, blank) {
            tracing::error!(%error, "a removed answer may still be in a backup");
        }
    }
}
