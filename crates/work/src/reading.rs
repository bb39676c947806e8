//! Reads the output of linters, type checkers and test runners.
//!
//! A reader is a pure function of a text. Unreadable output is an error that becomes an evaluation without a score,
//! never a pass.

mod diagnostics;
mod junit;
mod test_runs;

use hone_protocol::TestCounts;
use serde::{Deserialize, Serialize};

/// The output format of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// `ruff check --output-format=json`
    Ruff,
    /// The summary that pytest ends with
    Pytest,
    /// `pyright --outputjson`
    Pyright,
    /// `mypy --output=json`
    Mypy,
    /// `cargo test`, with or without `--message-format=json`
    CargoTest,
    /// `cargo clippy --message-format=json`, or any other cargo command's
    Cargo,
    /// `eslint --format=json`
    Eslint,
    /// `tsc --pretty false`
    Tsc,
    /// `node --test --test-reporter=tap`, or any other producer of TAP
    Tap,
    /// `vitest run --reporter=json`, or jest's
    Vitest,
    /// `bun test`
    Bun,
    /// `go test -json`
    GoTest,
    /// JUnit's XML
    Junit,
    /// SARIF 2.1
    Sarif,
}

impl OutputFormat {
    /// Every format.
    pub const ALL: [OutputFormat; 14] = [
        OutputFormat::Ruff,
        OutputFormat::Pytest,
        OutputFormat::Pyright,
        OutputFormat::Mypy,
        OutputFormat::CargoTest,
        OutputFormat::Cargo,
        OutputFormat::Eslint,
        OutputFormat::Tsc,
        OutputFormat::Tap,
        OutputFormat::Vitest,
        OutputFormat::Bun,
        OutputFormat::GoTest,
        OutputFormat::Junit,
        OutputFormat::Sarif,
    ];

    /// Whether it is the format of a test runner.
    pub fn is_of_tests(self) -> bool {
        match self {
            OutputFormat::Pytest
            | OutputFormat::CargoTest
            | OutputFormat::Tap
            | OutputFormat::Vitest
            | OutputFormat::Bun
            | OutputFormat::GoTest
            | OutputFormat::Junit => true,
            OutputFormat::Ruff
            | OutputFormat::Pyright
            | OutputFormat::Mypy
            | OutputFormat::Cargo
            | OutputFormat::Eslint
            | OutputFormat::Tsc
            | OutputFormat::Sarif => false,
        }
    }

    /// Reads a tool's output: its report if it has one, otherwise stdout, with stderr for the tools that write there.
    ///
    /// # Errors
    /// The reason, when the output is not in this format.
    pub fn read(self, stdout: &str, stderr: &str, report: Option<&str>) -> Result<ToolFindings, String> {
        let text = report.unwrap_or(stdout);
        match self {
            OutputFormat::Ruff => diagnostics::ruff(text),
            OutputFormat::Pyright => diagnostics::pyright(text),
            OutputFormat::Mypy => diagnostics::mypy(text),
            OutputFormat::Cargo => diagnostics::cargo(text),
            OutputFormat::Eslint => diagnostics::eslint(text),
            OutputFormat::Tsc => diagnostics::tsc(text),
            OutputFormat::Sarif => diagnostics::sarif(text),
            OutputFormat::Pytest => test_runs::pytest(text, stderr),
            OutputFormat::CargoTest => test_runs::cargo(text, stderr),
            OutputFormat::Tap => test_runs::tap(text),
            OutputFormat::Vitest => test_runs::vitest(text),
            OutputFormat::Bun => test_runs::bun(&format!("{stderr}\n{stdout}")),
            OutputFormat::GoTest => test_runs::go(text),
            OutputFormat::Junit => junit::junit(text),
        }
    }
}

/// The findings of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFindings {
    /// The counts of the tests that it ran; `None` if it is not a test runner.
    pub tests: Option<TestCounts>,
    /// The tests that failed, if the tool names them.
    pub failed_tests: Vec<FailedTest>,
    /// Errors in the code, including those that keep tests from running.
    pub errors: Vec<String>,
    /// The errors with which the code cannot run: it does not parse or compile, or has unresolved imports.
    pub fatal: Vec<String>,
    /// Warnings of the tool.
    pub warnings: Vec<String>,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedTest {
    /// Its name.
    pub name: String,
    /// The failure message; empty if the tool gives none.
    pub message: String,
}

impl ToolFindings {
    fn of_tests() -> ToolFindings {
        ToolFindings { tests: Some(TestCounts::default()), ..ToolFindings::default() }
    }

    fn counts(&mut self) -> &mut TestCounts {
        self.tests.get_or_insert_default()
    }

    /// The errors, starting with those that keep the code from running.
    pub(crate) fn most_urgent(&self) -> impl Iterator<Item = &String> {
        self.fatal.iter().chain(self.errors.iter().filter(|error| !self.fatal.contains(error)))
    }

    /// Adds an error; `is_fatal` if it keeps the code from running.
    fn err(&mut self, is_fatal: bool, error: String) {
        if is_fatal {
            self.fatal.push(error.clone());
        }
        self.errors.push(error);
    }

    fn fail(&mut self, name: &str, message: &str) {
        self.counts().failed += 1;
        self.failed_tests.push(FailedTest { name: name.to_owned(), message: message.trim().to_owned() });
    }
}

/// A location in a file, a rule and a message, as one line.
fn diagnostic(file: &str, line: Option<u64>, rule: Option<&str>, message: &str) -> String {
    let place = match line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    };
    let rule = rule.filter(|rule| !rule.is_empty()).map(|rule| format!(" [{rule}]")).unwrap_or_default();
    let message = message.lines().next().unwrap_or_default().trim();
    if place.is_empty() { format!("{message}{rule}") } else { format!("{place}: {message}{rule}") }
}

/// The JSON value in a text; tools may write other lines around it.
fn json_in(text: &str) -> Result<serde_json::Value, String> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let from_line_start = text.lines().scan(0, |start, line| {
        let here = *start;
        *start += line.len() + 1;
        Some(here)
    });
    let mut begins = from_line_start.filter(|start| text[*start..].starts_with(['{', '[']));
    let parse = |start: usize| serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok();
    // A few attempts are enough: noise precedes the value, and is not JSON.
    begins.by_ref().take(16).find_map(parse).ok_or_else(|| "its output is not JSON".to_owned())
}

/// The JSON objects in a text with one per line; other lines are ignored.
fn json_lines(text: &str) -> Vec<serde_json::Value> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with('{'));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}
