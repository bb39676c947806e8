//! What earlier tasks in a workspace taught: `.hone/learned.md` in it, a line for each lesson, which a person can edit and the
//! models of the next task are shown.

use std::io;
use std::path::Path;

use hone_protocol::GateAction;

use super::delivery::write;
use super::record::{TaskRecord, WorkAttempt};
use crate::WorkspaceFiles;
use crate::evaluating::DirectoryFiles;

/// The file in a workspace.
pub const LEARNED: &str = ".hone/learned.md";
const HEAD: &str = "# What earlier tasks taught\n\nhone adds to this list what attempts got wrong at first, and what people said. \
                    Models that work here are shown it: change it as you like.\n\n";
/// The most lessons that are kept; the oldest go first.
const MOST_LESSONS: usize = 40;
/// The most findings of a task that become lessons.
const MOST_OF_A_TASK: usize = 5;
/// The most characters of a lesson.
const LONGEST_LESSON: usize = 240;

/// The lessons of a workspace, the oldest first.
pub(super) fn lessons(workspace: &Path) -> Vec<String> {
    let text = DirectoryFiles::new(workspace).text(LEARNED).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// Keeps what a task has taught, once it is accepted or waits for a person.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn learn(record: &TaskRecord) -> io::Result<()> {
    let known = lessons(&record.workspace);
    let new: Vec<String> = lessons_of(record).into_iter().filter(|lesson| !known.contains(lesson)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let all: Vec<&String> = known.iter().chain(&new).collect();
    let kept = &all[all.len().saturating_sub(MOST_LESSONS)..];
    let lines: String = kept.iter().map(|lesson| format!("- {lesson}\n")).collect();
    write(&record.workspace, LEARNED, format!("{HEAD}{lines}").as_bytes(), &record.workspace)
}

/// What people said, and what the evaluators found about attempts that were not accepted, each once.
fn lessons_of(record: &TaskRecord) -> Vec<String> {
    let is_refused = |attempt: &&WorkAttempt| {
        let action = attempt.decision.as_ref().map(|decision| decision.action);
        action.is_some_and(|action| action != GateAction::Accept)
    };
    let mut lessons: Vec<String> = record.notes.iter().map(|note| lesson(note)).collect();
    for attempt in record.attempts.iter().filter(is_refused) {
        let failed = attempt.results.iter().filter(|result| result.deterministic && result.is_failed());
        for suggestion in failed.flat_map(|result| &result.suggestions).take(MOST_OF_A_TASK) {
            let found = lesson(&format!("{}: {suggestion}", attempt.phase));
            if !lessons.contains(&found) && lessons.len() < record.notes.len() + MOST_OF_A_TASK {
                lessons.push(found);
            }
        }
    }
    lessons
}

fn lesson(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(LONGEST_LESSON).collect()
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Category, EvaluationStatus};

    use super::*;
    use crate::evaluator::bare_result;
    use crate::tasks::{TaskState, outcome_tests};

    #[test]
    fn what_was_refused_is_kept_once_and_can_be_edited() {
        let folder = tempfile::tempdir().unwrap();
        let attempt = |action| outcome_tests::attempt("coding", "a", action);
        let attempts = vec![attempt(GateAction::Retry), attempt(GateAction::Accept)];
        let mut task = outcome_tests::record(TaskState::Accepted, attempts);
        task.workspace = folder.path().to_owned();
        let failed = EvaluationStatus::Failed { score: 0.0 };
        let mut result = bare_result("ruff", Category::Compliance, failed, "1 error".to_owned());
        result.suggestions = vec!["fix a.py:1:  unused\nimport".to_owned()];
        task.attempts[0].results = vec![result.clone()];
        task.attempts[1].results = vec![result];
        learn(&task).unwrap();
        learn(&task).unwrap();
        assert_eq!(lessons(folder.path()), ["coding: fix a.py:1: unused import"]);
        let path = folder.path().join(LEARNED);
        std::fs::write(&path, "- Use tabs\nno lesson\n").unwrap();
        task.notes = vec!["Keep the old function".to_owned()];
        learn(&task).unwrap();
        assert_eq!(lessons(folder.path()), ["Use tabs", "Keep the old function", "coding: fix a.py:1: unused import"]);
    }

    #[test]
    fn the_oldest_lessons_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut task = outcome_tests::record(TaskState::Waiting, Vec::new());
        task.workspace = folder.path().to_owned();
        task.notes = (0..MOST_LESSONS + 2).map(|number| format!("note {number}")).collect();
        learn(&task).unwrap();
        let kept = lessons(folder.path());
        assert_eq!((kept.len(), kept[0].as_str()), (MOST_LESSONS, "note 2"));
    }
}
