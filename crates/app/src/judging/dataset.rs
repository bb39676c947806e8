//! A judged data set: answers with the scores that people or a reference judge gave them, and pairs of answers with the
//! better one. Lines are recognized by their fields; every known format is a row of `formats`.

mod formats;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::Context;
use hone_files::without_mark;
use hone_judging::{CompareTask, GradeTask, OwnRubric, QuestionSet};
use hone_protocol::RespondentId;
use serde_json::{Map, Value};

use super::lines;
use crate::usage;

/// An answer with its reference score.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredAnswer {
    /// The number of its question within the set.
    pub question: usize,
    /// The judge's task.
    pub task: OwnRubric<GradeTask>,
    /// The reference score.
    pub reference: f64,
}

/// Two answers with the reference winner.
#[derive(Clone, Debug, PartialEq)]
pub struct DecidedPair {
    /// The number of its question within the set.
    pub question: usize,
    /// The judge's task.
    pub task: OwnRubric<CompareTask>,
    /// The better answer; `None` for a tie.
    pub reference: Option<RespondentId>,
}

/// Judged answers.
#[derive(Debug)]
pub struct DataSet {
    /// The path of its file, or a description.
    pub name: String,
    /// The names of the formats that its lines have.
    pub formats: BTreeSet<&'static str>,
    /// Answers with their scores.
    pub answers: Vec<ScoredAnswer>,
    /// Pairs of answers.
    pub pairs: Vec<DecidedPair>,
}

/// The contents of a line.
#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Answer(OwnRubric<GradeTask>, f64),
    Pair(OwnRubric<CompareTask>, Option<RespondentId>),
}

impl DataSet {
    /// Reads a file with a JSON object per line, or with a JSON array of objects.
    ///
    /// # Errors
    /// When it cannot be read, holds nothing, or a line has no known format.
    pub fn read(path: &Path) -> anyhow::Result<DataSet> {
        let mut set = DataSet::new(path.display().to_string());
        let mut questions: HashMap<String, usize> = HashMap::new();
        for (place, object) in objects(path)? {
            let (format, entry) =
                formats::read(&object).map_err(|wrong| usage(format!("{place} of {} {wrong}", path.display())))?;
            let text = match &entry {
                Entry::Answer(task, _) => &task.task.query,
                Entry::Pair(task, _) => &task.task.query,
            };
            let n_before = questions.len();
            let question = *questions.entry(text.clone()).or_insert(n_before);
            set.formats.insert(format);
            match entry {
                Entry::Answer(task, reference) => set.answers.push(ScoredAnswer { question, task, reference }),
                Entry::Pair(task, reference) => set.pairs.push(DecidedPair { question, task, reference }),
            }
        }
        match set.n_verdicts() {
            0 => Err(usage(format!("{} is empty", path.display()))),
            _ => Ok(set),
        }
    }

    /// The questions of the examination, whose good, mediocre and bad answers stand for the scores 5, 3 and 1.
    pub fn examination() -> DataSet {
        let mut set = DataSet::new("hone's examination".to_owned());
        for (question, asked) in QuestionSet::shipped().questions.iter().enumerate() {
            let scored =
                |(task, reference)| ScoredAnswer { question, task: OwnRubric { task, rubric: None }, reference };
            set.answers.extend(asked.grade_tasks().into_iter().zip([5.0, 3.0, 1.0]).map(scored));
        }
        set
    }

    fn new(name: String) -> DataSet {
        DataSet { name, formats: BTreeSet::new(), answers: Vec::new(), pairs: Vec::new() }
    }

    /// The number of verdicts that it takes to judge it.
    pub fn n_verdicts(&self) -> usize {
        self.answers.len() + self.pairs.len()
    }
}

/// The objects of a file, each with its place.
fn objects(path: &Path) -> anyhow::Result<Vec<(String, Map<String, Value>)>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = without_mark(&text);
    if !text.trim_ascii_start().starts_with(b"[") {
        let lines = lines::read(path)?;
        return Ok(lines.into_iter().map(|line| (format!("line {}", line.number), line.object)).collect());
    }
    let objects: Vec<Map<String, Value>> = serde_json::from_slice(text)
        .map_err(|error| usage(format!("{} is not a JSON array of objects: {error}", path.display())))?;
    Ok((1..).zip(objects).map(|(number, object)| (format!("item {number}"), object)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<DataSet, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.jsonl");
        fs::write(&path, text).unwrap();
        DataSet::read(&path).map_err(|error| error.to_string().replace(folder.path().to_str().unwrap(), "~"))
    }

    #[test]
    fn lines_and_arrays_are_read_alike() {
        let [first, second] = [
            r#"{"question": "Q", "answer": "A", "score": 4}"#,
            r#"{"question": "Q", "a": "A", "b": "B", "winner": "tie"}"#,
        ];
        for text in [format!("{first}\n\n{second}\n"), format!(" [{first},\n {second}]")] {
            let set = read(&text).unwrap();
            assert_eq!((set.answers.len(), set.pairs.len()), (1, 1));
            assert_eq!((set.answers[0].question, set.pairs[0].question), (0, 0), "it is the same question");
            assert_eq!(set.pairs[0].reference, None);
        }
    }

    #[test]
    fn the_examination_is_a_set_as_well() {
        let set = DataSet::examination();
        assert_eq!((set.n_verdicts(), set.answers.len(), set.pairs.len()), (180, 180, 0));
        let references: Vec<f64> = set.answers.iter().take(4).map(|answer| answer.reference).collect();
        assert_eq!((references, set.answers[179].question), (vec![5.0, 3.0, 1.0, 5.0], 59));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let error =
            read("{\"question\": \"Q\", \"answer\": \"A\", \"score\": 4}\n{\"question\": \"Q\", \"answer\": \"A\"}");
        assert_eq!(error.unwrap_err(), "line 2 of ~/set.jsonl lacks \"score\", which an answer with a score has");
        let error = read("[{\"input\": \"Q\", \"output_1\": \"A\"}]").unwrap_err();
        assert_eq!(error, "item 1 of ~/set.jsonl lacks \"output_2\" and \"label\", which a pair of LLMBar has");
        assert_eq!(read("\n").unwrap_err(), "~/set.jsonl is empty");
        assert!(read("[1]").unwrap_err().starts_with("~/set.jsonl is not a JSON array of objects: "));
        assert!(read("{").unwrap_err().starts_with("line 1 of ~/set.jsonl is not a JSON object: "));
    }
}
