//! Lessons from earlier tasks in a workspace: `.hone/learned.md`, one line for each lesson. A person can edit the file,
//! and the models of later tasks are shown it.

use std::io;
use std::path::Path;

use hone_protocol::GateAction;

use super::delivery::write;
use super::record::{TaskRecord, WorkAttempt};
use crate::WorkspaceFiles;
use crate::evaluating::DirectoryFiles;

/// The path of the file in a workspace.
pub const LEARNED: &str = ".hone/learned.md";
const HEAD: &str = "# What earlier tasks taught\n\nhone adds to this list what attempts got wrong at first, and what people said. \
                    Models that work here are shown it: change it as you like.\n\n";
/// Maximum number of lessons; the oldest are dropped first.
const MOST_LESSONS: usize = 40;
/// Maximum number of findings of a task that become lessons.
const MOST_OF_A_TASK: usize = 5;
/// Maximum characters of a lesson.
const LONGEST_LESSON: usize = 240;

/// The lessons of a workspace, the oldest first.
pub(super) fn lessons(workspace: &Path) -> Vec<String> {
    let text = DirectoryFiles::new(workspace).text(LEARNED).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// Adds the mistakes of attempts since the last time, and a person's note, to the file. Other contents of the file are
/// kept; the oldest lessons are dropped first.
///
/// # Errors
/// When the file cannot be read or written.
fn learn(record: &mut TaskRecord, note: Option<&str>) -> io::Result<()> {
    let files = DirectoryFiles::new(&record.workspace);
    let text = match files.text(LEARNED) {
        Some(text) => text,
        None if files.exists(LEARNED) => return Err(io::Error::other("it is no text that can be read")),
        None => HEAD.to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for lesson in lessons_of(record, note) {
        let line = format!("- {lesson}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let n_lessons = lines.iter().filter(|line| line.starts_with("- ")).count();
    let mut n_dropped = n_lessons.saturating_sub(MOST_LESSONS);
    lines.retain(|line| {
        let is_dropped = n_dropped > 0 && line.starts_with("- ");
        n_dropped -= usize::from(is_dropped);
        !is_dropped
    });
    record.learned = record.attempts.len();
    let new = format!("{}\n", lines.join("\n"));
    if n_lessons == 0 || new == text {
        Ok(())
    } else {
        write(&record.workspace, LEARNED, new.as_bytes(), &record.workspace)
    }
}

/// Learns from the task. An error is only logged, since it must not affect the task.
pub(super) fn keep_lessons(record: &mut TaskRecord, note: Option<&str>) {
    if let Err(error) = learn(record, note) {
        tracing::warn!(
            "nothing is learned from task {}: {LEARNED} in {}: {error}",
            record.id,
            record.workspace.display()
        );
    }
}

/// The note, and the evaluators' findings about new attempts that were not accepted, without duplicates.
fn lessons_of(record: &TaskRecord, note: Option<&str>) -> Vec<String> {
    let is_refused = |attempt: &&WorkAttempt| {
        let action = attempt.decision.as_ref().map(|decision| decision.action);
        action.is_some_and(|action| action != GateAction::Accept)
    };
    let mut lessons: Vec<String> = Vec::new();
    for attempt in record.attempts.iter().skip(record.learned).filter(is_refused) {
        let failed = attempt.results.iter().filter(|result| result.deterministic && result.is_failed());
        for suggestion in failed.flat_map(|result| &result.suggestions) {
            let found = lesson(&format!("{}: {suggestion}", attempt.phase));
            if !lessons.contains(&found) && lessons.len() < MOST_OF_A_TASK {
                lessons.push(found);
            }
        }
    }
    lessons.extend(note.map(lesson));
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
        learn(&mut task, None).unwrap();
        learn(&mut task, None).unwrap();
        assert_eq!(lessons(folder.path()), ["coding: fix a.py:1: unused import"]);
        let path = folder.path().join(LEARNED);
        std::fs::write(&path, "# Ours\n\n- Use tabs\nThat is all.\n").unwrap();
        learn(&mut task, Some("Keep the old\nfunction")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "# Ours\n\n- Use tabs\nThat is all.\n- Keep the old function\n", "what was deleted stays so");
    }

    #[test]
    fn the_oldest_lessons_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut task = outcome_tests::record(TaskState::Waiting, Vec::new());
        task.workspace = folder.path().to_owned();
        for number in 0..MOST_LESSONS + 2 {
            learn(&mut task, Some(&format!("note {number}"))).unwrap();
        }
        let kept = lessons(folder.path());
        assert_eq!((kept.len(), kept[0].as_str()), (MOST_LESSONS, "note 2"));
    }
}
