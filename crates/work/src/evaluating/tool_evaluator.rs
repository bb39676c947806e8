//! An evaluator that runs a tool.

use std::path::Path;

use hone_containment::{ContainedCommand, Ending, Limits, Ran};
use hone_protocol::{Category, EvaluationResult};

use super::{ToolSettings, programs};
use crate::tool::CHANGED;
use crate::{EvaluationContext, Evaluator, EvaluatorTool, ToolEnd, ToolRun};

/// Environment variables of the caller that every tool gets.
const PASSED_ON: [&str; 3] = ["LANG", "LC_ALL", "TZ"];

/// The checks of what keeps files from being loaded.
const PYTHON_CHECK: &str = include_str!("checks/python.py");
const NODE_CHECK: &str = include_str!("checks/node.mjs");

/// Packages of a workspace, which may be links.
const INSTALLED: [&str; 3] = [".venv", "venv", "node_modules"];

/// A tool with its settings.
pub(super) struct ToolEvaluator {
    tool: EvaluatorTool,
    settings: ToolSettings,
}

impl ToolEvaluator {
    pub(super) fn new(tool: EvaluatorTool, settings: ToolSettings) -> Self {
        ToolEvaluator { tool, settings }
    }

    pub(super) fn is_for_phase(&self, phase: &str) -> bool {
        self.tool.is_for_phase(phase)
    }

    pub(super) fn counts_tests(&self) -> bool {
        self.tool.reads.is_of_tests()
    }

    fn run(&self, changed: &[String]) -> ToolRun {
        let command = match self.command(changed) {
            Some(command) => command,
            None => return not_run(ToolEnd::NotInstalled),
        };
        match self.settings.launcher.run(&command, &*self.settings.is_cancelled) {
            Ok(ran) => relative(tool_run(ran), &self.settings.workspace),
            Err(error) => not_run(ToolEnd::NotRun(hone_protocol::with_causes(&error))),
        }
    }

    /// The command to run, about these changed files; `None` if its program is not installed.
    fn command(&self, changed: &[String]) -> Option<ContainedCommand> {
        let ToolSettings { workspace, .. } = &self.settings;
        let home = self.variable("HOME").map(std::path::Path::new);
        let folders = programs::search_path(workspace, self.variable("PATH").unwrap_or_default());
        let (program, arguments) = self.tool.command.split_first()?;
        let program = programs::find(program, &folders)?;
        let mut readable = programs::readable(&program, &folders, home);
        readable.extend(self.tool.readable.iter().filter_map(|path| programs::with_home(path, home)));
        readable.extend(INSTALLED.iter().map(|name| workspace.join(name)));
        let path = std::env::join_paths(&folders).ok()?.to_string_lossy().into_owned();
        let mut environment = vec![("PATH".to_owned(), path)];
        let passed_on = PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), self.variable(name)?.to_owned())));
        environment.extend(passed_on);
        for (name, value) in &self.tool.environment {
            let own = self.variable(name).map(str::to_owned);
            let value = own.or_else(|| Some(programs::with_home(value, home)?.to_string_lossy().into_owned()));
            environment.extend(value.map(|value| (name.clone(), value)));
        }
        let arguments = arguments.iter().flat_map(|argument| filled(argument, changed));
        let argv = std::iter::once(program.to_string_lossy().into_owned()).chain(arguments).collect();
        Some(ContainedCommand { argv, workspace: workspace.clone(), environment, readable, limits: self.limits() })
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            seconds: self.tool.seconds,
            memory_bytes: self.tool.memory.unwrap_or(default.memory_bytes),
            disk_bytes: self.tool.disk.unwrap_or(default.disk_bytes),
            processes: self.tool.processes.unwrap_or(default.processes),
            ..default
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.settings.environment.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

impl Evaluator for ToolEvaluator {
    fn name(&self) -> &str {
        &self.tool.name
    }

    fn category(&self) -> Category {
        self.tool.category
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let files = self.tool.files_of(context.changed, &context.workspace.paths());
        match files.is_empty() {
            true => self.tool.nothing_to_evaluate(),
            false => self.tool.result(&self.run(&files)),
        }
    }
}

/// An argument of a command, or those that its placeholder stands for.
fn filled(argument: &str, changed: &[String]) -> Vec<String> {
    match argument {
        CHANGED => changed.to_vec(),
        "{python_check}" => vec![PYTHON_CHECK.to_owned()],
        "{node_check}" => vec![NODE_CHECK.to_owned()],
        _ => vec![argument.to_owned()],
    }
}

fn tool_run(ran: Ran) -> ToolRun {
    let end = match ran.ending {
        Ending::Exited(code) => ToolEnd::Exited(code),
        Ending::NotStarted(_) | Ending::Cancelled => ToolEnd::NotRun(ran.ending.to_string()),
        limit => ToolEnd::Ended(limit.to_string()),
    };
    ToolRun {
        end,
        stdout: ran.stdout,
        stderr: ran.stderr,
        report: ran.report,
        not_contained: ran.containment.missing,
        set_aside: ran.set_aside,
        seconds: ran.seconds,
    }
}

/// A tool's output, with workspace paths as agents know them.
fn relative(run: ToolRun, workspace: &Path) -> ToolRun {
    let real = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let without = |text: String| {
        [&*real, workspace].iter().filter_map(|root| root.to_str()).fold(text, |text, root| {
            let root = format!("{root}{}", std::path::MAIN_SEPARATOR);
            let in_json = root.replace('\\', "\\\\");
            text.replace(&format!("file://{root}"), "").replace(&root, "").replace(&in_json, "")
        })
    };
    ToolRun { stdout: without(run.stdout), stderr: without(run.stderr), report: run.report.map(without), ..run }
}

fn not_run(end: ToolEnd) -> ToolRun {
    let (stdout, stderr) = (String::new(), String::new());
    ToolRun { end, stdout, stderr, report: None, not_contained: Vec::new(), set_aside: Vec::new(), seconds: 0.0 }
}
