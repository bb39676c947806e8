//! The rule about plans: a plan names the files that it concerns, and states which of them are new.

use std::collections::BTreeSet;

use hone_protocol::{Category, CriterionResult};

use super::{Rule, criterion};
use crate::assignment::is_inside;
use crate::evaluator::{EvaluationContext, Plans};

/// Beginnings of words that announce a new file.
const MAKING: [&str; 17] = [
    "add",
    "build",
    "creat",
    "defin",
    "extract",
    "generat",
    "implement",
    "introduc",
    "mak",
    "mov",
    "new",
    "produc",
    "put",
    "renam",
    "set",
    "split",
    "writ",
];
/// Characters that end or surround a path.
const AROUND: &[char] = &['`', '"', '\'', '*', '(', ')', '[', ']', '<', '>', ';', ':', '!', '?'];
/// Characters that do not occur in a plan's paths, but in calls, patterns and placeholders.
const FOREIGN: &[char] = &['*', '{', '}', '(', ')', '[', ']', '<', '>', '='];
/// Extensions of files by which even a bare word is a path. `.js` is not among them: many libraries are called so.
const CODE: [&str; 22] = [
    "c", "cpp", "cs", "css", "go", "h", "html", "java", "json", "kt", "md", "php", "py", "rb", "rs", "sh", "sql",
    "swift", "toml", "ts", "yaml", "yml",
];
/// Maximum bytes of an extension that no file has yet.
const LONGEST_ENDING: usize = 5;
/// The score of a claim that may be false: it counts, but does not block.
const DOUBTFUL: f64 = 0.5;

/// The plans of a phase state which files they concern, and which of them are new.
pub(super) const PLAN_HOLDS: Rule = Rule {
    name: "plan",
    category: Category::Correctness,
    criteria: |context| {
        let Some(plans) = context.plans else { return Vec::new() };
        let known = Known::of(context, plans);
        let texts = plans.files.iter().filter_map(|path| context.workspace.text(path));
        texts.flat_map(|text| check(&text, &known)).collect()
    },
    skipped_because: "the phase writes no plan",
    advice: "say which files are changed or new:",
};

fn check(plan: &str, known: &Known<'_>) -> Vec<CriterionResult> {
    let (mut is_about_files, mut makes_below) = (false, false);
    let (mut made, mut doubtful) = (BTreeSet::new(), BTreeSet::new());
    for line in plan.lines() {
        let makes = speaks_of_making(line);
        // "## New files", with the files below it.
        if line.trim_start().starts_with('#') || line.trim_end().ends_with(':') {
            makes_below = makes;
        }
        let is_made = makes || makes_below;
        for word in words(line).filter(|word| !known.plans.contains(&word.path)) {
            if known.is_there(&word.path) {
                is_about_files = true;
            } else if word.is_file(known, is_made) {
                is_about_files |= is_made;
                let files = if is_made { &mut made } else { &mut doubtful };
                files.insert(word.path);
            }
        }
    }
    doubtful.retain(|path| !made.iter().any(|made| ends_in_path(made, path)));
    let has_files = is_about_files || !doubtful.is_empty();
    let mut criteria = vec![criterion("names files", has_files, "the plan names no file".to_owned())];
    if has_files {
        let has_steps = plan.split_whitespace().any(is_prose);
        criteria.push(criterion("has steps", has_steps, "the plan does not say what to do".to_owned()));
    }
    // A plan that is about missing files alone is about another project.
    let score = if is_about_files { DOUBTFUL } else { 0.0 };
    criteria.extend(doubtful.iter().map(|path| CriterionResult {
        score,
        ..criterion("files exist", false, format!("{path} does not exist, and the plan does not say that it is new"))
    }));
    criteria
}

/// Whether it is a word of a language, and not a path, a number or a mark.
fn is_prose(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.chars().count() > 1 && word.chars().all(char::is_alphabetic)
}

fn speaks_of_making(line: &str) -> bool {
    let is_making = |word: &str| MAKING.iter().any(|making| word.starts_with(making));
    line.to_lowercase().split_whitespace().any(|word| is_making(word.trim_matches(AROUND)))
}

/// A word of a plan.
struct Word {
    /// The possible path.
    path: String,
    /// Whether it is written as a path or as code.
    is_marked: bool,
}

impl Word {
    /// Whether it names a missing file.
    fn is_file(&self, known: &Known<'_>, is_made: bool) -> bool {
        // In unmarked text, the end of "e.g." is not an extension.
        let is_new = |ending: &str| is_new_ending(ending) && (self.is_marked || ending.len() > 1);
        let Some(ending) = ending(&self.path) else { return false };
        let is_code = CODE.contains(&ending);
        let is_ended = is_code || known.endings.contains(ending) || (is_made && is_new(ending));
        is_ended && (self.is_marked || is_made || is_code) && is_inside(&self.path)
    }
}

/// The words of a line that may be paths.
fn words(line: &str) -> impl Iterator<Item = Word> {
    let words = line.split(|c: char| c.is_whitespace() || matches!(c, ',' | '|')).flat_map(|word| word.split("]("));
    words.filter(|word| !word.contains("()") && !word.contains("://")).filter_map(|word| {
        let is_code = word.starts_with(['`', '*', '[', '(']);
        let bare = word.trim_matches(AROUND).trim_end_matches('.').trim_matches(AROUND);
        // A location in a file: `src/calc.py:12`.
        let path = bare.split(':').next().unwrap_or_default().replace('\\', "/");
        let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
        let is_marked = is_code || path.contains('/');
        (!path.is_empty() && !path.contains(FOREIGN)).then_some(Word { path, is_marked })
    })
}

/// The files that a plan may concern.
struct Known<'a> {
    files: BTreeSet<String>,
    /// The known file extensions, by which a word is a path and not a call such as `calc.add`.
    endings: BTreeSet<String>,
    plans: &'a [String],
}

impl<'a> Known<'a> {
    fn of(context: &EvaluationContext<'_>, plans: Plans<'a>) -> Known<'a> {
        let Plans { files, task } = plans;
        let shown = task.requirements.iter().filter_map(|requirement| requirement.file.as_ref());
        let asked_for = task.files.iter().chain(shown).chain(&task.paths).cloned();
        let known = context.workspace.paths().into_iter().chain(asked_for).filter(|path| !files.contains(path));
        let known: BTreeSet<String> = known.collect();
        let endings = known.iter().filter_map(|path| ending(path)).map(str::to_owned).collect();
        Known { files: known, endings, plans: files }
    }

    /// Whether a path is a file or folder of the workspace or the task, possibly without its parent folders.
    fn is_there(&self, path: &str) -> bool {
        let (name, may_be_folder) = (path.trim_end_matches('/'), path.contains('/'));
        let is_in_folder = |whole: &str| whole.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let is_meant = |whole: &String| ends_in_path(whole, name) || (may_be_folder && is_in_folder(whole));
        !name.is_empty() && self.files.iter().any(is_meant)
    }
}

/// Whether a path is `end`, possibly with parent folders.
fn ends_in_path(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|folders| folders.is_empty() || folders.ends_with('/'))
}

fn is_new_ending(ending: &str) -> bool {
    (1..=LONGEST_ENDING).contains(&ending.len()) && ending.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// The extension of a file name, if text precedes its last dot.
fn ending(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let (stem, ending) = name.rsplit_once('.')?;
    (!stem.is_empty() && !ending.is_empty()).then_some(ending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::Assignment;
    use crate::evaluator::{Evaluator, WorkspaceFiles};

    /// Paths, and the plan.
    struct Files(&'static [&'static str], &'static str);

    impl WorkspaceFiles for Files {
        fn text(&self, path: &str) -> Option<String> {
            (path == "plan.md").then(|| self.1.to_owned())
        }

        fn exists(&self, path: &str) -> bool {
            self.0.contains(&path)
        }

        fn paths(&self) -> Vec<String> {
            self.0.iter().map(|path| (*path).to_owned()).chain(["plan.md".to_owned()]).collect()
        }
    }

    const PROJECT: &[&str] =
        &["src/calc.py", "README.md", "Makefile", ".github/workflows/ci.yml", "package.json", "web/app.js"];

    /// The messages about a plan.
    fn found(workspace: &'static [&'static str], plan: &'static str) -> Vec<String> {
        let files = ["plan.md".to_owned()];
        let task = Assignment { files: vec!["src/report.py".to_owned()], ..Assignment::default() };
        let result = PLAN_HOLDS.evaluate(&EvaluationContext {
            phase: "discovery",
            output: "",
            assignment: &Assignment::default(),
            workspace: &Files(workspace, plan),
            changed: None,
            diff: "",
            plans: Some(Plans { files: &files, task: &task }),
        });
        result.criteria.into_iter().filter(|it| !it.passed).map(|it| it.message).collect()
    }

    #[test]
    fn a_plan_that_names_no_file_is_found() {
        let vague = [
            "",
            "Write it.",
            "1. Call calc.add(), e.g. with Python 3.11.",
            "- Use Vue.js, see plan.md, and response.json()",
        ];
        for plan in vague {
            assert_eq!(found(PROJECT, plan), ["the plan names no file"], "{plan:?}");
        }
    }

    #[test]
    fn a_file_that_does_not_exist_must_be_said_to_be_new() {
        let expected = "src/parser.py does not exist, and the plan does not say that it is new";
        assert_eq!(
            found(PROJECT, "- Change `lib/calc.py`"),
            ["lib/calc.py does not exist, and the plan does not say that it is new"]
        );
        let of_other = "nosuch.py does not exist, and the plan does not say that it is new";
        assert_eq!(found(&["README.md"], "Edit nosuch.py."), [of_other]);
        assert_eq!(found(PROJECT, "src/calc.py"), ["the plan does not say what to do"]);
        for plan in ["- Change `src/parser.py` and src/calc.py.", "1. Edit [src/parser.py](src/parser.py:3)"] {
            assert_eq!(found(PROJECT, plan), [expected], "{plan:?}");
        }
    }

    #[test]
    fn plans_as_models_write_them_hold() {
        let plans = [
            "1. Change `src/calc.py`.\n2. Test it.",
            "### Step 1: Edit ./src/calc.py:12\n- handle zero",
            "| file | change |\n| --- | --- |\n| **calc.py** | handle zero |",
            "Edit src\\calc.py and report.py, then run `make test`.",
            "- Makefile: a target for tests\n- .github/workflows/ci.yml runs it",
            "Follow `plan.md`:\n- Change src/calc.py",
            "- Change src/calc.py\n- Create tests/test_calc.py\n- Run test_calc.py with tests/*.py",
            "## New files:\n- src/parser.py\n\n## Changed files\n- src/calc.py",
            "Everything is in `src/`, see http://a.example/docs/index.md.",
        ];
        for plan in plans {
            assert_eq!(found(PROJECT, plan), [""; 0], "{plan:?}");
        }
        for plan in ["1. Create `main.rs` and `Cargo.toml`.", "Write main.py, and test it."] {
            assert_eq!(found(&[], plan), [""; 0], "a new project");
        }
    }

    #[test]
    fn a_phase_without_a_plan_is_not_checked() {
        let result = PLAN_HOLDS.evaluate(&EvaluationContext {
            phase: "coding",
            output: "",
            assignment: &Assignment::default(),
            workspace: &Files(&[], ""),
            changed: None,
            diff: "",
            plans: None,
        });
        assert_eq!(result.score(), None);
    }
}
