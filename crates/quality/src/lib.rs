//! How answers are graded and compared: rubrics, the judge's prompts, and the parsing of what the judge writes.
//!
//! A [`Judge`] is a model (any [`Generate`](hone_protocol::Generate)), its settings, its [`JudgeProfile`] and a rubric.
//! What it can be asked is a [`Task`]: a [`GradeTask`] becomes a request, and the events that come back a
//! [`Grade`](hone_protocol::Grade); a [`CompareTask`] two requests, one for each order, and a
//! [`Preference`](hone_protocol::Preference). Both run as a [`JudgeRun`]: events in, a verdict out. There is no thread
//! here: its holder takes the events from channels and hands them on, and can so wait for other things at the same
//! time. Several judges are a [`Jury`], which is asked as a single one is.
//!
//! The work on a task is evaluated, too: an [`Evaluator`] finds what is wrong with it, an [`EvaluatorTool`] reads what linters
//! and tests found, [`rule_critic()`] weighs the results, and the gate ([`decide`]) says what happens next.
//!
//! A judge that is missing, slow or incoherent is not an error. Its grade has no score and says why.

pub mod agreement;
mod assignment;
mod attempt;
mod auc;
mod author;
mod bradley_terry;
pub mod calibration;
mod clustering;
mod comparing;
mod critique;
mod evaluator;
pub mod examination;
mod fallback;
mod feedback_memory;
mod fence;
mod form;
mod gate;
mod grading;
mod joint;
mod judge;
mod judge_run;
mod jury;
mod likelihood;
mod neutralize;
mod own_rubric;
mod phase;
mod probabilities;
mod profile;
mod prompt;
mod random;
mod reading;
mod report;
mod request;
mod review;
mod reviewers;
mod router;
mod rubric;
mod rule_critic;
mod rules;
#[cfg(feature = "scripted")]
pub mod scripted;
mod settings;
mod shorten;
mod standing;
mod support;
mod suspicion;
mod task;
mod tool;
mod verdict;
mod work_format;

pub use assignment::{Assignment, InvalidAssignment, Requirement, is_inside};
pub use auc::{Auc, area_under_curve};
pub use author::Author;
pub use bradley_terry::{Strength, Tournament};
pub use clustering::clustered;
pub use comparing::CompareTask;
pub use critique::{CritiqueSettings, critique_result};
pub use evaluator::{EvaluationContext, Evaluator, WorkspaceFiles};
pub use feedback_memory::{PastAttempt, optimized_prompt, recurring_issues};
pub use fence::FenceKey;
pub use gate::{Counts, GateConfig, criticize, decide};
pub use grading::GradeTask;
pub use joint::JointVerdict;
pub use judge::Judge;
pub use judge_run::JudgeRun;
pub use jury::{Jury, JuryRun};
pub use likelihood::{Features, Fit, LIKELIHOOD, Likelihood, features_of};
pub use neutralize::neutralized;
pub use own_rubric::OwnRubric;
pub use phase::Phase;
pub use profile::{InvalidProfile, JudgeProfile, JudgeProfiles};
pub use prompt::{fill, has_place};
pub use reading::{FailedTest, Findings, OutputFormat};
pub use report::{
    Conclusion, Contender, Decisions, Figures, PairOutcome, PairReport, PairRow, Period, QualityReport, Regression,
    ReportRow, ScaleReport, Share, counted, sample, share_with_interval,
};
pub use review::{Review, ReviewSettings, ReviewTask};
pub use reviewers::{Ask, Reviewers, spared};
pub use router::{Arm, Choice, EXPLORATION, choose};
pub use rubric::{InvalidRubric, Rubric};
pub use rule_critic::rule_critic;
pub use rules::{rules, tests_kept};
pub use settings::{CriticSettings, Fallback, InvalidSettings};
pub use standing::{Standing, Standings};
pub use support::{SupportTask, support_of};
pub use suspicion::suspicion;
pub use task::{Task, Verdict};
pub use tool::{EvaluatorTool, MissingTool, ToolEnd, ToolRun};
pub use verdict::{parse_score, parse_winner};
pub use work_format::{FileChange, WORK_FORM, changed_text, parse_work, quoted_file, work_regex};
