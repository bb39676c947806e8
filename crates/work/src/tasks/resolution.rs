//! A person's decision about a task that waits for it.

use super::delivery;
use super::learned::keep_lessons;
use super::record::{TaskError, TaskRecord, TaskState, TaskStore, file_error};
use super::staging::Staging;
use crate::TaskPhase;

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The changes go to the workspace as they are.
    Accept,
    /// The workspace stays as it is.
    Reject,
    /// The agents make further attempts.
    Retry,
}

impl TaskStore {
    /// Carries out a person's decision, with a note, which is passed to the agent on a retry.
    ///
    /// # Errors
    /// When another process works on the task, its changes would overwrite others, or a file cannot be written.
    pub fn resolve(
        &self,
        mut record: TaskRecord,
        resolution: Resolution,
        note: Option<&str>,
        phases: &[TaskPhase],
    ) -> Result<TaskRecord, TaskError> {
        let _lock = self.lock(record.id)?;
        record.notes.extend(note.map(str::to_owned));
        match resolution {
            Resolution::Reject => record.state = TaskState::Rejected,
            Resolution::Retry => {
                record.state = TaskState::Working;
                record.round = record.attempts.len();
            }
            Resolution::Accept => {
                let files = record.delivered(phases);
                let staging = Staging::open(self.folder_of(record.id), &record.workspace)?;
                if let Some(path) = delivery::conflict(&record.workspace, &staging.before(), &files) {
                    return Err(TaskError::Conflict(path));
                }
                record.state = TaskState::Delivering;
                self.save(&record)?;
                delivery::deliver(&record.workspace, &files).map_err(file_error(&record.workspace))?;
                record.state = TaskState::Accepted;
            }
        }
        keep_lessons(&mut record, note);
        self.save(&record)?;
        Ok(record)
    }
}
