//! A task as written by a person: the goal, and the requirements for the work. (A
//! [`JudgeTask`](hone_judging::JudgeTask) is unrelated: a question to a judge.)

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A task for an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Assignment {
    /// The goal.
    pub goal: String,
    /// A short name for the kind of task, for reports.
    #[serde(rename = "type")]
    pub kind: String,
    /// The requirements for the work.
    pub requirements: Vec<TaskRequirement>,
    /// Files that must exist.
    pub files: Vec<String>,
    /// Paths that the work may change: files, or folders with all of their contents. Empty allows all.
    pub paths: Vec<String>,
    /// The phases that it goes through; empty selects all that are configured.
    pub phases: Vec<String>,
}

/// A requirement for the work. Without a `file`, only people and models can tell whether it is met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskRequirement {
    /// The requirement in words.
    pub text: String,
    /// The file to check.
    pub file: Option<String>,
    /// A text that the file must contain; without it, the file must exist.
    pub contains: Option<String>,
}

/// A text that is not a valid task.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the task cannot be used: {0}")]
pub struct InvalidAssignment(String);

impl Assignment {
    /// Reads a task from TOML.
    ///
    /// # Errors
    /// When the text is not valid TOML, has unknown keys, has no goal, or names a path outside of the workspace.
    pub fn parse(text: &str) -> Result<Assignment, InvalidAssignment> {
        let assignment: Assignment =
            toml::from_str(text).map_err(|error| InvalidAssignment(error.to_string().trim().to_owned()))?;
        if assignment.goal.trim().is_empty() {
            return Err(InvalidAssignment("goal is missing or empty".to_owned()));
        }
        if let Some(requirement) = assignment.requirements.iter().find(|requirement| requirement.text.is_empty()) {
            return Err(InvalidAssignment(format!("a requirement has no text: {requirement:?}")));
        }
        let of_requirements = assignment.requirements.iter().filter_map(|requirement| requirement.file.as_ref());
        for path in assignment.files.iter().chain(&assignment.paths).chain(of_requirements) {
            if !is_inside(path) {
                return Err(InvalidAssignment(format!("{path:?} is not a path inside of the workspace")));
            }
        }
        Ok(assignment)
    }

    /// Whether the work may change the file with this path.
    pub fn allows(&self, path: &str) -> bool {
        let is_in = |allowed: &String| {
            let allowed = allowed.trim_end_matches('/');
            allowed == "." || path == allowed || path.strip_prefix(allowed).is_some_and(|rest| rest.starts_with('/'))
        };
        self.paths.is_empty() || self.paths.iter().any(is_in)
    }
}

/// Whether a path is relative and has no part that leads upwards.
pub fn is_inside(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let is_sound = |part: &&str| !part.is_empty() && *part != ".." && !part.contains(['\0', '\\']);
    path == "." || (!path.starts_with('/') && parts.iter().all(|part| is_sound(part) && *part != "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_read() {
        let text = "goal = \"a parser\"\ntype = \"python\"\nfiles = [\"src/parser.py\"]\npaths = [\"src/\"]\n\
                    [[requirements]]\ntext = \"has a class\"\nfile = \"src/parser.py\"\ncontains = \"class Parser\"\n";
        let assignment = Assignment::parse(text).unwrap();
        assert_eq!((assignment.kind.as_str(), assignment.requirements.len()), ("python", 1));
        assert!(assignment.allows("src/parser.py") && !assignment.allows("srcx/a") && !assignment.allows("README"));
        assert!(Assignment::default().allows("anything"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |text: &str, part: &str| {
            let error = Assignment::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check("", "goal");
        check("goal = \"x\"\ncolour = 1", "colour");
        check("goal = \"x\"\nfiles = [\"../secret\"]", "../secret");
        check("goal = \"x\"\npaths = [\"/etc\"]", "/etc");
        check("goal = \"x\"\n[[requirements]]\nfile = \"a\"", "no text");
    }

    #[test]
    fn paths_that_lead_out_are_told() {
        let check = |path, inside| assert_eq!(is_inside(path), inside, "{path:?}");
        check("a/b.py", true);
        check("a/", true);
        check(".", true);
        check(".github/x.yml", true);
        check("", false);
        check("/a", false);
        check("a/../b", false);
        check("..", false);
        check("a//b", false);
        check("./a", false);
        check("a\\..\\b", false);
        check("a\0b", false);
    }
}
