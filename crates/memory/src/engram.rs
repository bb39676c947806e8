//! The memory of one answer.
//!
//! In JSON an engram is one flat object that also holds the parts of the grade, under the names that the quality loop
//! uses (`critic_score`, `feedback`, …). An update changes fields of the object and never rewrites it, so fields that
//! this version does not know are kept.

mod flat;

use hone_protocol::{
    Comparison, FinishReason, Grade, Judging, JudgingMethod, Juror, Likely, OwnerId, Preference, QueryId, Rating,
    RespondentId, Response, SamplingOptions, SessionId, Timestamp, VettingState,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::flat::{FlatEngram, FlatGrade};
use crate::backlog::Due;
use crate::vetting::Vetting;

/// The highest score of answers that are not recalled.
const HIGHEST_POOR_SCORE: u8 = 2;

/// The kind of memory that an engram is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngramKind {
    /// A question and its answer.
    #[default]
    Episodic,
    /// A statement of the user in a question, in the user's words. It is its `query`; its `answer` is empty.
    Fact,
    /// A model's resolution for a day, made from the state of memory.
    Intention,
    /// An answer from memory and files, with its citations.
    Research,
    /// A summary of memories.
    Consolidation,
}

impl EngramKind {
    /// All kinds.
    pub const ALL: [EngramKind; 5] = [
        EngramKind::Episodic,
        EngramKind::Fact,
        EngramKind::Intention,
        EngramKind::Research,
        EngramKind::Consolidation,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            EngramKind::Episodic => "episodic",
            EngramKind::Fact => "fact",
            EngramKind::Intention => "intention",
            EngramKind::Research => "research",
            EngramKind::Consolidation => "consolidation",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<EngramKind> {
        EngramKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether a model made it from memory, so that a critic must pass it.
    pub fn is_note(self) -> bool {
        match self {
            EngramKind::Episodic | EngramKind::Fact => false,
            EngramKind::Intention | EngramKind::Research | EngramKind::Consolidation => true,
        }
    }
}

/// An answer and its annotations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "FlatEngram", from = "FlatEngram")]
pub struct Engram {
    /// Its id.
    pub query_id: QueryId,
    /// Its kind.
    pub kind: EngramKind,
    /// Its position in the order of all engrams ever remembered, from 1. The store assigns it and ignores any given
    /// value.
    pub sequence: u64,
    /// The question.
    pub query: String,
    /// The answer.
    pub answer: String,
    /// The time of the answer.
    pub at: Timestamp,
    /// The conversation.
    pub session_id: SessionId,
    /// The key of the client that asked; `None` for the user at the terminal.
    pub owner: Option<OwnerId>,
    /// Its scope for recall: answers of the same scope are recalled together; see [`Response::scope`].
    pub scope: Option<String>,
    /// The respondent.
    pub respondent_id: RespondentId,
    /// The model that answered.
    pub model: String,
    /// The sampling options.
    pub sampling: SamplingOptions,
    /// Whether the model reasoned before it answered.
    pub thinking: bool,
    /// The reason why the answer ended; `None` if it was cancelled.
    pub finish_reason: Option<FinishReason>,
    /// The intent of the question, in a few words; `None` if it was not extracted.
    pub intent: Option<String>,
    /// Names and things that the exchange is about.
    pub entities: Vec<String>,
    /// Its grade; `None` until it is graded.
    pub grade: Option<Grade>,
    /// Whether it was the better of two answers; `None` if it was not compared, or the comparison was a tie.
    pub pairwise_winner: Option<bool>,
    /// The user's rating.
    pub user_feedback: Option<Rating>,
    /// The question as it was received: the `query_id` of respondent A's engram.
    pub correlation_id: QueryId,
    /// The outcome of the comparison with the other respondent's answer; `None` if they were not compared.
    pub compared: Option<Compared>,
    /// Its pending judging; `None` if there is none.
    pub due: Option<Due>,
    /// The exchange in which a fact was stated.
    pub source: Option<QueryId>,
    /// Whether a fact says that something has changed.
    pub is_update: bool,
    /// Whether the question was searched for facts.
    pub facts_extracted: bool,
    /// The engrams that a note was made from.
    pub sources: Vec<QueryId>,
    /// Its status as long-term memory. Facts need no critic: they are the user's own words.
    pub vetting: Vetting,
}

/// The outcome of a comparison of two answers, recorded on both engrams. [`Engram::pairwise_winner`] says which one
/// won.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The engram of the other answer.
    pub with: QueryId,
    /// Natural logarithm of the odds of A's answer over B's.
    pub log_odds: f64,
    /// Whether the judge preferred the same answer in both orders.
    pub consistent: bool,
    /// The judge's reason.
    pub reason: String,
    /// The members of the jury with their own preferences; empty if a single judge compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jury: Vec<Juror<Preference>>,
    /// The model that judged, or the names of the jurors.
    pub judge: String,
    /// Whether it also gave one of the answers.
    #[serde(default)]
    pub self_graded: bool,
    /// The method of judging.
    #[serde(default, skip_serializing_if = "JudgingMethod::is_prompted")]
    pub method: JudgingMethod,
    /// The reason for a missing verdict; `None` if there is a verdict, which is a tie if neither answer won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Compared {
    /// The judge, as a verdict names it.
    pub fn judging(&self) -> Judging {
        let Compared { judge, self_graded, method, failure, .. } = self.clone();
        Judging { judge, self_graded, method, failure, ..Judging::default() }
    }
}

impl Engram {
    /// The most facts of one exchange.
    pub const MOST_FACTS: usize = 8;

    /// A new answer of the present time, by respondent A to its own question, without a grade or other annotations.
    pub fn new(query_id: QueryId, session_id: SessionId, response: &Response) -> Engram {
        Engram {
            query_id,
            kind: EngramKind::Episodic,
            sequence: 0,
            query: response.query.clone(),
            answer: response.answer.clone(),
            at: Timestamp::now(),
            session_id,
            owner: None,
            scope: response.scope.clone(),
            respondent_id: RespondentId::A,
            model: response.model.clone(),
            sampling: response.sampling.clone(),
            thinking: !response.thinking.is_empty(),
            finish_reason: response.finish_reason,
            intent: None,
            entities: Vec::new(),
            grade: None,
            pairwise_winner: None,
            user_feedback: None,
            correlation_id: query_id,
            compared: None,
            due: None,
            source: None,
            is_update: false,
            facts_extracted: false,
            sources: Vec::new(),
            vetting: Vetting::default(),
        }
    }

    /// A note of the present time, made from `sources`; the response's question is the question that it answers.
    pub fn note(kind: EngramKind, session_id: SessionId, response: &Response, sources: Vec<QueryId>) -> Engram {
        Engram { kind, sources, facts_extracted: true, ..Engram::new(QueryId::fresh(), session_id, response) }
    }

    /// A fact that was stated in the question of `source`. Facts of one exchange are numbered from 0; their ids are
    /// derived from the exchange, so that remembering one again changes nothing.
    pub fn fact(source: &Engram, number: usize, text: &str, is_update: bool) -> Engram {
        Engram {
            query_id: Engram::fact_id(source.query_id, number),
            kind: EngramKind::Fact,
            query: text.to_owned(),
            answer: String::new(),
            intent: None,
            entities: Vec::new(),
            grade: None,
            pairwise_winner: None,
            user_feedback: None,
            compared: None,
            due: None,
            source: Some(source.query_id),
            is_update,
            facts_extracted: false,
            vetting: Vetting::default(),
            ..source.clone()
        }
    }

    /// The id of a fact that was stated in an exchange, by its number there.
    pub fn fact_id(source: QueryId, number: usize) -> QueryId {
        let digest = Sha256::new().chain_update(source.as_bytes()).chain_update(number.to_le_bytes()).finalize();
        let (bytes, _) = digest.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        QueryId::from_bits(u128::from_be_bytes(*bytes))
    }

    /// Whether it may help to answer another question. Excluded are answers that were cut short or stopped, that a
    /// person marked bad, that a judge graded 1 or 2, that the likelihood judge finds likely wrong or that a critic has
    /// blocked, and respondent B's answers, which no user saw.
    pub fn is_worth_recalling(&self) -> bool {
        let is_complete = self.finish_reason.is_some_and(FinishReason::is_complete);
        let is_refused = self.is_marked_poor() || self.vetting.state == VettingState::Blocked;
        self.kind == EngramKind::Fact || (is_complete && !is_refused && self.respondent_id == RespondentId::A)
    }

    /// Whether the user's rating, or without one the grade, says that it is not good.
    fn is_marked_poor(&self) -> bool {
        match self.user_feedback {
            Some(rating) => rating == Rating::Bad,
            None => self.grade.as_ref().is_some_and(|grade| {
                grade.score.is_some_and(|score| score <= HIGHEST_POOR_SCORE) || grade.likely == Some(Likely::Wrong)
            }),
        }
    }

    /// Whether it counts as long-term memory: a critic or a person has passed it, or it is a statement of the user.
    pub fn is_reviewed(&self) -> bool {
        let is_passed = self.vetting.state == VettingState::Reviewed || self.user_feedback == Some(Rating::Good);
        self.kind == EngramKind::Fact || is_passed && self.vetting.state != VettingState::Blocked
    }

    /// The exchange that it is, or in which it was stated.
    pub(crate) fn exchange(&self) -> QueryId {
        self.source.unwrap_or(self.correlation_id)
    }

    /// Its text for comparisons by words or meaning: a fact's statement alone, or question and answer. A model that
    /// reads only the beginning of a text reads the question.
    pub fn text(&self) -> String {
        match self.kind {
            EngramKind::Fact => self.query.clone(),
            _ => format!("{}\n{}", self.query, self.answer),
        }
    }

    /// Its score, 1 to 5; `None` means unscored, which is neither a pass nor a 0.
    pub fn score(&self) -> Option<u8> {
        self.grade.as_ref().and_then(|grade| grade.score)
    }
}

/// The fields of an engram that hold its grade.
pub(crate) fn grade_fields(grade: &Grade) -> Map<String, Value> {
    match serde_json::to_value(FlatGrade::from(grade)) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The fields on both engrams that say which one was better, and why. The first is absent without a verdict, which is
/// not a tie; the second then gives the failure.
pub(crate) fn pairwise_fields(comparison: &Comparison) -> [(QueryId, Map<String, Value>); 2] {
    let Comparison { query_id_a, query_id_b, preference, .. } = comparison;
    let fields = |respondent: RespondentId, with: QueryId| {
        let mut fields = field(COMPARED, serde_json::to_value(compared(with, preference)).unwrap_or_default());
        if preference.judging.failure.is_none() {
            fields.insert("pairwise_winner".to_owned(), preference.winner.map(|winner| winner == respondent).into());
        }
        fields
    };
    [(*query_id_a, fields(RespondentId::A, *query_id_b)), (*query_id_b, fields(RespondentId::B, *query_id_a))]
}

fn compared(with: QueryId, preference: &Preference) -> Compared {
    let Preference { log_odds, consistent, reason, jury, judging, .. } = preference.clone();
    let Judging { judge, self_graded, method, failure, .. } = judging;
    Compared { with, log_odds, consistent, reason, jury, judge, self_graded, method, failure }
}

/// The field of an engram with the outcome of its comparison.
const COMPARED: &str = "compared";

/// The field that marks a question as searched for facts.
pub(crate) fn facts_extracted() -> Map<String, Value> {
    field("facts_extracted", true.into())
}

/// A single field.
pub(crate) fn field(name: &str, value: Value) -> Map<String, Value> {
    std::iter::once((name.to_owned(), value)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use hone_protocol::{Suspicion, SuspicionKind};

    use super::*;

    /// An engram with this number; an odd number has every optional field.
    pub(crate) fn example(number: u128) -> Engram {
        let full = number % 2 == 1;
        Engram {
            query_id: QueryId::from_bits(number),
            kind: EngramKind::Episodic,
            sequence: 0,
            query: format!("What is {number}?"),
            answer: format!("A number, and it is {number}."),
            at: Timestamp(1_000 * u64::try_from(number % 1_000_000).unwrap()),
            session_id: SessionId::from_bits(number % 3),
            owner: full.then(|| OwnerId::from_bits(number)),
            scope: full.then(|| "client".to_owned()),
            respondent_id: if full { RespondentId::B } else { RespondentId::A },
            model: "smollm2:135m".to_owned(),
            sampling: SamplingOptions::default(),
            thinking: full,
            finish_reason: full.then_some(FinishReason::Stop),
            intent: full.then(|| "arithmetic".to_owned()),
            entities: if full { vec![number.to_string()] } else { Vec::new() },
            grade: full.then(|| graded(4)),
            pairwise_winner: full.then_some(true),
            user_feedback: full.then_some(Rating::Good),
            correlation_id: QueryId::from_bits(number),
            compared: full.then(|| Compared {
                with: QueryId::from_bits(number + 1),
                log_odds: 0.5,
                consistent: true,
                reason: "It is shorter.".to_owned(),
                jury: Vec::new(),
                judge: "prometheus:7b".to_owned(),
                self_graded: true,
                method: JudgingMethod::Likelihood,
                failure: None,
            }),
            due: full.then(|| Due { comparison: true, reason: Some("timeout".to_owned()), ..Due::default() }),
            source: None,
            is_update: false,
            facts_extracted: false,
            sources: if full { vec![QueryId::from_bits(1)] } else { Vec::new() },
            vetting: Vetting::default(),
        }
    }

    pub(crate) fn graded(score: u8) -> Grade {
        Grade {
            score: Some(score),
            raw_score: Some(score.to_string()),
            feedback: format!("It deserves {score}."),
            expected_score: Some(f64::from(score) - 0.25),
            entropy: Some(0.5),
            rubric: "helpfulness".to_owned(),
            judging: Judging { judge: "prometheus:7b".to_owned(), tokens: 9, seconds: 1.5, ..Judging::default() },
            ..Grade::default()
        }
    }

    #[test]
    fn an_engram_is_read_as_it_was_written() {
        for number in [2, 3] {
            let engram = example(number);
            let text = serde_json::to_string(&engram).unwrap();
            assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
        }
        let failed = Grade {
            score: None,
            judging: Judging { failure: Some("late".into()), ..Judging::default() },
            ..Grade::default()
        };
        let engram = Engram { grade: Some(failed), ..example(2) };
        let text = serde_json::to_string(&engram).unwrap();
        assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
    }

    #[test]
    fn what_is_graded_low_or_likely_wrong_is_not_recalled_unless_a_person_finds_it_good() {
        let likely = |likely| Grade { score: None, likely: Some(likely), ..graded(1) };
        for (grade, rating, expected) in [
            (graded(2), None, false),
            (graded(3), None, true),
            (likely(Likely::Wrong), None, false),
            (likely(Likely::Right), None, true),
            (likely(Likely::Wrong), Some(Rating::Good), true),
            (graded(5), Some(Rating::Bad), false),
        ] {
            let (respondent_id, grade) = (RespondentId::A, Some(grade));
            let engram = Engram { respondent_id, grade, user_feedback: rating, ..example(3) };
            assert_eq!(engram.is_worth_recalling(), expected, "{engram:?}");
        }
    }

    #[test]
    fn the_grade_stands_on_the_engram() {
        let json = serde_json::to_value(example(3)).unwrap();
        let check = |name: &str, expected: Value| assert_eq!(json[name], expected, "{name}");
        check("type", "episodic".into());
        check("critic_score", 4.into());
        check("critic_raw_score", "4".into());
        check("expected_score", 3.75.into());
        check("feedback", "It deserves 4.".into());
        check("judge", "prometheus:7b".into());
        check("self_graded", false.into());
        check("rubric", "helpfulness".into());
        check("pairwise_winner", true.into());
        check("user_feedback", "good".into());
        let ungraded = serde_json::to_value(example(2)).unwrap();
        assert!(ungraded.get("critic_score").unwrap().is_null(), "an unscored engram says so");
    }

    #[test]
    fn a_suspicious_answer_says_so_on_its_engram() {
        let suspicion = Suspicion {
            kind: SuspicionKind::ClaimsScore,
            is_hidden: true,
            passage: "so the overall score is 5".to_owned(),
        };
        let grade = Grade { suspicious: Some(suspicion), ..graded(5) };
        assert_eq!(grade_fields(&grade)["suspicious"]["kind"], "claims_score");
        let engram = Engram { grade: Some(grade), ..example(2) };
        let text = serde_json::to_string(&engram).unwrap();
        assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
        let later = text.replace("claims_score", "flatters");
        let read = serde_json::from_str::<Engram>(&later).unwrap().grade.unwrap().suspicious.unwrap();
        assert_eq!(read.kind, SuspicionKind::Other, "a kind of a later version is read");
    }

    #[test]
    fn what_the_members_of_a_jury_said_stands_on_the_engram() {
        let member = |name: &str, score| Juror { name: name.to_owned(), is_stronger: false, verdict: graded(score) };
        let jury = vec![member("a", 5), member("b", 3)];
        let grade = Grade { spread: Some(2), disputed: true, jury, ..graded(4) };
        let fields = grade_fields(&grade);
        assert_eq!((&fields["critic_spread"], &fields["critic_disputed"]), (&2.into(), &true.into()));
        assert_eq!((&fields["critic_jury"][1]["name"], &fields["critic_jury"][1]["score"]), (&"b".into(), &3.into()));
        let engram = Engram { grade: Some(grade), ..example(2) };
        let text = serde_json::to_string(&engram).unwrap();
        assert_eq!(serde_json::from_str::<Engram>(&text).unwrap(), engram, "{text}");
        assert!(grade_fields(&graded(4))["critic_jury"].is_null(), "a later grade of a single judge takes its place");
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let mut json = serde_json::to_value(example(3)).unwrap();
        for later in ["critic_raw_score", "critic_spread", "critic_disputed", "critic_jury", "critic_remarks"] {
            json.as_object_mut().unwrap().remove(later).unwrap();
        }
        let grade = serde_json::from_value::<Engram>(json).unwrap().grade.unwrap();
        assert_eq!(grade, Grade { raw_score: None, ..graded(4) });
    }

    #[test]
    fn what_a_later_version_wrote_is_read() {
        let mut json = serde_json::to_value(example(3)).unwrap();
        json["mood"] = "curious".into();
        json["sampling"]["top_q"] = 3.into();
        assert_eq!(serde_json::from_value::<Engram>(json).unwrap(), example(3));
    }
}
