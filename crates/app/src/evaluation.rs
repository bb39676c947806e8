//! The evaluators of a workspace according to the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hone_work::{Assignment, EvaluatorTool, Reviewers};
use hone_work::{EvaluatorSet, ToolSettings};

use crate::config::{EVALUATORS, Places};
use crate::usage;
use crate::workers::commands;

/// The configured tools and their settings in a workspace.
pub struct Tools {
    /// The configured tools.
    pub tools: Vec<EvaluatorTool>,
    /// The settings with which they run.
    pub settings: ToolSettings,
}

/// The evaluators of a workspace.
pub struct Evaluation {
    /// The workspace, as an absolute path.
    pub workspace: PathBuf,
    /// Its evaluators.
    pub evaluators: EvaluatorSet,
}

/// The workspace of the tools.
#[derive(Clone, Copy, Debug)]
pub struct Workspace<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Whether tools run only if this system contains them completely.
    pub requires_containment: bool,
}

impl Evaluation {
    /// Reads the configured tools without running any.
    ///
    /// # Errors
    /// When a table of a tool is not valid, the workspace does not exist, or this system contains less than required.
    pub fn open(workspace: Workspace<'_>, reviewers: Reviewers) -> anyhow::Result<Evaluation> {
        let Tools { tools, settings } = Tools::open(workspace)?;
        let evaluators = EvaluatorSet::new(tools, &settings, reviewers);
        Ok(Evaluation { workspace: settings.workspace, evaluators })
    }
}

impl Tools {
    /// Reads the configured tools without running any.
    ///
    /// # Errors
    /// When a table of a tool is not valid, the workspace does not exist, or this system contains less than required.
    pub fn open(workspace: Workspace<'_>) -> anyhow::Result<Tools> {
        let Workspace { folder, requires_containment } = workspace;
        let workspace =
            folder.canonicalize().with_context(|| format!("cannot use the workspace {}", folder.display()))?;
        if !workspace.is_dir() {
            return Err(usage(format!("the workspace {} is not a folder", workspace.display())));
        }
        let tools = EvaluatorTool::all(&Places::of_this_process().tables(EVALUATORS)?)
            .map_err(|wrong| usage(format!("{EVALUATORS}.toml: {wrong}")))?;
        let launcher = commands::launcher()?;
        if requires_containment {
            let containment = launcher.containment().context("cannot tell how commands are contained")?;
            anyhow::ensure!(containment.is_complete(), "nothing is run, because it would be {containment}");
        }
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let settings = ToolSettings { launcher, workspace, environment, is_cancelled: Arc::new(|| false) };
        Ok(Tools { tools, settings })
    }
}

/// Reads a task's file.
///
/// # Errors
/// When it cannot be read, or is not valid.
pub fn read_assignment(path: &Path) -> anyhow::Result<Assignment> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Assignment::parse(&text).map_err(|invalid| usage(format!("{}: {invalid}", path.display())))
}
