//! Work on tasks: an agent writes files, evaluators and critics look at them, and a gate decides what happens next.
//!
//! An [`Assignment`] describes the task. An [`Evaluator`] finds flaws in the work on it, an [`EvaluatorTool`] reads the
//! findings of linters and tests, [`rule_critic()`] weighs the results, [`Reviewers`] ask models, and the gate
//! ([`decide`]) accepts the work, retries it, gives it to another agent, or asks a person. All of these are pure. A
//! [`TaskRunner`] carries a task through its [`TaskPhase`]s: it runs the tools, contained, in a copy of the workspace.

mod assignment;
mod author;
mod evaluating;
mod evaluator;
mod feedback_memory;
mod gate;
mod phase;
mod reading;
mod review;
mod reviewers;
mod rule_critic;
mod rules;
mod tasks;
mod tool;
mod work_format;
mod work_report;

pub use assignment::{Assignment, InvalidAssignment, TaskRequirement, is_inside};
pub use author::{Author, Written};
pub use evaluating::{DirectoryFiles, EvaluatorSet, ToolSettings};
pub use evaluator::{EvaluationContext, Evaluator, WorkspaceFiles};
pub use gate::{GateConfig, WithoutScore, criticize, decide};
pub use phase::TaskPhase;
pub use reading::{FailedTest, OutputFormat, ToolFindings};
pub use review::ReviewSettings;
pub use reviewers::{Ask, Reviewers, spared};
pub use rule_critic::rule_critic;
pub use rules::{rules, tests_kept};
pub use tasks::{
    AgentOutcome, CandidateEvaluation, LEARNED, Resolution, TaskError, TaskProgress, TaskRecord, TaskRunner, TaskState,
    TaskStore, WorkAttempt, WorkCandidate, WorkToolCall,
};
pub use tool::{EvaluatorTool, NoResult, ToolEnd, ToolRun};
pub use work_format::{FileChange, changed_text, parse_work, quoted_file};
pub use work_report::{Decisions, PhaseFigures, TypeFigures, UNNAMED_TYPE, WorkReport, findings_about, type_of};
