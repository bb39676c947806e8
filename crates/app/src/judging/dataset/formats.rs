//! The formats in which judged data sets come, a row each.

use hone_judging::{CompareTask, GradeTask, OwnRubric, Rubric};
use hone_protocol::RespondentId;
use serde_json::{Map, Value};

use super::Entry;

/// The alternative names of one field.
type Names = &'static [&'static str];

/// A format and its fields.
struct Format {
    /// The name of its lines.
    name: &'static str,
    question: Names,
    verdict: Verdict,
}

/// A human verdict.
enum Verdict {
    /// The score of an answer.
    Score { answer: Names, score: Names, reference: Names },
    /// The better one of two answers, by its name.
    Winner { a: Names, b: Names, winner: Names },
    /// The better and the worse answer.
    Chosen { better: Names, worse: Names },
    /// The better one of two conversations with the same questions; `turn` says after which answers.
    Conversation { a: Names, b: Names, winner: Names, turn: Names },
}

/// The known formats. If a line could have several, the first counts.
const FORMATS: [Format; 8] = [
    // https://huggingface.co/datasets/prometheus-eval/Feedback-Bench
    Format {
        name: "an answer of prometheus-eval's Feedback-Bench",
        question: &["orig_instruction"],
        verdict: Verdict::Score {
            answer: &["orig_response"],
            score: &["orig_score"],
            reference: &["orig_reference_answer"],
        },
    },
    // https://huggingface.co/datasets/prometheus-eval/Preference-Bench
    Format {
        name: "a pair of prometheus-eval's Preference-Bench",
        question: &["orig_instruction"],
        verdict: Verdict::Winner { a: &["orig_response_A"], b: &["orig_response_B"], winner: &["orig_preference"] },
    },
    // https://huggingface.co/datasets/allenai/reward-bench, its second version, which has lists of answers, and the sets
    // that have whole conversations in place of answers, such as UltraFeedback
    Format {
        name: "a pair of RewardBench",
        question: &["prompt"],
        verdict: Verdict::Chosen { better: &["chosen"], worse: &["rejected"] },
    },
    // https://github.com/ScalerLab/JudgeBench
    Format {
        name: "a pair of JudgeBench",
        question: &["question"],
        verdict: Verdict::Winner { a: &["response_A"], b: &["response_B"], winner: &["label"] },
    },
    // https://huggingface.co/datasets/lmsys/mt_bench_human_judgments
    Format {
        name: "a pair of MT-bench",
        question: &["conversation_a"],
        verdict: Verdict::Conversation {
            a: &["conversation_a"],
            b: &["conversation_b"],
            winner: &["winner"],
            turn: &["turn"],
        },
    },
    // https://github.com/princeton-nlp/LLMBar
    Format {
        name: "a pair of LLMBar",
        question: &["input"],
        verdict: Verdict::Winner { a: &["output_1"], b: &["output_2"], winner: &["label"] },
    },
    Format {
        name: "an answer with a score",
        question: &["question", "query"],
        verdict: Verdict::Score { answer: &["answer"], score: &["score", "human_score"], reference: &["reference"] },
    },
    Format {
        name: "a pair with a winner",
        question: &["question", "query"],
        verdict: Verdict::Winner { a: &["a", "answer_a"], b: &["b", "answer_b"], winner: &["winner"] },
    },
];

/// The formats' names for the first answer, the second one, and neither, in lower case.
const WINNERS: [(Option<RespondentId>, Names); 3] = [
    (Some(RespondentId::A), &["a", "a>b", "model_a", "1"]),
    (Some(RespondentId::B), &["b", "b>a", "model_b", "2"]),
    (None, &["tie", "a=b", "tie (bothbad)"]),
];

/// The name of a line's format, and its contents.
///
/// # Errors
/// The missing fields, or the problem, phrased to follow the line's place.
pub(super) fn read(object: &Map<String, Value>) -> Result<(&'static str, Entry), String> {
    let line = DataLine(object);
    let n_missing = |format: &&Format| line.missing(format).len();
    let n_found = |format: &&Format| format.needed().len() - line.missing(format).len();
    if let Some(format) = FORMATS.iter().find(|format| n_missing(format) == 0) {
        return Ok((format.name, line.entry(format)?));
    }
    // `max_by_key` returns the last of several maxima.
    let nearest = FORMATS.iter().rev().max_by_key(|format| (n_found(format), std::cmp::Reverse(n_missing(format))));
    match nearest.filter(|format| n_found(format) > 0) {
        Some(format) => {
            let missing: Vec<String> = line.missing(format).iter().map(|names| format!("{:?}", names[0])).collect();
            Err(format!("lacks {}, which {} has", missing.join(" and "), format.name))
        }
        None => {
            let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            Err(format!("has no known format: it could be {}", names.join(", or ")))
        }
    }
}

impl Format {
    /// The fields that every line needs.
    fn needed(&self) -> Vec<Names> {
        let mut needed = vec![self.question];
        match &self.verdict {
            Verdict::Score { answer, score, .. } => needed.extend([answer, score]),
            Verdict::Winner { a, b, winner } => needed.extend([a, b, winner]),
            Verdict::Chosen { better, worse } => needed.extend([better, worse]),
            Verdict::Conversation { a, b, winner, turn } => {
                needed = vec![a, b, winner, turn];
            }
        }
        needed
    }
}

/// A line of a data set.
struct DataLine<'a>(&'a Map<String, Value>);

impl DataLine<'_> {
    fn entry(&self, format: &Format) -> Result<Entry, String> {
        match &format.verdict {
            Verdict::Score { answer, score, reference } => {
                let reference = self.find(reference).map(|_| self.text(reference)).transpose()?;
                let task = GradeTask { query: self.text(format.question)?, answer: self.text(answer)?, reference };
                Ok(Entry::Answer(OwnRubric { task, rubric: self.rubric() }, self.number(score)?))
            }
            Verdict::Winner { a, b, winner } => {
                self.pair(self.text(format.question)?, [self.text(a)?, self.text(b)?], self.winner(winner)?)
            }
            Verdict::Chosen { better, worse } => {
                let answers = [self.answer(better)?, self.answer(worse)?];
                self.pair(self.answer(format.question)?, answers, Some(RespondentId::A))
            }
            Verdict::Conversation { a, b, winner, turn } => {
                let n_turns = self.number(turn)? as usize;
                let said = |names: Names, role: &str| self.turns(names, role, n_turns);
                let answers = [said(a, "assistant")?, said(b, "assistant")?];
                self.pair(said(format.question, "user")?, answers, self.winner(winner)?)
            }
        }
    }

    fn pair(&self, query: String, answers: [String; 2], winner: Option<RespondentId>) -> Result<Entry, String> {
        let [answer_a, answer_b] = answers;
        let task = CompareTask { query, answer_a, answer_b };
        Ok(Entry::Pair(OwnRubric { task, rubric: self.rubric() }, winner))
    }

    /// The required fields that are absent.
    fn missing(&self, format: &Format) -> Vec<Names> {
        format.needed().into_iter().filter(|names| self.find(names).is_none()).collect()
    }

    /// A field and its name. A null counts as missing.
    fn find(&self, names: Names) -> Option<(&'static str, &Value)> {
        let found = names.iter().filter_map(|name| Some((*name, self.0.get(*name)?)));
        found.into_iter().find(|(_, value)| !value.is_null())
    }

    fn value(&self, names: Names) -> Result<(&'static str, &Value), String> {
        self.find(names).ok_or_else(|| format!("lacks {:?}", names[0]))
    }

    fn text(&self, names: Names) -> Result<String, String> {
        match self.value(names)? {
            (_, Value::String(text)) => Ok(text.clone()),
            (name, other) => Err(unexpected(name, other, "a text")),
        }
    }

    /// The answer: a text, the first of several that are equally good or bad, or the last message of a conversation.
    fn answer(&self, names: Names) -> Result<String, String> {
        let (name, value) = self.value(names)?;
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let said = match (items.first(), items.last()) {
            (Some(Value::String(first)), _) => Some(first.as_str()),
            (_, Some(last)) => last["content"].as_str(),
            _ => value.as_str(),
        };
        said.map(str::to_owned).ok_or_else(|| unexpected(name, value, "a text, a list of texts or a list of messages"))
    }

    /// A number, perhaps written as a text.
    fn number(&self, names: Names) -> Result<f64, String> {
        let (name, value) = self.value(names)?;
        let number = match value {
            Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            other => other.as_f64(),
        };
        number.ok_or_else(|| unexpected(name, value, "a number"))
    }

    fn winner(&self, names: Names) -> Result<Option<RespondentId>, String> {
        let (name, value) = self.value(names)?;
        let said = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_lowercase());
        let known = WINNERS.iter().find(|(_, texts)| texts.contains(&said.as_str()));
        known.map(|(winner, _)| *winner).ok_or_else(|| unexpected(name, value, "A, B or tie"))
    }

    /// The messages of one side in the first turns of a conversation, numbered if there are several.
    fn turns(&self, names: Names, role: &str, n_turns: usize) -> Result<String, String> {
        let (name, value) = self.value(names)?;
        let messages = value.as_array().into_iter().flatten();
        let said: Vec<&str> = messages
            .filter(|message| message["role"] == role)
            .filter_map(|message| message["content"].as_str())
            .take(n_turns)
            .collect();
        match said.as_slice() {
            [only] if n_turns == 1 => Ok((*only).to_owned()),
            several if n_turns > 0 && several.len() == n_turns => {
                let numbered = (1..).zip(several).map(|(number, text)| format!("[Turn {number}]\n{text}"));
                Ok(numbered.collect::<Vec<_>>().join("\n\n"))
            }
            _ => Err(format!("has no {n_turns} messages of the role {role:?} in {name:?}")),
        }
    }

    /// The rubric that prometheus-eval's sets have on each line.
    fn rubric(&self) -> Option<Rubric> {
        let text = |name: &str| self.0.get(name).and_then(Value::as_str).map(str::to_owned);
        let scores: Option<Vec<String>> =
            (1..=5).map(|score| text(&format!("orig_score{score}_description"))).collect();
        let (criterion, scores) = (text("orig_criteria")?, scores?.try_into().ok()?);
        Some(Rubric { name: "of the line".to_owned(), criterion, scores })
    }
}

fn unexpected(name: &str, value: &Value, expected: &str) -> String {
    let shown: String = value.to_string().chars().take(40).collect();
    format!("has {shown} as {name:?}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: Option<RespondentId> = Some(RespondentId::A);
    const B: Option<RespondentId> = Some(RespondentId::B);

    fn entry(line: Value) -> Result<(&'static str, Entry), String> {
        read(line.as_object().unwrap())
    }

    #[track_caller]
    fn check_answer(line: Value, format: &str, task: [&str; 2], reference: Option<&str>, score: f64) {
        let (name, entry) = entry(line).unwrap();
        assert!(name.contains(format), "{name}");
        let task = GradeTask { query: task[0].into(), answer: task[1].into(), reference: reference.map(str::to_owned) };
        assert_eq!(entry, Entry::Answer(OwnRubric { task, rubric: None }, score));
    }

    #[track_caller]
    fn check_pair(line: Value, format: &str, task: [&str; 3], winner: Option<RespondentId>) {
        let (name, entry) = entry(line).unwrap();
        assert!(name.contains(format), "{name}");
        let [query, answer_a, answer_b] = task.map(str::to_owned);
        let task = CompareTask { query, answer_a, answer_b };
        assert_eq!(entry, Entry::Pair(OwnRubric { task, rubric: None }, winner));
    }

    #[test]
    fn answers_may_be_lists_or_conversations() {
        let pair = |line: Value| match entry(line) {
            Ok((_, Entry::Pair(OwnRubric { task, .. }, winner))) => (task.query, task.answer_a, task.answer_b, winner),
            other => panic!("{other:?}"),
        };
        let expected = || ("Q".to_owned(), "good".to_owned(), "bad".to_owned(), A);
        let lists = json!({"prompt": "Q", "chosen": ["good"], "rejected": ["bad", "worse"], "num_correct": 1});
        assert_eq!(pair(lists), expected());
        let said = |answer: &str| json!([{"role": "user", "content": "Q"}, {"role": "assistant", "content": answer}]);
        assert_eq!(pair(json!({"prompt": "Q", "chosen": said("good"), "rejected": said("bad")})), expected());
        let asked = json!([{"role": "user", "content": "Q"}]);
        assert_eq!(pair(json!({"prompt": asked, "chosen": said("good"), "rejected": said("bad")})), expected());
        assert!(
            entry(json!({"prompt": "Q", "chosen": [], "rejected": "bad"})).unwrap_err().contains("expected a text")
        );
    }

    #[test]
    fn answers_with_scores_are_read() {
        let line = json!({"question": "Q", "answer": "R", "score": 3.5, "reference": "S", "source": "x"});
        check_answer(line, "with a score", ["Q", "R"], Some("S"), 3.5);
        let line = json!({"query": "Q", "answer": "R", "human_score": "4", "reference": null});
        check_answer(line, "with a score", ["Q", "R"], None, 4.0);
        let line = json!({"orig_instruction": "Q", "orig_response": "R", "orig_reference_answer": "S", "orig_score": "2",
            "instruction": "grade it", "input": "", "output": "so it is [RESULT] 2", "orig_criteria": "Is it?"});
        check_answer(line, "Feedback-Bench", ["Q", "R"], Some("S"), 2.0);
    }

    #[test]
    fn pairs_with_winners_are_read() {
        check_pair(json!({"question": "Q", "a": "R", "b": "S", "winner": "B"}), "with a winner", ["Q", "R", "S"], B);
        let line = json!({"orig_instruction": "Q", "orig_response_A": "R", "orig_response_B": "S", "orig_preference": "A",
            "orig_score_A": "4", "orig_score_B": "2", "input": "", "output": "…"});
        check_pair(line, "Preference-Bench", ["Q", "R", "S"], A);
        let line = json!({"prompt": "Q", "chosen": "R", "rejected": "S", "subset": "chat", "id": 7});
        check_pair(line, "RewardBench", ["Q", "R", "S"], A);
        let line = json!({"pair_id": "x", "question": "Q", "response_A": "R", "response_B": "S", "label": "B>A"});
        check_pair(line, "JudgeBench", ["Q", "R", "S"], B);
        check_pair(json!({"input": "Q", "output_1": "R", "output_2": "S", "label": 2}), "LLMBar", ["Q", "R", "S"], B);
    }

    #[test]
    fn a_conversation_is_read_up_to_its_turn() {
        let conversation = |answers: [&str; 2]| {
            json!([{"role": "user", "content": "Q"}, {"role": "assistant", "content": answers[0]},
                {"role": "user", "content": "More?"}, {"role": "assistant", "content": answers[1]}])
        };
        let line = |turn: usize, winner: &str| {
            json!({"question_id": 1, "model_a": "x", "model_b": "y", "winner": winner, "judge": "expert",
                "conversation_a": conversation(["R", "R2"]), "conversation_b": conversation(["S", "S2"]), "turn": turn})
        };
        check_pair(line(1, "model_b"), "MT-bench", ["Q", "R", "S"], B);
        let turns = |first: &str, second: &str| format!("[Turn 1]\n{first}\n\n[Turn 2]\n{second}");
        let texts = [turns("Q", "More?"), turns("R", "R2"), turns("S", "S2")];
        check_pair(line(2, "tie"), "MT-bench", [&texts[0], &texts[1], &texts[2]], None);
        let error = entry(line(3, "tie")).unwrap_err();
        assert_eq!(error, "has no 3 messages of the role \"assistant\" in \"conversation_a\"");
    }

    #[test]
    fn a_line_of_prometheus_brings_its_rubric() {
        let mut line =
            json!({"orig_instruction": "Q", "orig_response": "R", "orig_score": 5, "orig_criteria": "Is it kind?"});
        for score in 1..=5 {
            line[format!("orig_score{score}_description")] = format!("kind to {score}").into();
        }
        let Entry::Answer(task, _) = entry(line).unwrap().1 else { panic!("it is an answer") };
        let rubric = task.rubric.unwrap();
        assert_eq!((rubric.criterion.as_str(), rubric.scores[4].as_str()), ("Is it kind?", "kind to 5"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |line: Value, expected: &str| assert_eq!(entry(line).unwrap_err(), expected);
        check(json!({"prompt": "Q", "chosen": "R"}), "lacks \"rejected\", which a pair of RewardBench has");
        let line = json!({"question": "Q", "response_A": "R", "response_B": null, "label": "A>B"});
        check(line, "lacks \"response_B\", which a pair of JudgeBench has");
        let line = json!({"question": "Q", "answer": "R", "score": "good"});
        check(line, "has \"good\" as \"score\", expected a number");
        let line = json!({"question": ["Q"], "answer": "R", "score": 1});
        check(line, "has [\"Q\"] as \"question\", expected a text");
        let line = json!({"input": "Q", "output_1": "R", "output_2": "S", "label": 3});
        check(line, "has 3 as \"label\", expected A, B or tie");
        let unknown = entry(json!({"text": "Q"})).unwrap_err();
        assert!(unknown.starts_with("has no known format: it could be an answer of prometheus-eval's"), "{unknown}");
    }
}
