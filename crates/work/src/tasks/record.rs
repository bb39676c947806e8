//! The state of a task, and its storage.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use hone_containment::runs_by_itself;
use hone_files::{create_private_folder, replace};
use hone_protocol::{
    CriticScore, EvaluationResult, FinishReason, GateDecision, GenerateError, TaskId, TestCounts, Timestamp,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::exploring::WorkToolCall;
use crate::{Assignment, TaskPhase, Written};

/// The file of a task in its folder.
const FILE: &str = "task.json";
/// The file with the latest difference.
pub(super) const DIFF: &str = "diff.patch";

/// A task, and all of its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Its id.
    pub id: TaskId,
    /// The assignment.
    pub assignment: Assignment,
    /// The folder to work in.
    pub workspace: PathBuf,
    /// When it was created.
    pub created: Timestamp,
    /// Its state.
    pub state: TaskState,
    /// Index of the current phase.
    pub phase: usize,
    /// Every attempt at every phase.
    pub attempts: Vec<WorkAttempt>,
    /// Index of the first attempt that counts for the gate: the first one of this phase, or the first after a person's
    /// decision.
    pub round: usize,
    /// The files that the attempts have changed: their texts, or `None` for deleted files.
    pub files: BTreeMap<String, Option<String>>,
    /// The tests before the work; `None` until they are counted.
    pub tests_before: Option<Vec<(String, TestCounts)>>,
    /// Notes from people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The number of attempts whose lessons have been recorded.
    #[serde(default)]
    pub learned: usize,
}

impl TaskRecord {
    /// The files that are part of the result: all but the files that only other phases need.
    pub(super) fn delivered(&self, phases: &[TaskPhase]) -> BTreeMap<String, Option<String>> {
        let is_internal = |path: &String| phases.iter().any(|phase| !phase.delivers && phase.files.contains(path));
        let delivered = self.files.iter().filter(|(path, _)| !is_internal(path));
        delivered.map(|(path, text)| (path.clone(), text.clone())).collect()
    }

    /// The changed files that other programs run automatically, such as `.envrc` or an editor's tasks.
    pub fn self_running(&self) -> Vec<&str> {
        self_running(self.files.keys())
    }
}

fn self_running<'a>(paths: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    paths.map(String::as_str).filter(|path| runs_by_itself(Path::new(path))).collect()
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Agents work on it.
    Working,
    /// It waits for a person.
    Waiting,
    /// It is accepted, and its files are being written to the workspace.
    Delivering,
    /// It is accepted, and its files are in the workspace.
    Accepted,
    /// A person rejected it.
    Rejected,
}

impl TaskState {
    /// Whether the task is finished.
    pub fn is_over(self) -> bool {
        matches!(self, TaskState::Accepted | TaskState::Rejected)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Working => "working",
            TaskState::Waiting => "waiting",
            TaskState::Delivering => "delivering",
            TaskState::Accepted => "accepted",
            TaskState::Rejected => "rejected",
        }
    }
}

/// An attempt at a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkAttempt {
    /// The phase.
    pub phase: String,
    /// Its number in this round, from 1.
    pub number: usize,
    /// The agent's model.
    pub agent: String,
    /// Its temperature; `None` for attempts recorded by versions without this field.
    #[serde(default)]
    pub temperature: Option<f32>,
    /// Whether it reasoned before its answer.
    #[serde(default)]
    pub thinking: bool,
    /// When it began.
    pub started: Timestamp,
    /// Time of the gate's decision; `None` until then, and for attempts recorded by versions without this field.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The agent's tool calls before its answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<WorkToolCall>,
    /// The candidates, of which the best is taken; empty if the agent gives a single answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<WorkCandidate>,
    /// The number of the candidate that was taken, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<usize>,
    /// The agent's answer; `None` until it is written or the best candidate is chosen. Empty if the work is evaluated
    /// first.
    pub answer: Option<String>,
    /// The error in the answer's form; `None` if it was applied.
    pub form_error: Option<String>,
    /// The evaluators' findings.
    pub results: Vec<EvaluationResult>,
    /// The critics' scores.
    pub critics: Vec<CriticScore>,
    /// The gate's decision, if it has been made.
    pub decision: Option<GateDecision>,
}

/// One of several answers to the same prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkCandidate {
    /// The agent's answer.
    pub answer: String,
    /// Why it was truncated, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<FinishReason>,
    /// The findings about it; `None` until it is evaluated.
    pub evaluation: Option<CandidateEvaluation>,
}

impl WorkCandidate {
    /// A candidate without an evaluation.
    pub(super) fn new(written: Written) -> WorkCandidate {
        let cut = written.cut();
        WorkCandidate { answer: written.text, cut, evaluation: None }
    }
}

/// The findings about a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateEvaluation {
    /// Whether the gate would accept it.
    pub is_accepted: bool,
    /// The mean of all scores, 0 to 1; `None` before anything was scored.
    pub score: Option<f64>,
    /// The evaluators' findings.
    pub results: Vec<EvaluationResult>,
    /// The critics' scores.
    pub critics: Vec<CriticScore>,
}

/// The reason why work on a task cannot continue.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A task's file cannot be read by this version.
    #[error("the task in {path} cannot be read: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The task does not exist.
    #[error("there is no task {0}: `hone task list` lists them")]
    Unknown(String),
    /// A phase that the task goes through is no longer configured.
    #[error("task {task} has the phase {phase:?}, which phases.toml does not define")]
    UnknownPhase {
        /// The task.
        task: TaskId,
        /// The phase's name.
        phase: String,
    },
    /// Another process works on the task.
    #[error("another process works on task {0}")]
    InUse(TaskId),
    /// A file that the task also changes was changed in the workspace.
    #[error(
        "{0} was changed in the workspace since the work began, and would be overwritten: apply what you want of \
         `hone task show` yourself"
    )]
    Conflict(String),
    /// The workspace cannot be copied.
    #[error("the workspace cannot be copied: {0}")]
    Workspace(String),
    /// The agent's model failed; the attempt does not count.
    #[error("the agent {agent} failed, and its attempt does not count: {error}")]
    Agent {
        /// The agent.
        agent: String,
        /// The error.
        error: GenerateError,
    },
    /// The run was stopped; the next run resumes it.
    #[error("stopped; `hone task run --resume {0}` resumes it")]
    Stopped(TaskId),
}

/// An error of a file.
pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> TaskError + '_ {
    move |source| TaskError::File { path: path.to_owned(), source }
}

/// Stores tasks in a folder.
#[derive(Clone, Debug)]
pub struct TaskStore {
    folder: PathBuf,
}

/// An exclusive lock on a task, held until it is dropped.
#[derive(Debug)]
pub struct TaskLock {
    _file: File,
}

impl TaskStore {
    /// The tasks in a folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> TaskStore {
        TaskStore { folder: folder.into() }
    }

    /// Creates and stores a new task.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn create(&self, assignment: Assignment, workspace: PathBuf) -> Result<TaskRecord, TaskError> {
        let record = TaskRecord {
            id: TaskId::fresh(),
            assignment,
            workspace,
            created: Timestamp::now(),
            state: TaskState::Working,
            phase: 0,
            attempts: Vec::new(),
            round: 0,
            files: BTreeMap::new(),
            tests_before: None,
            notes: Vec::new(),
            learned: 0,
        };
        let folder = self.folder_of(record.id);
        create_private_folder(&folder).map_err(file_error(&folder))?;
        self.save(&record)?;
        Ok(record)
    }

    /// Replaces a task's file.
    ///
    /// # Errors
    /// When it cannot be written; the file is then unchanged.
    pub fn save(&self, record: &TaskRecord) -> Result<(), TaskError> {
        let folder = self.folder_of(record.id);
        let path = folder.join(FILE);
        replace(&path, "task", |file| Ok(serde_json::to_writer(file, record)?)).map_err(file_error(&path))
    }

    /// The task with this id, or the only one whose id begins or ends with `name`.
    ///
    /// # Errors
    /// When no task has this id, or its file cannot be read.
    pub fn find(&self, name: &str) -> Result<TaskRecord, TaskError> {
        let names = self.names();
        let matching: Vec<&String> =
            names.iter().filter(|id| !name.is_empty() && (id.starts_with(name) || id.ends_with(name))).collect();
        match matching[..] {
            [id] => self.read(id),
            _ => Err(TaskError::Unknown(name.to_owned())),
        }
    }

    /// Every task, the latest first, and the errors of those that cannot be read.
    pub fn list(&self) -> (Vec<TaskRecord>, Vec<TaskError>) {
        let mut names = self.names();
        names.reverse();
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for name in names {
            match self.read(&name) {
                Ok(record) => records.push(record),
                Err(error) => errors.push(error),
            }
        }
        (records, errors)
    }

    /// Locks a task.
    ///
    /// # Errors
    /// When another process holds the lock.
    pub fn lock(&self, id: TaskId) -> Result<TaskLock, TaskError> {
        let path = self.folder_of(id).join("lock");
        let mut options = File::options();
        let file = hone_files::open_private(&path, options.write(true).create(true)).map_err(file_error(&path))?;
        file.try_lock().map_err(|_| TaskError::InUse(id))?;
        Ok(TaskLock { _file: file })
    }

    /// The folder of a task.
    pub(super) fn folder_of(&self, id: TaskId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    /// The latest attempt's changes as a unified diff; empty before the first attempt.
    pub fn diff(&self, id: TaskId) -> String {
        fs::read_to_string(self.folder_of(id).join(DIFF)).unwrap_or_default()
    }

    /// The ids of all tasks, the oldest first.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.parse::<TaskId>().is_ok())
            .collect();
        names.sort();
        names
    }

    fn read(&self, name: &str) -> Result<TaskRecord, TaskError> {
        let path = self.folder.join(name).join(FILE);
        let bytes = fs::read(&path).map_err(file_error(&path))?;
        serde_json::from_slice(&bytes).map_err(|error| TaskError::Damaged { path, reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_programs_run_is_named() {
        let paths = ["src/lib.rs", ".envrc", "a/.vscode/tasks.json", "README.md"].map(str::to_owned);
        assert_eq!(self_running(paths.iter()), [".envrc", "a/.vscode/tasks.json"]);
    }
}
