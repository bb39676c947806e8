//! The rule about plans: a plan names the files that it is about, in its steps, and those that are not there as new.

use std::collections::BTreeSet;

use hone_protocol::{Category, CriterionResult, EvaluationResult};

use super::{conclude, criterion};
use crate::assignment::is_inside;
use crate::evaluator::{EvaluationContext, Evaluator, WorkspaceFiles};

/// The words that say of a file that the work will make it.
const MAKING: [&str; 11] =
    ["add", "create", "generate", "introduce", "make", "move", "new", "produce", "put", "rename", "write"];
/// The most bytes of an ending that no file has yet.
const LONGEST_ENDING: usize = 5;
/// What ends a path, or stands around it.
const AROUND: &[char] = &['`', '"', '\'', '*', '(', ')', '[', ']', '{', '}', '<', '>', ',', ';', ':', '.', '!', '?'];

/// The plans of a phase hold what they claim.
pub(super) struct PlanHolds;

impl Evaluator for PlanHolds {
    fn name(&self) -> &str {
        "plan"
    }

    fn category(&self) -> Category {
        Category::Correctness
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn evaluate(&self, context: &EvaluationContext<'_>) -> EvaluationResult {
        let texts = context.plans.iter().filter_map(|path| context.workspace.text(path));
        let criteria = texts.flat_map(|text| check(&text, context)).collect();
        conclude(self.name(), self.category(), criteria, "the phase writes no plan", "say in the plan:")
    }
}

fn check(plan: &str, context: &EvaluationContext<'_>) -> Vec<CriterionResult> {
    let known = Known::of(context);
    let (mut named, mut made, mut is_in_step) = (BTreeSet::new(), BTreeSet::new(), false);
    for line in plan.lines() {
        let makes = speaks_of_making(line);
        let paths: Vec<&str> = line.split_whitespace().filter_map(|word| known.path(word, makes)).collect();
        is_in_step |= is_step(line) && !paths.is_empty();
        if makes {
            made.extend(paths.iter().copied());
        }
        named.extend(paths);
    }
    // A file that one line says is new may stand in others.
    let invented = named.difference(&made).filter(|path| !known.is_there_or_asked_for(path));
    let invented: Vec<&str> = invented.copied().collect();
    let mut criteria = vec![
        criterion("names files", !named.is_empty(), "which files the work changes or adds".to_owned()),
        criterion("has steps", is_in_step, "the steps of the work, as a list, with the file of each".to_owned()),
    ];
    criteria.extend(invented.into_iter().map(|path| {
        criterion("files exist", false, format!("whether {path} is a new file: it is not in the workspace"))
    }));
    criteria
}

fn speaks_of_making(line: &str) -> bool {
    let is_making = |word: &str| MAKING.iter().any(|making| word.starts_with(making));
    line.to_lowercase().split_whitespace().any(|word| is_making(word.trim_matches(AROUND)))
}

/// Whether a line is an item of a list, or a numbered heading.
fn is_step(line: &str) -> bool {
    let line = line.trim_start_matches(['#', ' ', '\t']);
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = after_number.len() < line.len() && after_number.starts_with(['.', ')', ':']);
    is_numbered || line.starts_with(['-', '*', '+', '•'])
}

/// What a word of a plan can be.
struct Known<'a> {
    workspace: &'a dyn WorkspaceFiles,
    asked_for: Vec<&'a str>,
    /// The endings of files, with which a word is a path and not a call such as `calc.add`.
    endings: BTreeSet<String>,
    plans: &'a [String],
}

impl<'a> Known<'a> {
    fn of(context: &EvaluationContext<'a>) -> Known<'a> {
        let assignment = context.assignment;
        let shown = assignment.requirements.iter().filter_map(|requirement| requirement.file.as_ref());
        let asked_for: Vec<&str> =
            assignment.files.iter().chain(shown).chain(&assignment.paths).map(String::as_str).collect();
        let paths = context.workspace.paths();
        let paths = paths.iter().map(String::as_str).chain(asked_for.iter().copied());
        let endings = paths.filter_map(ending).map(str::to_owned).collect();
        Known { workspace: context.workspace, asked_for, endings, plans: context.plans }
    }

    /// The path that a word is, if it is one. What is made may have an ending that no file has yet.
    fn path<'w>(&self, word: &'w str, is_made: bool) -> Option<&'w str> {
        let word = word.trim_matches(AROUND).trim_start_matches("./");
        // A place in a file: `src/calc.py:12`.
        let word = word.split(':').next().unwrap_or(word);
        let may_end_in = |ending: &str| self.endings.contains(ending) || (is_made && is_new_ending(ending));
        let is_ended = ending(word).is_some_and(may_end_in);
        let is_path = is_ended && is_inside(word) && !word.contains("//");
        (is_path && !self.plans.iter().any(|plan| plan == word)).then_some(word)
    }

    fn is_there_or_asked_for(&self, path: &str) -> bool {
        let is_named = |whole: &str| whole == path || whole.strip_suffix(path).is_some_and(|rest| rest.ends_with('/'));
        self.workspace.exists(path)
            || self.asked_for.iter().any(|asked| is_named(asked))
            // Without its folder, as people write it.
            || self.workspace.paths().iter().any(|whole| is_named(whole))
    }
}

fn is_new_ending(ending: &str) -> bool {
    ending.len() <= LONGEST_ENDING && ending.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// What comes after the last dot of a file's name, if the name begins before it.
fn ending(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let (stem, ending) = name.rsplit_once('.')?;
    (!stem.is_empty() && !ending.is_empty()).then_some(ending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Assignment;

    struct Files(&'static [(&'static str, &'static str)]);

    impl WorkspaceFiles for Files {
        fn text(&self, path: &str) -> Option<String> {
            self.0.iter().find(|(own, _)| *own == path).map(|(_, text)| (*text).to_owned())
        }

        fn exists(&self, path: &str) -> bool {
            self.text(path).is_some()
        }

        fn paths(&self) -> Vec<String> {
            self.0.iter().map(|(path, _)| (*path).to_owned()).collect()
        }
    }

    #[track_caller]
    fn failures(plan: &'static str, expected: &[&str]) {
        let files = [("src/calc.py", ""), ("README.md", ""), ("plan.md", plan)];
        let plans = ["plan.md".to_owned()];
        let assignment = Assignment { files: vec!["src/report.py".to_owned()], ..Assignment::default() };
        let result = PlanHolds.evaluate(&EvaluationContext {
            phase: "discovery",
            output: "",
            assignment: &assignment,
            workspace: &Files(Box::leak(Box::new(files))),
            changed: None,
            diff: "",
            plans: &plans,
        });
        let failed: Vec<&str> = result.criteria.iter().filter(|it| !it.passed).map(|it| it.message.as_str()).collect();
        assert_eq!(failed, expected, "{plan:?}");
    }

    #[test]
    fn a_plan_names_its_files_in_its_steps_and_those_that_are_new() {
        let no_files = "which files the work changes or adds";
        let no_steps = "the steps of the work, as a list, with the file of each";
        failures("", &[no_files, no_steps]);
        failures("Write it.", &[no_files, no_steps]);
        failures("1. Call calc.add and check e.g. Python 3.11.", &[no_files, no_steps]);
        failures("Change src/calc.py.\n- Then test.", &[no_steps]);
        failures("1. Change `src/calc.py`.\n2. Test it.", &[]);
        failures("## 1. Edit calc.py:12\nand the file that is asked for:\n- src/report.py", &[]);
        failures("- Create main.rs", &[]);
        failures("- Change src/calc.py\n- Create tests/test_calc.py\n- Run tests/test_calc.py.", &[]);
        failures(
            "- Change `src/parser.py` and src/calc.py, see plan.md and http://a/b.md",
            &["whether src/parser.py is a new file: it is not in the workspace"],
        );
    }

    #[test]
    fn a_phase_without_a_plan_is_not_checked() {
        let result = PlanHolds.evaluate(&EvaluationContext {
            phase: "coding",
            output: "",
            assignment: &Assignment::default(),
            workspace: &Files(&[]),
            changed: None,
            diff: "",
            plans: &[],
        });
        assert_eq!(result.score(), None);
    }
}
