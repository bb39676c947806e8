//! The phases of a task: `phases.toml`.

use serde::Deserialize;

use hone_judging::fill;

use crate::assignment::Assignment;

/// The compiled-in phases.
const SHIPPED: &str = include_str!("../../../config/phases.toml");

/// A phase of a task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPhase {
    /// Its name.
    pub name: String,
    /// The agent's prompt, with places for the goal, the requirements and the paths.
    pub prompt: String,
    /// Files that it must produce, in addition to those of the task.
    pub files: Vec<String>,
    /// Whether it checks the files and requirements of the task.
    pub checks_task: bool,
    /// Whether the work is evaluated before the agent is asked.
    pub evaluates_first: bool,
    /// Whether the files of `files` are part of the result.
    pub delivers: bool,
    /// Maximum tokens of an answer.
    pub max_tokens: usize,
    /// The number of answers that the agent gives to each prompt, of which the best is taken.
    #[serde(default = "one")]
    pub candidates: usize,
    /// Maximum number of times that the agent may look at files or run the tests before it answers, if its model
    /// supports tools.
    #[serde(default)]
    pub tool_calls: usize,
}

/// Maximum number of candidates.
const MOST_CANDIDATES: usize = 16;

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhasesFile {
    phases: Vec<TaskPhase>,
}

impl TaskPhase {
    /// The first phase of a task that is not among the configured ones.
    pub fn missing<'a>(configured: &[TaskPhase], assignment: &'a Assignment) -> Option<&'a str> {
        let is_missing = |name: &&String| !configured.iter().any(|phase| phase.name == **name);
        assignment.phases.iter().find(is_missing).map(String::as_str)
    }

    /// The phases in `table`, or the compiled-in ones if it is empty.
    ///
    /// # Errors
    /// When the phases are invalid; describes the error.
    pub fn all(table: toml::Table) -> Result<Vec<TaskPhase>, String> {
        let read = |file: Result<PhasesFile, toml::de::Error>| file.map_err(|error| error.message().to_owned());
        let phases = match table.is_empty() {
            true => read(toml::from_str(SHIPPED))?.phases,
            false => read(table.try_into())?.phases,
        };
        if phases.is_empty() {
            return Err("there are no phases".to_owned());
        }
        for (index, phase) in phases.iter().enumerate() {
            if phase.name.is_empty() || phases[..index].iter().any(|other| other.name == phase.name) {
                return Err(format!("the name {:?} is empty or stands twice", phase.name));
            }
            if phase.max_tokens == 0 {
                return Err(format!("max_tokens of {} is 0", phase.name));
            }
            if !(1..=MOST_CANDIDATES).contains(&phase.candidates) {
                let (name, n) = (&phase.name, phase.candidates);
                return Err(format!("candidates of {name} is {n}: it must be 1 to {MOST_CANDIDATES}"));
            }
        }
        Ok(phases)
    }

    /// The agent's prompt.
    pub(crate) fn prompt_for(&self, assignment: &Assignment) -> String {
        let requirements = list("Requirements", assignment.requirements.iter().map(|one| one.text.as_str()));
        let paths = list("Change only", assignment.paths.iter().map(String::as_str));
        let values =
            [("goal", assignment.goal.trim()), ("requirements", requirements.as_str()), ("paths", paths.as_str())];
        fill(self.prompt.trim(), &values)
    }

    /// The part of the task that this phase is evaluated against.
    pub(crate) fn assignment_of(&self, task: &Assignment) -> Assignment {
        let mut own = task.clone();
        if !self.checks_task {
            (own.files, own.requirements) = (Vec::new(), Vec::new());
        }
        own.files.extend(self.files.iter().cloned());
        if !own.paths.is_empty() {
            own.paths.extend(self.files.iter().cloned());
        }
        own
    }
}

fn list<'a>(title: &str, items: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<String> = items.map(|item| format!("- {item}\n")).collect();
    if lines.is_empty() { String::new() } else { format!("{title}:\n{}", lines.concat()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_phases_are_valid() {
        let phases = TaskPhase::all(toml::Table::new()).unwrap();
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["discovery", "coding", "verification"]);
        let task = Assignment::parse("goal = \"add\"\nfiles = [\"a.py\"]\npaths = [\"a.py\"]").unwrap();
        assert!(phases[1].prompt_for(&task).contains("Goal: add\nChange only:\n- a.py"));
        let planned = phases[0].assignment_of(&task);
        assert_eq!((planned.files, planned.paths.len()), (vec!["implementation_plan.md".to_owned()], 2));
        assert_eq!(phases[1].assignment_of(&task).files, ["a.py"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in
            [("phases = []", "no phases"), ("colour = 1", "colour"), ("[[phases]]\nname = \"a\"", "missing")]
        {
            let error = TaskPhase::all(text.parse().unwrap()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let none = SHIPPED.replacen("files = []", "files = []\ncandidates = 0", 1);
        let error = TaskPhase::all(none.parse().unwrap()).unwrap_err();
        assert!(error.contains("candidates of coding is 0"), "{error}");
    }
}
