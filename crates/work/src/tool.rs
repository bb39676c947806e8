//! Evaluators that are programs, each defined by a table in `evaluators.toml`. The caller runs them.

use std::collections::BTreeMap;

use hone_protocol::configured::size;
use hone_protocol::{Category, CriterionResult, EvaluationResult, EvaluationStatus};
use serde::Deserialize;

use crate::reading::{OutputFormat, ToolFindings};

/// Maximum number of failures, errors and suggestions in a result.
const MOST_NAMED: usize = 5;
/// Maximum characters of output quoted in a result.
const LONGEST_EVIDENCE: usize = 2000;
/// Maximum number of files that a tool is told about.
const MOST_FILES: usize = 1000;
/// The argument that stands for the changed files.
pub(crate) const CHANGED: &str = "{changed}";
/// An error reduces the score of a linter by this amount.
const COST_OF_AN_ERROR: f64 = 0.1;
/// The compiled-in tables.
const SHIPPED: &str = include_str!("../../../config/evaluators.toml");

/// A program that evaluates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluatorTool {
    /// Its name: the name of its table.
    #[serde(skip)]
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its output format.
    pub reads: OutputFormat,
    /// The category of its findings.
    pub category: Category,
    /// File names, or suffixes such as `*.py`; a workspace must contain at least one match.
    pub files: Vec<String>,
    /// Time limit in seconds.
    pub seconds: f64,
    /// The consequence if it is not installed.
    pub missing: NoResult,
    /// The consequence if it crashes or reaches a limit.
    #[serde(default = "failed")]
    pub unfinished: NoResult,
    /// The phases that it evaluates; empty selects all.
    #[serde(default)]
    pub phases: Vec<String>,
    /// Files and folders that it may read in addition to the system's and the workspace's.
    #[serde(default)]
    pub readable: Vec<String>,
    /// Default values of environment variables; the caller's environment takes precedence.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Maximum total memory of its processes, in bytes.
    #[serde(default, deserialize_with = "size")]
    pub memory: Option<u64>,
    /// Maximum total bytes that its processes may write to disk.
    #[serde(default, deserialize_with = "size")]
    pub disk: Option<u64>,
    /// Maximum number of concurrent processes.
    #[serde(default)]
    pub processes: Option<usize>,
}

/// The consequence if a tool has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoResult {
    /// Its evaluation is skipped.
    Skipped,
    /// Its evaluation has no score.
    Unscored,
    /// Its evaluation fails.
    Failed,
}

/// The outcome of running a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRun {
    /// How it ended.
    pub end: ToolEnd,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
    /// Its report, if it wrote one.
    pub report: Option<String>,
    /// The protections that were unavailable.
    pub not_contained: Vec<String>,
    /// Files it created that other tools run automatically; each was renamed.
    pub set_aside: Vec<String>,
    /// Its run time in seconds.
    pub seconds: f64,
}

/// How a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEnd {
    /// It exited with this code.
    Exited(i32),
    /// It crashed or was terminated, for this reason.
    Ended(String),
    /// It is not installed.
    NotInstalled,
    /// It was not run, for this reason, which is unrelated to the work.
    NotRun(String),
}

impl EvaluatorTool {
    /// The tools of the compiled-in tables, with the changes and additions in `changes`, in alphabetical order.
    ///
    /// # Errors
    /// Describes the first invalid table.
    pub fn all(changes: &toml::Table) -> Result<Vec<EvaluatorTool>, String> {
        let mut tables: toml::Table = SHIPPED.parse().map_err(|error: toml::de::Error| error.to_string())?;
        for (name, table) in changes {
            let Some(change) = table.as_table() else { return Err(format!("{name} is not a table")) };
            match tables.get_mut(name).and_then(toml::Value::as_table_mut) {
                Some(known) => known.extend(change.clone()),
                None => drop(tables.insert(name.clone(), table.clone())),
            }
        }
        tables.into_iter().map(|(name, table)| EvaluatorTool::read(name, table)).collect()
    }

    fn read(name: String, table: toml::Value) -> Result<EvaluatorTool, String> {
        let wrong = |what: String| format!("[{name}] {what}");
        let tool: EvaluatorTool =
            table.try_into().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
        if tool.command.first().is_none_or(String::is_empty) {
            return Err(wrong("command has no program".to_owned()));
        }
        if !(tool.seconds > 0.0 && tool.seconds.is_finite()) {
            return Err(wrong(format!("seconds is {}: it must be above 0", tool.seconds)));
        }
        Ok(EvaluatorTool { name, ..tool })
    }

    /// Whether it evaluates the phase.
    pub(crate) fn is_for_phase(&self, phase: &str) -> bool {
        self.phases.is_empty() || self.phases.iter().any(|own| own == phase)
    }

    /// Whether a workspace with these files has anything to evaluate.
    pub fn is_for_files(&self, paths: &[String]) -> bool {
        paths.iter().any(|path| self.is_for_file(path))
    }

    fn is_for_file(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        self.files.iter().any(|pattern| matches(pattern, name))
    }

    /// The files that it is told about: of those that have changed, or of all files if that is unknown or does not matter
    /// to it.
    pub(crate) fn files_of(&self, changed: Option<&[String]>, all: &[String]) -> Vec<String> {
        let is_about_changes = self.command.iter().any(|argument| argument == CHANGED);
        let files = changed.filter(|_| is_about_changes).unwrap_or(all);
        files.iter().filter(|path| self.is_for_file(path)).take(MOST_FILES).cloned().collect()
    }

    /// The result for a workspace with nothing to evaluate.
    pub(crate) fn nothing_to_evaluate(&self) -> EvaluationResult {
        let reason = format!("there is no {}", self.files.join(" and no "));
        self.bare(EvaluationStatus::Skipped { reason: reason.clone() }, reason, 0.0)
    }

    /// The result of a run.
    pub fn result(&self, run: &ToolRun) -> EvaluationResult {
        let result = match &run.end {
            ToolEnd::Exited(code) => self.result_of_exit(*code, run),
            ToolEnd::Ended(reason) => {
                let evidence = excerpt(&run.stdout, &run.stderr);
                self.without_result(self.unfinished, reason.clone(), evidence, run.seconds)
            }
            ToolEnd::NotInstalled => {
                let program = self.command.first().map(String::as_str).unwrap_or_default();
                self.without_result(self.missing, format!("{program} is not installed"), None, 0.0)
            }
            ToolEnd::NotRun(reason) => self.bare(
                EvaluationStatus::Unscored { reason: reason.clone() },
                format!("could not run: {reason}"),
                0.0,
            ),
        };
        let feedback = match run.set_aside.is_empty() {
            true => result.feedback,
            false => format!(
                "{}; set aside, since tools run it by themselves: {}",
                result.feedback,
                run.set_aside.join(", ")
            ),
        };
        EvaluationResult { not_contained: run.not_contained.clone(), feedback, ..result }
    }

    fn result_of_exit(&self, code: i32, run: &ToolRun) -> EvaluationResult {
        match self.reads.read(&run.stdout, &run.stderr, run.report.as_deref()) {
            Ok(findings) if findings.tests.is_some() => self.result_of_tests(code, &findings, run),
            Ok(findings) => self.result_of_errors(code, &findings, run),
            Err(reason) => {
                let excerpt = excerpt(&run.stderr, &run.stdout);
                let reason = format!("{reason} (exit code {code}) {}", excerpt.unwrap_or_default());
                let reason = reason.trim().to_owned();
                self.bare(
                    EvaluationStatus::Unscored { reason: reason.clone() },
                    format!("could not run: {reason}"),
                    run.seconds,
                )
            }
        }
    }

    fn result_of_tests(&self, code: i32, findings: &ToolFindings, run: &ToolRun) -> EvaluationResult {
        let counts = findings.tests.unwrap_or_default();
        let ran = counts.passed + counts.failed;
        let mut criteria: Vec<CriterionResult> = Vec::new();
        let named = findings.failed_tests.iter().map(|test| (format!("test {}", test.name), test.message.clone()));
        let errors = findings.errors.iter().map(|error| ("compiles".to_owned(), error.clone()));
        for (criterion, message) in named.chain(errors).take(MOST_NAMED) {
            let first = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
            let text = if first.is_empty() { format!("{criterion} fails") } else { format!("{criterion}: {first}") };
            let evidence = message.contains('\n').then(|| shortened(&message));
            criteria.push(CriterionResult { criterion, passed: false, score: 0.0, message: text, evidence });
        }
        let score = if ran == 0 { 0.0 } else { counts.passed as f64 / ran as f64 };
        let (status, feedback) = if counts.failed > 0 {
            (EvaluationStatus::Failed { score }, format!("{} of {ran} tests fail", counts.failed))
        } else if !findings.errors.is_empty() {
            (
                EvaluationStatus::Failed { score: 0.0 },
                format!("{} errors keep tests from running", findings.errors.len()),
            )
        } else if counts.total() == 0 {
            let reason = "there are no tests".to_owned();
            (EvaluationStatus::Skipped { reason: reason.clone() }, reason)
        } else if code != 0 {
            let feedback = format!("{} tests pass, but the command exits with code {code}", counts.passed);
            (EvaluationStatus::Failed { score: 0.0 }, feedback)
        } else if ran == 0 {
            let reason = format!("all {} tests are skipped", counts.skipped);
            (EvaluationStatus::Skipped { reason: reason.clone() }, reason)
        } else {
            (EvaluationStatus::Passed { score: 1.0 }, format!("{ran} tests pass"))
        };
        let has_failed = matches!(status, EvaluationStatus::Failed { .. });
        if has_failed && criteria.is_empty() {
            let evidence = excerpt(&run.stdout, &run.stderr);
            let (criterion, message) = ("tests_pass".to_owned(), feedback.clone());
            criteria.push(CriterionResult { criterion, passed: false, score: 0.0, message, evidence });
        }
        if matches!(status, EvaluationStatus::Passed { .. }) {
            criteria.push(held("tests_pass", &feedback));
        }
        let suggestions = match has_failed {
            true => criteria.iter().map(|criterion| format!("fix {}", criterion.message)).collect(),
            false => Vec::new(),
        };
        EvaluationResult { criteria, suggestions, tests: Some(counts), ..self.bare(status, feedback, run.seconds) }
    }

    fn result_of_errors(&self, code: i32, findings: &ToolFindings, run: &ToolRun) -> EvaluationResult {
        let n_errors = findings.errors.len();
        if n_errors == 0 && code != 0 && findings.warnings.is_empty() {
            let excerpt = excerpt(&run.stderr, &run.stdout).unwrap_or_default();
            let reason = format!("it exits with code {code} and names no error {excerpt}").trim().to_owned();
            let status = EvaluationStatus::Unscored { reason: reason.clone() };
            return self.bare(status, format!("could not run: {reason}"), run.seconds);
        }
        let suggestions: Vec<String> =
            findings.most_urgent().take(MOST_NAMED).map(|error| format!("fix {error}")).collect();
        if n_errors == 0 {
            let feedback = match findings.warnings.len() {
                0 => "no errors".to_owned(),
                n => format!("no errors, {n} warnings"),
            };
            let criteria = vec![held("no_errors", &feedback)];
            return EvaluationResult {
                criteria,
                ..self.bare(EvaluationStatus::Passed { score: 1.0 }, feedback, run.seconds)
            };
        }
        let runs = findings.fatal.is_empty();
        let score = if runs { (1.0 - COST_OF_AN_ERROR * n_errors as f64).max(0.0) } else { 0.0 };
        let feedback = if n_errors == 1 { "1 error".to_owned() } else { format!("{n_errors} errors") };
        let evidence = findings.errors.iter().take(4 * MOST_NAMED).cloned().collect::<Vec<_>>().join("\n");
        let first = findings.fatal.first().unwrap_or(&findings.errors[0]);
        let (criterion, message) = match runs {
            true => ("no_errors", format!("{feedback}, the first: {first}")),
            false => ("can_run", format!("the code cannot run: {first}")),
        };
        let (criterion, evidence) = (criterion.to_owned(), Some(shortened(&evidence)));
        let criteria = vec![CriterionResult { criterion, passed: false, score, message, evidence }];
        let status = EvaluationStatus::Failed { score };
        EvaluationResult { criteria, suggestions, ..self.bare(status, feedback, run.seconds) }
    }

    fn without_result(
        &self,
        consequence: NoResult,
        reason: String,
        evidence: Option<String>,
        seconds: f64,
    ) -> EvaluationResult {
        let status = match consequence {
            NoResult::Skipped => EvaluationStatus::Skipped { reason: reason.clone() },
            NoResult::Unscored => EvaluationStatus::Unscored { reason: reason.clone() },
            NoResult::Failed => return self.blocked(reason, evidence, seconds),
        };
        self.bare(status, reason, seconds)
    }

    fn blocked(&self, message: String, evidence: Option<String>, seconds: f64) -> EvaluationResult {
        let criterion = CriterionResult {
            criterion: "runs".to_owned(),
            passed: false,
            score: 0.0,
            message: message.clone(),
            evidence,
        };
        let bare = self.bare(EvaluationStatus::Failed { score: 0.0 }, message, seconds);
        EvaluationResult { criteria: vec![criterion], ..bare }
    }

    fn bare(&self, status: EvaluationStatus, feedback: String, seconds: f64) -> EvaluationResult {
        EvaluationResult {
            evaluator: self.name.clone(),
            category: self.category,
            deterministic: true,
            status,
            feedback,
            criteria: Vec::new(),
            suggestions: Vec::new(),
            tests: None,
            not_contained: Vec::new(),
            seconds,
        }
    }
}

fn failed() -> NoResult {
    NoResult::Failed
}

fn held(criterion: &str, message: &str) -> CriterionResult {
    let (criterion, message) = (criterion.to_owned(), message.to_owned());
    CriterionResult { criterion, passed: true, score: 1.0, message, evidence: None }
}

/// Whether a file name matches the pattern, which may contain one `*` for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((begin, end)) => name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end),
        None => pattern == name,
    }
}

/// The end of the first non-empty output.
fn excerpt(first: &str, second: &str) -> Option<String> {
    [first, second].into_iter().map(str::trim).find(|text| !text.is_empty()).map(shortened)
}

/// The end of a text, where most tools print the conclusion.
fn shortened(text: &str) -> String {
    let n_chars = text.chars().count();
    text.chars().skip(n_chars.saturating_sub(LONGEST_EVIDENCE)).collect()
}
