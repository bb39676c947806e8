//! Filters for engrams and for events.

use hone_protocol::{Envelope, OwnerId, QueryId, RespondentId, SessionId, Subject, Timestamp, VettingState};
use serde::{Deserialize, Serialize};

use crate::engram::{Engram, EngramKind};

/// The owners whose engrams and events to include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// All owners.
    #[default]
    Everyones,
    /// One owner: a key of the server, or the user at the terminal (`None`).
    Of(Option<OwnerId>),
}

impl Whose {
    /// Whether this owner is included.
    pub fn includes(self, owner: Option<OwnerId>) -> bool {
        match self {
            Whose::Everyones => true,
            Whose::Of(included) => included == owner,
        }
    }
}

/// The scopes of the engrams to include; see [`Engram::scope`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithinScope {
    /// Any scope.
    #[default]
    Any,
    /// This scope alone.
    Only(Option<String>),
    /// Any scope except this one and [those within it](is_within_scope).
    AllBut(String),
}

impl WithinScope {
    fn includes(&self, scope: Option<&String>) -> bool {
        match self {
            WithinScope::Any => true,
            WithinScope::Only(included) => included.as_ref() == scope,
            WithinScope::AllBut(excluded) => !scope.is_some_and(|scope| is_within_scope(scope, excluded)),
        }
    }
}

/// Whether a scope is `outer`, or within it: then its name begins with that of `outer` and a colon.
pub fn is_within_scope(scope: &str, outer: &str) -> bool {
    scope.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// A filter for engrams. The default includes all answers, and no facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filters {
    /// Only engrams of this owner.
    #[serde(default)]
    pub whose: Whose,
    /// Only engrams of this scope.
    #[serde(default)]
    pub scope: WithinScope,
    /// Only engrams of this conversation.
    pub session: Option<SessionId>,
    /// Only engrams of other conversations.
    pub other_than_session: Option<SessionId>,
    /// Only answers by this respondent.
    pub respondent: Option<RespondentId>,
    /// Only answers by this model.
    pub model: Option<String>,
    /// Only answers with at least this score; unscored ones are left out.
    pub min_score: Option<u8>,
    /// Only answers from this time on.
    pub since: Option<Timestamp>,
    /// Only answers before this time.
    pub until: Option<Timestamp>,
    /// Only answers with a score, or only those without one.
    pub scored: Option<bool>,
    /// Only answers that the model ended, or only those that were stopped.
    pub finished: Option<bool>,
    /// Only exchanges with this text in the question or the answer, ignoring case.
    pub text: Option<String>,
    /// Also facts that the user stated.
    #[serde(default)]
    pub facts: bool,
    /// Also notes that were made from memory.
    #[serde(default)]
    pub notes: bool,
    /// Only engrams of this kind, whether facts and notes are included or not.
    #[serde(default)]
    pub kind: Option<EngramKind>,
    /// Only engrams in this state.
    #[serde(default)]
    pub vetting: Option<VettingState>,
    /// Only engrams that no critic has been asked about.
    #[serde(default)]
    pub untried: bool,
    /// Only long-term memory; see [`Engram::is_reviewed`].
    #[serde(default)]
    pub reviewed: bool,
    /// Only engrams that may help to answer another question; see [`Engram::is_worth_recalling`].
    #[serde(default)]
    pub worth_recalling: bool,
    /// Exclude answers whose first words contain one of these phrases, ignoring case.
    #[serde(default)]
    pub unhelpful: Vec<String>,
    /// At least this cosine similarity to the query, -1 to 1; used by searches only.
    pub min_similarity: Option<f32>,
}

impl Filters {
    /// Whether an engram passes the filters, its similarity aside.
    pub fn accept(&self, engram: &Engram) -> bool {
        let score = engram.score();
        self.whose.includes(engram.owner)
            && self.scope.includes(engram.scope.as_ref())
            && self.session.is_none_or(|session| engram.session_id == session)
            && self.other_than_session.is_none_or(|session| engram.session_id != session)
            && self.respondent.is_none_or(|respondent| engram.respondent_id == respondent)
            && self.model.as_ref().is_none_or(|model| engram.model == *model)
            && self.min_score.is_none_or(|least| score.is_some_and(|score| score >= least))
            && self.since.is_none_or(|since| engram.at >= since)
            && self.until.is_none_or(|until| engram.at < until)
            && self.scored.is_none_or(|scored| score.is_some() == scored)
            && self.finished.is_none_or(|finished| engram.finish_reason.is_some() == finished)
            && self.includes(engram.kind)
            && self.vetting.is_none_or(|state| engram.vetting.state == state)
            && (!self.untried || (engram.vetting.note.is_none() && engram.vetting.critique.is_none()))
            && (!self.reviewed || engram.is_reviewed())
            && !begins_with_one_of(&engram.answer, &self.unhelpful)
            && (!self.worth_recalling || engram.is_worth_recalling())
            && self.text.as_ref().is_none_or(|text| holds(engram, text))
    }

    fn includes(&self, kind: EngramKind) -> bool {
        match self.kind {
            Some(only) => kind == only,
            None => kind == EngramKind::Episodic || (kind.is_note() && self.notes) || (!kind.is_note() && self.facts),
        }
    }
}

/// The length of the beginning of an answer that shows whether it helps, in characters.
const FIRST_WORDS: usize = 60;

fn begins_with_one_of(answer: &str, phrases: &[String]) -> bool {
    let beginning: String = answer.chars().take(FIRST_WORDS).collect();
    let beginning = beginning.to_lowercase().replace('’', "'");
    phrases.iter().any(|phrase| beginning.contains(&phrase.to_lowercase()))
}

fn holds(engram: &Engram, text: &str) -> bool {
    let text = text.to_lowercase();
    engram.query.to_lowercase().contains(&text) || engram.answer.to_lowercase().contains(&text)
}

/// A filter for events. The default includes all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventFilter {
    /// Only events of this owner.
    #[serde(default)]
    pub whose: Whose,
    /// Only these subjects; all if empty.
    pub subjects: Vec<Subject>,
    /// Only events of this conversation.
    pub session: Option<SessionId>,
    /// Only events about this question, by either respondent.
    pub query: Option<QueryId>,
    /// Only events from this time on.
    pub since: Option<Timestamp>,
    /// Only the latest n of them.
    pub last: Option<usize>,
}

impl EventFilter {
    /// Whether an event passes the filters, `last` aside.
    pub fn accept(&self, envelope: &Envelope) -> bool {
        let about = [envelope.query_id, envelope.correlation_id];
        self.whose.includes(envelope.owner)
            && (self.subjects.is_empty() || self.subjects.contains(&envelope.subject()))
            && self.session.is_none_or(|session| envelope.session_id == session)
            && self.query.is_none_or(|query| about.contains(&Some(query)))
            && self.since.is_none_or(|since| envelope.at >= since)
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{Feedback, Nothing, Payload, Rating};

    use super::*;
    use crate::engram::tests::example;

    #[test]
    fn a_scope_includes_those_within_it() {
        for (scope, expected) in [
            ("client", true),
            ("client:plain", true),
            ("client:system:1f", true),
            ("clients", false),
            ("system:1f", false),
        ] {
            assert_eq!(is_within_scope(scope, "client"), expected, "{scope}");
            let included = WithinScope::AllBut("client".to_owned()).includes(Some(&scope.to_owned()));
            assert_eq!(included, !expected, "{scope}");
        }
        assert!(WithinScope::AllBut("client".to_owned()).includes(None));
        assert!(!WithinScope::Only(Some("client".to_owned())).includes(Some(&"client:plain".to_owned())));
    }

    /// Checks whether the filters accept the unscored engram 2, and engram 3 with its score of 4.
    #[track_caller]
    fn check(filters: Filters, expected: [bool; 2]) {
        assert_eq!([2, 3].map(|number| filters.accept(&example(number))), expected, "{filters:?}");
    }

    #[test]
    fn engrams_are_filtered() {
        let all = Filters::default;
        check(all(), [true, true]);
        check(Filters { whose: Whose::Of(None), ..all() }, [true, false]);
        check(Filters { whose: Whose::Of(Some(OwnerId::from_bits(3))), ..all() }, [false, true]);
        check(Filters { session: Some(SessionId::from_bits(2)), ..all() }, [true, false]);
        check(Filters { other_than_session: Some(SessionId::from_bits(2)), ..all() }, [false, true]);
        check(Filters { respondent: Some(RespondentId::A), ..all() }, [true, false]);
        check(Filters { model: Some("smollm2:135m".into()), ..all() }, [true, true]);
        check(Filters { model: Some("smollm2".into()), ..all() }, [false, false]);
        check(Filters { min_score: Some(1), ..all() }, [false, true]);
        check(Filters { min_score: Some(5), ..all() }, [false, false]);
        check(Filters { since: Some(Timestamp(3000)), ..all() }, [false, true]);
        check(Filters { until: Some(Timestamp(3000)), ..all() }, [true, false]);
        check(Filters { scored: Some(true), ..all() }, [false, true]);
        check(Filters { scored: Some(false), ..all() }, [true, false]);
        check(Filters { finished: Some(true), ..all() }, [false, true]);
        check(Filters { finished: Some(false), ..all() }, [true, false]);
        check(Filters { vetting: Some(VettingState::Unreviewed), ..all() }, [true, true]);
        check(Filters { vetting: Some(VettingState::Blocked), ..all() }, [false, false]);
        check(Filters { reviewed: true, ..all() }, [false, true]);
        check(Filters { kind: Some(EngramKind::Episodic), ..all() }, [true, true]);
        check(Filters { kind: Some(EngramKind::Research), notes: true, ..all() }, [false, false]);
        check(Filters { text: Some("WHAT is 2".into()), ..all() }, [true, false]);
        check(Filters { text: Some("it is 3".into()), ..all() }, [false, true]);
    }

    #[test]
    fn events_are_filtered() {
        let query = QueryId::from_bits(7);
        let said = Payload::UserFeedback(Feedback { rating: Some(Rating::Good) });
        let feedback =
            Envelope::new("test", SessionId::from_bits(1), said).about(QueryId::from_bits(8), query, RespondentId::B);
        let closed = Envelope::new("test", SessionId::from_bits(2), Payload::SessionClosed(Nothing {}));
        let owner = Some(OwnerId::from_bits(9));
        let closed = closed.owned_by(owner);
        let check = |filter: EventFilter, expected: [bool; 2]| {
            assert_eq!([&feedback, &closed].map(|event| filter.accept(event)), expected, "{filter:?}");
        };
        let all = EventFilter::default;
        check(all(), [true, true]);
        check(EventFilter { whose: Whose::Of(None), ..all() }, [true, false]);
        check(EventFilter { whose: Whose::Of(owner), ..all() }, [false, true]);
        check(EventFilter { subjects: vec![Subject::UserFeedback], ..all() }, [true, false]);
        check(EventFilter { session: Some(SessionId::from_bits(2)), ..all() }, [false, true]);
        check(EventFilter { query: Some(query), ..all() }, [true, false]);
        check(EventFilter { since: Some(Timestamp(u64::MAX)), ..all() }, [false, false]);
    }
}
