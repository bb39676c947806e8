//! The formats of sets: hone's own, LongMemEval's and LoCoMo's.
//!
//! hone's own is lines of JSON: sessions (`person`, `session`, `turns` of `user`, `assistant` and `outcome`) and probes
//! (`person`, `probe`, `kind`, `expects`, `rejects`, `sources`); the first half of its persons is for fitting.
//!
//! LongMemEval (Wu et al., 2024) is an array of questions, each with the sessions that contain its answer; turns that
//! hold it say `has_answer`. LoCoMo (Maharana et al., 2024) is an array of conversations of two people, whose questions
//! name the turns (`dia_id`) that answer them; the first speaker takes the place of the user.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::set::{AnswerOutcome, Evidence, Person, Probe, RecallSet, Turn};
use crate::arguments::Split;

/// The category of LoCoMo's questions that nothing in the conversation answers.
const ADVERSARIAL: u64 = 5;

/// Reads a set in any of the formats.
///
/// # Errors
/// When it has none of them.
pub(super) fn read(name: &str, text: &str) -> anyhow::Result<RecallSet> {
    let persons = if !text.trim_start().starts_with('[') {
        own(text)
    } else {
        let items: Vec<Map<String, Value>> = serde_json::from_str(text)?;
        match items.first() {
            Some(item) if item.contains_key("haystack_sessions") => items.into_iter().map(long_mem_eval).collect(),
            Some(item) if item.contains_key("conversation") => items.into_iter().map(locomo).collect(),
            _ => bail!("it is an array, but neither LongMemEval's (haystack_sessions) nor LoCoMo's (conversation)"),
        }
    };
    let persons = persons.with_context(|| format!("cannot read {name} as a set of conversations and probes"))?;
    Ok(RecallSet { name: name.to_owned(), persons })
}

/// A line of hone's own format.
#[derive(Deserialize)]
#[serde(untagged)]
enum CorpusLine {
    Session {
        person: String,
        session: u64,
        turns: Vec<OwnTurn>,
    },
    Probe {
        person: String,
        probe: String,
        kind: String,
        expects: Vec<String>,
        rejects: Vec<String>,
        sources: Vec<(u64, usize)>,
    },
}

#[derive(Deserialize)]
struct OwnTurn {
    user: String,
    assistant: String,
    outcome: AnswerOutcome,
}

fn own(text: &str) -> anyhow::Result<Vec<Person>> {
    let mut persons: BTreeMap<String, Person> = BTreeMap::new();
    for (number, line) in
        (1..).zip(text.trim_start_matches('\u{feff}').lines()).filter(|(_, line)| !line.trim().is_empty())
    {
        let line: CorpusLine =
            serde_json::from_str(line).with_context(|| format!("line {number} is no session and no probe"))?;
        match line {
            CorpusLine::Session { person, session, turns } => {
                let turn =
                    |turn: OwnTurn| Turn { session, user: turn.user, assistant: turn.assistant, outcome: turn.outcome };
                of(&mut persons, person).turns.extend(turns.into_iter().map(turn));
            }
            CorpusLine::Probe { person, probe, kind, expects, rejects, sources } => {
                let person = of(&mut persons, person);
                let sources = sources.into_iter().map(|place| place_of(person, place)).collect::<anyhow::Result<_>>();
                let sources = sources.with_context(|| format!("line {number}"))?;
                let evidence =
                    if expects.is_empty() { Evidence::Nothing } else { Evidence::Texts { expects, rejects } };
                person.probes.push(Probe { text: probe, kind, evidence, sources });
            }
        }
    }
    let n_fitted = persons.len().div_ceil(2);
    let split = |index: usize| if index < n_fitted { Split::Fitted } else { Split::HeldOut };
    let persons = persons.into_values().enumerate();
    Ok(persons.map(|(index, person)| Person { split: Some(split(index)), ..person }).collect())
}

fn of(persons: &mut BTreeMap<String, Person>, name: String) -> &mut Person {
    persons.entry(name.clone()).or_insert_with(|| Person { name, ..Person::default() })
}

/// The index of a turn that a probe names by its session and its position there.
fn place_of(person: &Person, (session, index): (u64, usize)) -> anyhow::Result<usize> {
    let mut of_session = person.turns.iter().enumerate().filter(|(_, turn)| turn.session == session);
    let found = of_session.nth(index).map(|(place, _)| place);
    found.with_context(|| format!("the probe names turn {index} of session {session}, which does not stand before it"))
}

/// A question of LongMemEval, with a memory of its own.
fn long_mem_eval(item: Map<String, Value>) -> anyhow::Result<Person> {
    #[derive(Deserialize)]
    struct Item {
        question_id: String,
        question_type: String,
        question: String,
        haystack_session_ids: Vec<String>,
        haystack_sessions: Vec<Vec<Said>>,
        #[serde(default)]
        answer_session_ids: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Said {
        role: String,
        content: String,
        #[serde(default)]
        has_answer: bool,
    }
    let item: Item = serde_json::from_value(Value::Object(item))?;
    let (mut turns, mut marked, mut of_answer) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for ((session, said), id) in (1..).zip(item.haystack_sessions).zip(&item.haystack_session_ids) {
        let mut question: Option<Said> = None;
        for said in said {
            if said.role == "user" {
                question = Some(said);
            } else if let Some(question) = question.take() {
                if question.has_answer || said.has_answer {
                    marked.insert(turns.len());
                }
                if item.answer_session_ids.contains(id) {
                    of_answer.insert(turns.len());
                }
                let (user, assistant) = (question.content, said.content);
                turns.push(Turn { session, user, assistant, outcome: AnswerOutcome::Answered });
            }
        }
    }
    // If no turn is marked, all turns of the answer's sessions count.
    let evidence = if item.question_id.ends_with("_abs") {
        Evidence::Nothing
    } else if marked.is_empty() {
        Evidence::Turns(of_answer)
    } else {
        Evidence::Turns(marked)
    };
    let probe = Probe { text: item.question, kind: item.question_type, evidence, sources: Vec::new() };
    Ok(Person { name: item.question_id, split: None, turns, probes: vec![probe] })
}

/// A conversation of LoCoMo. The second speaker's words answer the first speaker's preceding ones.
fn locomo(item: Map<String, Value>) -> anyhow::Result<Person> {
    #[derive(Deserialize)]
    struct Item {
        sample_id: Value,
        conversation: Map<String, Value>,
        qa: Vec<Asked>,
    }
    #[derive(Deserialize)]
    struct Asked {
        question: String,
        category: u64,
        #[serde(default)]
        evidence: Vec<String>,
    }
    let item: Item = serde_json::from_value(Value::Object(item))?;
    let (turns, places) = locomo_turns(&item.conversation)?;
    let probe = |asked: Asked| {
        let sources: BTreeSet<usize> = asked.evidence.iter().filter_map(|id| places.get(id.trim()).copied()).collect();
        let is_answered = asked.category != ADVERSARIAL && !sources.is_empty();
        let evidence = if is_answered { Evidence::Turns(sources) } else { Evidence::Nothing };
        Probe { text: asked.question, kind: locomo_kind(asked.category), evidence, sources: Vec::new() }
    };
    let name = item.sample_id.as_str().map_or_else(|| item.sample_id.to_string(), str::to_owned);
    Ok(Person { name, split: None, turns, probes: item.qa.into_iter().map(probe).collect() })
}

fn locomo_kind(category: u64) -> String {
    match category {
        1 => "multi-hop".to_owned(),
        2 => "temporal".to_owned(),
        3 => "open-domain".to_owned(),
        4 => "single-hop".to_owned(),
        ADVERSARIAL => "nothing".to_owned(),
        other => format!("category {other}"),
    }
}

/// The turns of a conversation, and the index of the turn for each id.
fn locomo_turns(conversation: &Map<String, Value>) -> anyhow::Result<(Vec<Turn>, BTreeMap<String, usize>)> {
    #[derive(Deserialize)]
    struct Said {
        speaker: String,
        dia_id: String,
        text: String,
    }
    let first = conversation.get("speaker_a").and_then(Value::as_str).context("the conversation has no speaker_a")?;
    let (mut turns, mut places): (Vec<Turn>, _) = (Vec::new(), BTreeMap::new());
    for session in 1.. {
        let Some(said) = conversation.get(&format!("session_{session}")) else { break };
        let mut is_open = false;
        for said in Vec::<Said>::deserialize(said)? {
            let is_first = said.speaker == first;
            if is_first || !is_open {
                let turn =
                    Turn { session, user: String::new(), assistant: String::new(), outcome: AnswerOutcome::Answered };
                turns.push(turn);
            }
            is_open = is_first;
            places.insert(said.dia_id, turns.len() - 1);
            if let Some(turn) = turns.last_mut() {
                let place = if is_first { &mut turn.user } else { &mut turn.assistant };
                *place = said.text;
            }
        }
    }
    Ok((turns, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_set_is_read() {
        let set = read("own", super::super::OWN_SET).unwrap();
        assert_eq!((set.persons.len(), set.n_probes(), set.n_turns()), (10, 200, 481));
        assert_eq!(set.clone().only(Some(Split::HeldOut)).persons[0].name, "p06");
        let probe = &set.persons[0].probes[0];
        assert_eq!((probe.text.as_str(), probe.sources.as_slice()), ("What is my dog called?", &[0][..]));
    }

    #[test]
    fn long_mem_eval_is_read() {
        let text = r#"[
            {"question_id": "a", "question_type": "single-session-user", "question": "Which degree?", "answer": "Law",
             "question_date": "2023/05/30", "haystack_dates": ["d", "e"], "haystack_session_ids": ["s1", "s2"],
             "answer_session_ids": ["s2"],
             "haystack_sessions": [
                [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
                [{"role": "user", "content": "I read law.", "has_answer": true}, {"role": "assistant", "content": "Good."},
                 {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "Bye"}]]},
            {"question_id": "b_abs", "question_type": "multi-session", "question": "Which cat?", "answer": "None",
             "haystack_session_ids": [], "haystack_sessions": []}
        ]"#;
        let set = read("lme", text).unwrap();
        assert_eq!((set.persons.len(), set.n_turns()), (2, 3));
        assert_eq!(set.persons[0].probes[0].evidence, Evidence::Turns(BTreeSet::from([1])));
        assert_eq!(set.persons[1].probes[0].evidence, Evidence::Nothing);
    }

    #[test]
    fn locomo_is_read() {
        let text = r#"[{"sample_id": "conv-1", "conversation": {
            "speaker_a": "Ann", "speaker_b": "Bob", "session_1_date_time": "1 May",
            "session_1": [{"speaker": "Ann", "dia_id": "D1:1", "text": "I ran."}, {"speaker": "Bob", "dia_id": "D1:2", "text": "Far?"},
                          {"speaker": "Bob", "dia_id": "D1:3", "text": "I swam."}]},
            "qa": [{"question": "Who swam?", "answer": "Bob", "evidence": ["D1:3"], "category": 4},
                   {"question": "Who flew?", "adversarial_answer": "Ann", "evidence": ["D1:1"], "category": 5}]}]"#;
        let set = read("locomo", text).unwrap();
        assert_eq!(set.n_turns(), 2);
        let evidence: Vec<&Evidence> = set.persons[0].probes.iter().map(|probe| &probe.evidence).collect();
        assert_eq!(evidence, [&Evidence::Turns(BTreeSet::from([1])), &Evidence::Nothing]);
    }

    #[test]
    fn other_files_are_refused() {
        let refusal = |text: &str| format!("{:#}", read("x", text).unwrap_err());
        assert!(refusal("[{\"a\": 1}]").contains("neither LongMemEval's"), "{}", refusal("[{\"a\": 1}]"));
        assert!(refusal("{\"a\": 1}").contains("line 1 is no session and no probe"));
        let early =
            r#"{"person": "p", "probe": "x", "kind": "direct", "expects": ["y"], "rejects": [], "sources": [[1, 0]]}"#;
        assert!(refusal(early).contains("does not stand before it"), "{}", refusal(early));
    }
}
