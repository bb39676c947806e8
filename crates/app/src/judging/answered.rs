//! A file of JSON objects, each of which is answered: the output has each line of the input with the keys of its answer
//! added, in the order of the input. So the output of an interrupted run shows where the next one resumes.

use std::path::Path;

use anyhow::Context;
use hone_protocol::hexadecimal;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::lines::{self, JsonLine, VerdictFile, Written, is_pipe};
use super::setting::{SETTING, SHOWN_BYTES};
use crate::progress::Activity;
use crate::usage;

/// The advice for an output that cannot be resumed.
const ADVICE: &str = "give --output another file, or remove this one";

/// The lines of a file that have no answer yet.
pub struct UnansweredLines<T> {
    lines: Vec<JsonLine>,
    tasks: Vec<T>,
    /// `None` prints the answers.
    output: Option<VerdictFile>,
    n_resumed: usize,
    setting: String,
    /// The name of the input.
    input: String,
}

/// The summary of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AnsweredLines {
    /// Lines of the input.
    pub lines: usize,
    /// Lines with an answer.
    pub answered: usize,
    /// Lines that were answered before.
    pub resumed: usize,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

impl<T> UnansweredLines<T> {
    /// Reads the input and the answers that the output has already. `keys` are the keys of an answer, and `setting` is
    /// everything that answers depend on besides their lines.
    ///
    /// # Errors
    /// When a file cannot be used, a line of the input is not as `read` wants it, or a line of the output does not
    /// belong to this input or this setting.
    pub fn open(
        input: &Path,
        output: &Path,
        keys: &[&str],
        setting: &Value,
        read: impl Fn(&Map<String, Value>) -> Result<T, String>,
    ) -> anyhow::Result<UnansweredLines<T>> {
        let lines = lines::read(input)?;
        let task = |line: &JsonLine| {
            let wrong = |what: String| usage(format!("line {} of {} {what}", line.number, lines::name(input)));
            let is_own = |key: &&String| *key == SETTING || keys.contains(&key.as_str());
            if let Some(taken) = line.object.keys().find(is_own) {
                return Err(wrong(format!(
                    "has a key {taken:?}, which the answer is written to: give it another name"
                )));
            }
            read(&line.object).map_err(wrong)
        };
        let tasks = lines.iter().map(task).collect::<Result<Vec<T>, _>>()?;
        let setting = hexadecimal(&Sha256::digest(setting.to_string())[..SHOWN_BYTES]);
        let mut unanswered =
            UnansweredLines { lines, tasks, output: None, n_resumed: 0, setting, input: lines::name(input) };
        if !is_pipe(output) {
            lines::refuse_same_file(input, output)?;
            let mut file = VerdictFile::open(output)?;
            let written = file.read()?;
            unanswered.n_resumed = unanswered.check(&written, keys, output)?;
            file.resume(&written)?;
            unanswered.output = Some(file);
        }
        Ok(unanswered)
    }

    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.n_resumed == self.lines.len()
    }

    /// Checks that the lines of the output belong to the input, and returns their number.
    fn check(&self, written: &Written, keys: &[&str], output: &Path) -> anyhow::Result<usize> {
        let refused =
            |number: usize, what: &str| Err(usage(format!("line {number} of {} {what}: {ADVICE}", output.display())));
        for (place, line) in written.lines.iter().enumerate() {
            let mut object = line.object.clone();
            keys.iter().for_each(|key| drop(object.remove(*key)));
            let setting = object.remove(SETTING);
            if self.lines.get(place).is_none_or(|known| known.object != object) {
                return refused(line.number, "does not belong to the input");
            }
            if setting.as_ref().and_then(Value::as_str) != Some(&self.setting) {
                return refused(
                    line.number,
                    "was answered by another model, asked something else, or answered before the model was examined",
                );
            }
        }
        let n_lines = written.lines.len();
        let is_ours = |line: &JsonLine| is_beginning_of(&written.tail, &line.object);
        match written.tail.is_empty() || self.lines.get(n_lines).is_some_and(is_ours) {
            true => Ok(n_lines),
            false => refused(written.tail_number, "does not belong to the input"),
        }
    }

    /// Answers the lines, `n_at_once` at a time, until `answer` returns `None` because the user stopped it. Without an
    /// output, answered lines are printed.
    ///
    /// # Errors
    /// When a line cannot be answered, or an answer cannot be written.
    pub fn answer(
        mut self,
        n_at_once: usize,
        activity: &dyn Activity,
        mut answer: impl FnMut(&[T]) -> anyhow::Result<Option<Vec<anyhow::Result<Map<String, Value>>>>>,
        mut print: impl FnMut(&Map<String, Value>) -> anyhow::Result<()>,
    ) -> anyhow::Result<AnsweredLines> {
        let (n_lines, n_resumed) = (self.lines.len(), self.n_resumed);
        let mut summary = AnsweredLines { lines: n_lines, answered: n_resumed, resumed: n_resumed, interrupted: false };
        activity.advance(n_resumed, n_lines, "");
        while summary.answered < n_lines {
            let batch = summary.answered..n_lines.min(summary.answered + n_at_once.max(1));
            let Some(answers) = answer(&self.tasks[batch.clone()])? else {
                summary.interrupted = true;
                break;
            };
            for (line, fields) in self.lines[batch].iter().zip(answers) {
                let fields = fields.with_context(|| format!("line {} of {} has no answer", line.number, self.input))?;
                let mut object = line.object.clone();
                object.extend(fields);
                object.insert(SETTING.to_owned(), Value::from(self.setting.as_str()));
                match &mut self.output {
                    Some(file) => file.add(&object)?,
                    None => print(&object)?,
                }
                summary.answered += 1;
            }
            activity.advance(summary.answered, n_lines, "");
        }
        self.output.map_or(Ok(()), VerdictFile::finish)?;
        Ok(summary)
    }
}

/// Whether `text` is the truncated line of this object, as far as can be told before it is answered.
fn is_beginning_of(text: &[u8], object: &Map<String, Value>) -> bool {
    let mut known = serde_json::to_vec(object).unwrap_or_default();
    known.pop();
    text.starts_with(&known) || known.starts_with(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::progress::Silent;

    /// Answers a file's numbers with their squares, at most `most` of them.
    fn squares(folder: &Path, most: usize, setting: &str) -> anyhow::Result<AnsweredLines> {
        let number = |object: &Map<String, Value>| object["n"].as_u64().ok_or_else(|| "has no number".to_owned());
        let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
        let lines = UnansweredLines::open(&input, &output, &["square"], &json!(setting), number)?;
        let mut n_done = 0;
        let answer = |numbers: &[u64]| {
            n_done += numbers.len();
            let square = |number: &u64| Map::from_iter([("square".to_owned(), json!(number * number))]);
            Ok((n_done <= most).then(|| numbers.iter().map(|number| Ok(square(number))).collect()))
        };
        lines.answer(2, &Silent, answer, |_| Ok(()))
    }

    #[test]
    fn a_run_that_was_interrupted_is_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.jsonl");
        std::fs::write(folder.path().join("in.jsonl"), "{\"n\":1}\n\n{\"n\":2,\"x\":0}\n{\"n\":3}\n").unwrap();
        let first = squares(folder.path(), 2, "one").unwrap();
        assert!(first.interrupted && (first.answered, first.resumed) == (2, 0));
        let whole = std::fs::read_to_string(&output).unwrap();
        std::fs::write(&output, format!("{whole}{{\"n\":3,\"squ")).unwrap();
        let second = squares(folder.path(), 9, "one").unwrap();
        assert!(!second.interrupted && (second.answered, second.resumed) == (3, 2));
        let lines: Vec<Value> =
            std::fs::read_to_string(&output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[1]["x"], 0);
        assert_eq!(lines.iter().map(|line| line["square"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4, 9]);
    }

    #[test]
    fn what_is_of_another_run_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
        let check = |from: &str, to: &str, expected: &str| {
            std::fs::write(&input, from).unwrap();
            std::fs::write(&output, to).unwrap();
            let error = squares(folder.path(), 9, "one").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(std::fs::read_to_string(&output).unwrap(), to);
        };
        check("{\"n\":1}", "{\"n\":2}\n", "line 1 of");
        check("{\"n\":1}", "{\"n\":1,\"square\":1}\n", "another model");
        check("{\"n\":1}", "{\"n\":1}\n{\"n\":1}", "another model");
        check("{\"n\":1}", "{\"m\"", "does not belong");
        check("{\"n\":1,\"square\":2}", "", "has a key \"square\"");
        check("{\"n\":\"a\"}", "", "line 1 of");
    }
}
