//! The results of a turn, compared with the expectations. Nothing here does I/O.

use std::time::{Duration, Instant};

use hone_agents::{Exchange, RespondentReply};
use hone_protocol::{Envelope, QueryId, RespondentId};
use serde_json::{Map, Value};

use super::script::{ExpectedEngram, ExpectedEvent, QUERY_ID, Turn};

/// How long an answer is awaited if the story expects no event.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);

/// The results of a turn so far.
pub(super) struct Watch<'a> {
    turn: &'a Turn,
    exchange: Exchange,
    asked: Instant,
    /// The event that matched each expectation.
    found: Vec<Option<Found>>,
    n_heard: usize,
}

/// An event as it arrived.
struct Found {
    /// Its place in the order of all events about the question.
    place: usize,
    event: Value,
}

impl<'a> Watch<'a> {
    /// A turn whose question has just been asked.
    pub(super) fn new(turn: &'a Turn, exchange: Exchange, asked: Instant) -> Watch<'a> {
        let found = turn.events.iter().map(|_| None).collect();
        Watch { turn, exchange, asked, found, n_heard: 0 }
    }

    pub(super) fn turn(&self) -> &'a Turn {
        self.turn
    }

    /// The question and its results so far.
    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The time until which to wait for outstanding events; `None` if there are none.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        let open = self.turn.events.iter().zip(&self.found).filter(|(_, found)| found.is_none());
        let deadline = open.filter_map(|(event, _)| self.deadline(event)).max();
        let answer = self.answer().is_none().then(|| self.asked + LONGEST_ANSWER);
        let until = deadline.max(answer)?;
        (self.reply(RespondentId::A).failure.is_none() && now < until).then_some(until)
    }

    /// The deadline of an expected event.
    fn deadline(&self, event: &ExpectedEvent) -> Option<Instant> {
        event.within_seconds.map(|seconds| self.asked + Duration::from_secs_f64(seconds))
    }

    /// Records an event, which arrived at `now`.
    pub(super) fn take(&mut self, envelope: &Envelope, now: Instant) {
        if envelope.correlation_id != Some(self.exchange.id()) {
            return;
        }
        self.exchange.take(envelope);
        self.n_heard += 1;
        let is_open =
            |place: &usize| self.found[*place].is_none() && self.fits(&self.turn.events[*place], envelope, now);
        if let Some(place) = (0..self.found.len()).find(is_open) {
            let event = serde_json::to_value(envelope).unwrap_or_default();
            self.found[place] = Some(Found { place: self.n_heard, event });
        }
    }

    fn fits(&self, expected: &ExpectedEvent, envelope: &Envelope, now: Instant) -> bool {
        expected.subject == envelope.subject()
            && expected.respondent.is_none_or(|respondent| envelope.respondent_id == Some(respondent))
            && self.deadline(expected).is_none_or(|deadline| now <= deadline)
    }

    /// The failed expectations at the end of the story. `engram` reads an engram's fields.
    pub(super) fn failures(&self, engram: impl Fn(QueryId) -> Result<Value, String>) -> Vec<String> {
        let known = self.known();
        let mut failures: Vec<String> = self.answer_failures();
        for (expected, found) in self.turn.events.iter().zip(&self.found) {
            let of = expected.respondent.map(|respondent| format!(" of {respondent}")).unwrap_or_default();
            let faults = self.event_failures(expected, found.as_ref(), &known);
            failures.extend(faults.into_iter().map(|fault| format!("{}{of}: {fault}", expected.subject)));
        }
        for expected in &self.turn.engrams {
            let respondent = expected.respondent;
            let faults = self.engram_failures(expected, &engram, &known);
            failures.extend(faults.into_iter().map(|fault| format!("engram of {respondent}: {fault}")));
        }
        failures
    }

    fn answer_failures(&self) -> Vec<String> {
        let answer = self.answer();
        let said = answer.unwrap_or_default().to_lowercase();
        let none = match (&self.reply(RespondentId::A).failure, answer) {
            (Some(failure), _) => Some(format!("there is no answer: {failure}")),
            (None, None) => Some("there is no answer".to_owned()),
            (None, Some(_)) => None,
        };
        let missing = self.turn.expected_content.iter().filter(|text| !said.contains(&text.to_lowercase()));
        let missing = missing.map(|text| format!("the answer does not contain {text:?}: {answer:?}"));
        none.into_iter().chain(missing).collect()
    }

    fn event_failures(&self, expected: &ExpectedEvent, found: Option<&Found>, known: &Value) -> Vec<String> {
        match found {
            Some(_) if expected.absent => vec!["has come".to_owned()],
            None if expected.absent => Vec::new(),
            None => vec![format!("has not come within {} s", expected.within_seconds.unwrap_or_default())],
            Some(found) => {
                let before = expected.after.iter().filter(|name| self.place_of(name).is_none_or(|it| it > found.place));
                let before = before.map(|name| format!("has come before {name}"));
                before.chain(faults(&expected.fields, &found.event, known)).collect()
            }
        }
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        let mut named = self.turn.events.iter().zip(&self.found);
        named
            .find_map(|(event, found)| found.as_ref().filter(|_| event.name.as_deref() == Some(name)))
            .map(|it| it.place)
    }

    fn engram_failures(
        &self,
        expected: &ExpectedEngram,
        engram: impl Fn(QueryId) -> Result<Value, String>,
        known: &Value,
    ) -> Vec<String> {
        let Some(id) = self.reply(expected.respondent).query_id else { return vec!["there is no answer".to_owned()] };
        match engram(id) {
            Ok(engram) => faults(&expected.fields, &engram, known),
            Err(reason) => vec![reason],
        }
    }

    /// The values that expectations can refer to.
    fn known(&self) -> Value {
        let named = self.turn.events.iter().zip(&self.found);
        let named = named.filter_map(|(event, found)| Some((event.name.clone()?, found.as_ref()?.event.clone())));
        let id = (QUERY_ID.to_owned(), self.exchange.id().to_string().into());
        named.chain([id]).collect::<Map<_, _>>().into()
    }

    /// Respondent A's answer.
    pub(super) fn answer(&self) -> Option<&str> {
        self.reply(RespondentId::A).response.as_ref().map(|response| response.answer.as_str())
    }

    fn reply(&self, respondent: RespondentId) -> &RespondentReply {
        self.exchange.reply(respondent)
    }
}

/// The mismatches in the fields of an object.
fn faults(fields: &super::script::Fields, object: &Value, known: &Value) -> Vec<String> {
    fields.iter().filter_map(|(path, expected)| expected.fault(object, path, known)).collect()
}

#[cfg(test)]
mod tests {
    use hone_protocol::{
        Comparison, Grade, GradedAnswer, Judging, Payload, Preference, Response, SamplingOptions, SessionId,
    };
    use serde_json::json;

    use super::super::script::Story;
    use super::*;

    const ASKED: QueryId = QueryId::from_bits(1);
    const ASKED_OF_B: QueryId = QueryId::from_bits(2);

    fn story() -> Story {
        let file = format!("{}/../../tests/stories/s7_pairwise.toml", env!("CARGO_MANIFEST_DIR"));
        Story::read(file.as_ref()).unwrap()
    }

    fn answered(temperature: f32) -> Payload {
        Payload::ResponseGeneration(Response {
            sampling: SamplingOptions { temperature, ..SamplingOptions::default() },
            ..Response::new("What is the boiling point of water at sea level?", "100 °C.", "m")
        })
    }

    fn graded(score: u8) -> Payload {
        let judging = Judging { judge: "j".into(), ..Judging::default() };
        let grade = Grade { score: Some(score), judging, ..Grade::default() };
        Payload::CritiqueResult(GradedAnswer { query: "q".into(), answer: "a".into(), grade })
    }

    fn compared(winner: Option<RespondentId>) -> Payload {
        Payload::PairwiseResult(Comparison {
            original_query_id: ASKED,
            query_id_a: ASKED,
            query_id_b: ASKED_OF_B,
            score_a: Some(4),
            score_b: Some(2),
            preference: Preference { winner, ..Preference::default() },
        })
    }

    /// The events of S7 if all is well: answers, grades, comparison.
    fn events() -> Vec<Envelope> {
        let about = |payload, respondent| {
            let id = if respondent == RespondentId::A { ASKED } else { ASKED_OF_B };
            Envelope::new("tester", SessionId::from_bits(9), payload).about(id, ASKED, respondent)
        };
        vec![
            about(answered(0.0), RespondentId::A),
            about(answered(0.7), RespondentId::B),
            about(graded(4), RespondentId::A),
            about(graded(2), RespondentId::B),
            about(compared(Some(RespondentId::A)), RespondentId::A),
        ]
    }

    fn engrams() -> [Value; 2] {
        let engram = |id: QueryId, with: QueryId, respondent: &str, temperature: f32, score: u8, is_winner: bool| {
            json!({
                "type": "episodic", "query_id": id, "correlation_id": ASKED, "respondent_id": respondent, "model": "m",
                "sampling": {"temperature": temperature}, "critic_score": score, "pairwise_winner": is_winner,
                "compared": {"with": with},
            })
        };
        [engram(ASKED, ASKED_OF_B, "A", 0.0, 4, true), engram(ASKED_OF_B, ASKED, "B", 0.7, 2, false)]
    }

    /// Checks the failures that S7 reports for the events after `change`.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Vec<Envelope>, &mut [Value; 2]), expected: &[&str]) {
        let (story, mut events, mut engrams) = (story(), events(), engrams());
        change(&mut events, &mut engrams);
        let now = Instant::now();
        let mut watch = Watch::new(&story.turns[0], Exchange::new(ASKED), now);
        events.iter().for_each(|event| watch.take(event, now));
        let find = |id: QueryId| engrams.iter().find(|engram| engram["query_id"] == json!(id)).cloned();
        let failures = watch.failures(|id| find(id).ok_or_else(|| "it is not in memory".to_owned()));
        assert_eq!(failures, expected);
    }

    #[test]
    fn s7_holds_where_all_is_well() {
        check(|_, _| (), &[]);
        check(|events, _| events.swap(2, 3), &[]);
    }

    #[test]
    fn s7_takes_no_answer_of_b_with_the_id_of_a() {
        let one_id = |events: &mut Vec<Envelope>, _: &mut [Value; 2]| events[1].query_id = Some(ASKED);
        let failure = |what: &str| format!("{what}, expected anything but \"{ASKED}\"");
        let b = failure(&format!("response.generation of B: query_id is \"{ASKED}\""));
        let (story, mut events) = (story(), events());
        one_id(&mut events, &mut engrams());
        let mut watch = Watch::new(&story.turns[0], Exchange::new(ASKED), Instant::now());
        events.iter().for_each(|event| watch.take(event, Instant::now()));
        let failures = watch.failures(|_| Err("it is not in memory".to_owned()));
        assert!(failures.contains(&b), "{failures:?}");
    }

    #[test]
    fn s7_wants_one_winner_and_the_same_everywhere() {
        check(
            |_, engrams| engrams[1]["pairwise_winner"] = true.into(),
            &["engram of B: pairwise_winner is true, expected false"],
        );
        check(
            |events, _| events[4].payload = compared(Some(RespondentId::B)),
            &[
                "engram of A: pairwise_winner is true, expected false",
                "engram of B: pairwise_winner is false, expected true",
            ],
        );
        check(
            |_, engrams| engrams[0]["pairwise_winner"] = Value::Null,
            &["engram of A: pairwise_winner is null, expected true"],
        );
        check(
            |events, engrams| {
                events[4].payload = compared(None);
                engrams[0]["pairwise_winner"] = false.into();
                engrams[1]["pairwise_winner"] = Value::Null;
            },
            &["engram of A: pairwise_winner is false, expected null"],
        );
        check(|events, _| events.push(events[4].clone()), &["pairwise.result: has come"]);
    }

    #[test]
    fn s7_wants_respondents_temperatures_and_scores_on_the_engrams() {
        check(
            |_, engrams| engrams[1]["respondent_id"] = "A".into(),
            &["engram of B: respondent_id is \"A\", expected \"B\""],
        );
        check(
            |_, engrams| engrams[1]["sampling"]["temperature"] = 0.5.into(),
            &["engram of B: sampling.temperature is 0.5, expected 0.7"],
        );
        check(|_, engrams| engrams[0]["critic_score"] = 2.into(), &["engram of A: critic_score is 2, expected 4"]);
        check(
            |_, engrams| drop(engrams[0].as_object_mut().unwrap().remove("critic_score")),
            &["engram of A: critic_score does not exist, expected 4"],
        );
    }

    #[test]
    fn s7_wants_the_comparison_after_both_grades() {
        check(|events, _| events.swap(3, 4), &["pairwise.result: has come before grade_b"]);
    }

    #[test]
    fn an_event_that_comes_late_has_not_come() {
        let (story, asked) = (story(), Instant::now());
        let mut watch = Watch::new(&story.turns[0], Exchange::new(ASKED), asked);
        events().iter().for_each(|event| watch.take(event, asked + Duration::from_secs(130)));
        let late = "response.generation of A: has not come within 120 s".to_owned();
        assert!(watch.failures(|_| Err("it is not in memory".to_owned())).contains(&late));
        assert!(watch.waits_until(asked).is_some());
    }
}
