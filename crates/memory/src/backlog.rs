//! The backlog: answers whose grade, or whose comparison with the other respondent's answer, is due.
//!
//! What is due stands on the engram itself. It is written together with the answer, and goes in the write that stores the
//! verdict or the final reason why there is none, so an answer is never graded twice and its grade is never forgotten. A
//! record per such engram names the process that works on it; it is made anew from the engrams by an import or a repair.
//!
//! A process holds what it works on by a lease. While a [`Holder`] lives it renews the lease; when it is dropped everything
//! that it held is free again, and when its process is killed that happens as soon as the lease has run out.

use std::convert::Infallible;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use hone_protocol::{Comparison, Grade, HolderId, Prospect, QueryId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engram::{Engram, field, grade_fields};
use crate::store::MemoryStore;

/// The field of an engram that says what is due.
pub(crate) const DUE: &str = "due";

/// Verdicts that a judge may fail to write before that is final.
const MOST_WITHOUT_VERDICT: u32 = 2;

/// A lease is renewed after this part of its length.
const RENEWALS_PER_LEASE: u32 = 3;

/// What of an answer's judging is due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Its grade.
    #[serde(default)]
    pub grade: bool,
    /// Its comparison with the other respondent's answer. It stands on the engram of respondent B.
    #[serde(default)]
    pub comparison: bool,
    /// How often judging it has failed.
    #[serde(default)]
    pub failures: u32,
    /// How often the judge wrote no verdict.
    #[serde(default)]
    pub without_verdict: u32,
    /// Why it was not judged the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Due {
    /// What is due of an answer that was just given: its grade and, of respondent B's answer, the comparison.
    pub fn fresh(comparison: bool) -> Due {
        Due { grade: true, comparison, ..Due::default() }
    }

    fn is_empty(&self) -> bool {
        !self.grade && !self.comparison
    }

    /// Takes note of an attempt without a verdict; returns whether that is final.
    fn fail(&mut self, reason: &str) -> bool {
        self.reason = Some(reason.to_owned());
        match Prospect::of(reason) {
            Prospect::Final => return true,
            Prospect::Unjudged => {}
            Prospect::Failed => self.failures += 1,
            Prospect::Doubtful => {
                self.failures += 1;
                self.without_verdict += 1;
            }
        }
        self.without_verdict >= MOST_WITHOUT_VERDICT
    }

    fn judged(&mut self) {
        (self.failures, self.without_verdict, self.reason) = (0, 0, None);
    }

    pub(crate) fn into_fields(self) -> Map<String, Value> {
        field(DUE, self.into_value())
    }

    pub(crate) fn into_value(self) -> Value {
        if self.is_empty() { Value::Null } else { serde_json::to_value(self).unwrap_or_default() }
    }
}

/// An answer in the backlog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogEntry {
    /// Its id.
    pub query_id: QueryId,
    /// The time of the answer.
    pub at: Timestamp,
    /// What is due.
    pub due: Due,
    /// Whether a process works on it.
    pub is_held: bool,
}

/// Which answers a process wants to work on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// These.
    These(Vec<QueryId>),
    /// At most this many: those that have failed least, and among these the oldest.
    Next(usize),
}

/// What is due according to an engram's fields.
pub(crate) fn due_in(fields: &Map<String, Value>) -> Option<Due> {
    let due: Due = serde_json::from_value(fields.get(DUE)?.clone()).ok()?;
    Some(due).filter(|due| !due.is_empty())
}

/// The fields that change when an answer was graded, or could not be. A grade without a score changes no earlier score, and
/// stands on the engram only where its reason is final.
pub(crate) fn after_grading(stored: &Map<String, Value>, grade: &Grade) -> Map<String, Value> {
    let is_scored = stored.get("critic_score").is_some_and(|score| !score.is_null());
    let mut due = due_in(stored).unwrap_or_default();
    let is_final = match &grade.judging.failure {
        _ if grade.score.is_some() => {
            due.judged();
            true
        }
        Some(failure) => due.fail(failure),
        None => false,
    };
    let stands = is_final && (grade.score.is_some() || !is_scored);
    let mut fields = if stands { grade_fields(grade) } else { Map::new() };
    if due_in(stored).is_some() {
        due.grade &= !is_final;
        fields.extend(due.into_fields());
    }
    fields
}

/// What is still due of an engram that was put together from several sources: no grade that one of them has.
pub(crate) fn still_due(engram: &Map<String, Value>) -> Map<String, Value> {
    let is_there = |name: &str| engram.get(name).is_some_and(|value| !value.is_null());
    let Some(due) = due_in(engram) else { return Map::new() };
    let due = Due {
        grade: due.grade && !is_there("critic_score"),
        comparison: due.comparison && !is_there("compared"),
        ..due
    };
    due.into_fields()
}

/// Whether what a comparison says is to stand on the engrams: a verdict, or the final reason why there is none.
/// `stored` is the engram of respondent B, on which the comparison is due.
pub(crate) fn is_final_comparison(stored: Option<&Map<String, Value>>, comparison: &Comparison) -> bool {
    let mut due = stored.and_then(due_in).unwrap_or_default();
    comparison.preference.judging.failure.as_ref().is_none_or(|failure| due.fail(failure))
}

/// The field that changes on respondent B's engram when the answers were compared, or could not be.
pub(crate) fn due_after_comparing(stored: &Map<String, Value>, comparison: &Comparison) -> Map<String, Value> {
    let Some(mut due) = due_in(stored) else { return Map::new() };
    let is_final = match &comparison.preference.judging.failure {
        None => true,
        Some(failure) => due.fail(failure),
    };
    due.comparison &= !is_final;
    due.into_fields()
}

/// What a process works on of the backlog. Dropping it makes all of that free again.
pub struct Holder {
    id: HolderId,
    store: MemoryStore,
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    /// Starts to hold; nothing is held yet.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(store: &MemoryStore) -> io::Result<Holder> {
        let (id, renewing) = (HolderId::fresh(), store.clone());
        let (stop, stopped) = bounded::<Infallible>(0);
        let rest = store.lease() / RENEWALS_PER_LEASE;
        let renew = move || {
            while stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = renewing.renew(id) {
                    tracing::debug!(%error, "the lease on due answers is not renewed");
                }
            }
        };
        let thread = thread::Builder::new().name("memory-lease".to_owned()).spawn(renew)?;
        Ok(Holder { id, store: store.clone(), stop: Some(stop), thread: Some(thread) })
    }

    /// Its name.
    pub fn id(&self) -> HolderId {
        self.id
    }

    /// Claims those of these answers that are due and that nobody works on.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn claim(&self, ids: Vec<QueryId>) -> Result<Vec<Engram>, crate::MemoryError> {
        self.store.claim(self.id, Wanted::These(ids))
    }

    /// Claims the next answer: of those that nobody works on the one that has failed least, and among these the oldest.
    ///
    /// # Errors
    /// When memory cannot be read or written.
    pub fn claim_next(&self) -> Result<Option<Engram>, crate::MemoryError> {
        Ok(self.store.claim(self.id, Wanted::Next(1))?.pop())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
        if let Err(error) = self.store.release(self.id) {
            tracing::debug!(%error, "due answers are free once the lease on them has run out");
        }
    }
}

/// Whether a lease until `until` that was given for `length` is in force. A clock that was set back ends it.
pub(crate) fn is_in_force(until: Timestamp, length: Duration, now: Timestamp) -> bool {
    let left = until.0.saturating_sub(now.0);
    left > 0 && u128::from(left) <= length.as_millis()
}

#[cfg(test)]
mod tests {
    use hone_protocol::prospect::{CANCELLED, NO_VERDICT, SESSION_CLOSED};

    use super::*;
    use crate::engram::tests::graded;

    /// What stands on an engram after these verdicts on it, where its grade was due at first.
    #[track_caller]
    fn check(grades: &[Grade], expected: (Option<u8>, Option<&str>, Option<(u32, &str)>)) {
        let mut stored = Due::fresh(false).into_fields();
        for grade in grades {
            stored.extend(after_grading(&stored, grade));
        }
        let due = due_in(&stored);
        let score = stored.get("critic_score").and_then(Value::as_u64).map(|score| score as u8);
        let failure = stored.get("judging_failure").and_then(Value::as_str);
        let due = due.as_ref().map(|due| (due.failures, due.reason.as_deref().unwrap_or_default()));
        assert_eq!((score, failure, due), expected);
    }

    #[test]
    fn a_null_stands_only_where_it_is_final() {
        let unscored = Grade::unscored;
        check(&[], (None, None, Some((0, ""))));
        check(&[graded(4)], (Some(4), None, None));
        check(&[unscored(CANCELLED)], (None, Some(CANCELLED), None));
        check(&[unscored(SESSION_CLOSED)], (None, None, Some((0, SESSION_CLOSED))));
        check(&[unscored("timeout"), unscored("timeout")], (None, None, Some((2, "timeout"))));
        check(&[unscored("timeout"), graded(2)], (Some(2), None, None));
        check(&[unscored(NO_VERDICT)], (None, None, Some((1, NO_VERDICT))));
        check(&[unscored(NO_VERDICT), unscored("timeout"), graded(2)], (Some(2), None, None));
        check(&[unscored(NO_VERDICT), unscored(NO_VERDICT)], (None, Some(NO_VERDICT), None));
        check(&[graded(4), unscored(CANCELLED)], (Some(4), None, None));
        check(&[graded(4), unscored("timeout")], (Some(4), None, None));
    }

    #[test]
    fn what_is_not_due_does_not_become_so_by_a_failure() {
        assert_eq!(after_grading(&Map::new(), &Grade::unscored("timeout")), Map::new());
    }

    #[test]
    fn a_lease_ends_with_its_time_or_when_the_clock_is_set_back() {
        let length = Duration::from_secs(30);
        let check = |until, now, expected| {
            assert_eq!(is_in_force(Timestamp(until), length, Timestamp(now)), expected, "{until} at {now}");
        };
        check(40_000, 10_000, true);
        check(40_000, 39_999, true);
        check(40_000, 40_000, false);
        check(40_000, 9_999, false);
    }
}
