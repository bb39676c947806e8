//! Flags of `hone task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hone_app::evaluation::Workspace;

use super::{EngineFlags, JsonFlag, SamplingFlags};

/// The format of a task file.
const TASK_KEYS: &str = "\
A task is a TOML file with the key goal and, optionally, type (a name for tasks of this kind), files
(which must exist), paths (files and folders that the work may change), phases, and [[requirements]]
tables with text, file (which shows that it is met) and contains (a text in that file).";

/// Flags of `hone task`.
#[derive(Debug, Args)]
pub(crate) struct TaskArguments {
    #[command(subcommand)]
    pub(crate) command: TaskCommand,
}

/// Subcommands of `hone task`.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Have models work on a task, phase by phase, until the gate accepts the result or a person must decide
    #[command(after_help = TASK_KEYS)]
    Run(Box<TaskRunArguments>),
    /// List tasks
    List(TaskListArguments),
    /// List the tasks that await your decision, with the information needed to decide
    Inbox(TaskListArguments),
    /// Show a task with its attempts, their findings and their changes
    Show(TaskShowArguments),
    /// Decide a task that is waiting for a person
    Resolve(TaskResolveArguments),
    /// Evaluate a workspace as it is: run the applicable tools, contained, and report whether the gate accepts it
    #[command(after_help = TASK_KEYS)]
    Check(TaskCheckArguments),
}

/// Flags of `hone task run`.
#[derive(Debug, Args)]
pub(crate) struct TaskRunArguments {
    /// Task file
    #[arg(value_name = "FILE", required_unless_present = "resume")]
    pub(crate) task: Option<PathBuf>,
    /// Resume an interrupted task, given its id or the beginning or end of the id
    #[arg(long, value_name = "ID", conflicts_with_all = ["task", "workspace"])]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone task list` and `hone task inbox`.
#[derive(Debug, Args)]
pub(crate) struct TaskListArguments {
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone task show`.
#[derive(Debug, Args)]
pub(crate) struct TaskShowArguments {
    /// The task's id, or its beginning or end
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone task resolve`.
#[derive(Debug, Args)]
pub(crate) struct TaskResolveArguments {
    /// The task's id, or its beginning or end
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) decision: ResolveFlags,
    /// Reason for the decision; with --retry, the agent is told
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// A person's decision.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResolveFlags {
    /// Write the changes to the workspace as they are
    #[arg(long)]
    pub(crate) accept: bool,
    /// Leave the workspace as it is
    #[arg(long)]
    pub(crate) reject: bool,
    /// Let the agents try again, with `hone task run --resume`
    #[arg(long)]
    pub(crate) retry: bool,
}

/// Flags of `hone task check`.
#[derive(Debug, Args)]
pub(crate) struct TaskCheckArguments {
    /// Task to evaluate the work against; without it, only tools evaluate
    #[arg(value_name = "FILE")]
    pub(crate) task: Option<PathBuf>,
    /// Phase whose evaluators run
    #[arg(long, value_name = "NAME", default_value = "coding")]
    pub(crate) phase: String,
    /// Evaluate with tools and rules only, without asking a model
    #[arg(long)]
    pub(crate) deterministic: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlags,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Where tools run, and how.
#[derive(Debug, Args)]
pub(crate) struct WorkspaceFlags {
    /// Folder with the work
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,
    /// Run nothing unless this system can contain it: files, network and processes
    #[arg(long)]
    pub(crate) require_containment: bool,
}

impl WorkspaceFlags {
    /// The workspace that tools run in.
    pub(crate) fn workspace(&self) -> Workspace<'_> {
        Workspace { folder: &self.workspace, requires_containment: self.require_containment }
    }
}
