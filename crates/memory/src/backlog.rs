//! The backlog: answers whose grade, or whose comparison with the other respondent's answer, is due.
//!
//! Pending work is recorded on the engram itself. It is written together with the answer, and removed by the write that
//! stores the verdict or the final reason for its absence, so an answer is never graded twice and its grade is never
//! forgotten. A record per such engram names the process that works on it; an import or a repair recreates these
//! records from the engrams.
//!
//! A process holds a lease on its claims. While a [`Holder`](crate::Holder) lives it renews the lease; when it is
//! dropped, its claims are free again, and when its process is killed they are free as soon as the lease expires.

use std::time::Duration;

use hone_protocol::{HolderId, OwnerId, Prospect, QueryId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The field of an engram with its pending work.
pub(crate) const DUE: &str = "due";

/// The number of missing verdicts from a judge after which the absence is final.
const MOST_WITHOUT_VERDICT: u32 = 2;

/// The pending judging of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Its grade.
    #[serde(default)]
    pub grade: bool,
    /// Its comparison with the other respondent's answer, recorded on the engram of respondent B.
    #[serde(default)]
    pub comparison: bool,
    /// The number of failed attempts.
    #[serde(default)]
    pub failures: u32,
    /// The number of times that the judge wrote no verdict.
    #[serde(default)]
    pub without_verdict: u32,
    /// The reason for the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Due {
    /// The pending work of a new answer: its grade and, for respondent B's answer, the comparison.
    pub fn fresh(comparison: bool) -> Due {
        Due { grade: true, comparison, ..Due::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.grade && !self.comparison
    }

    /// Records an attempt without a verdict; returns whether that is final.
    pub(crate) fn fail(&mut self, reason: &str) -> bool {
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

    pub(crate) fn judged(&mut self) {
        (self.failures, self.without_verdict, self.reason) = (0, 0, None);
    }

    pub(crate) fn into_fields(self) -> Map<String, Value> {
        std::iter::once((DUE.to_owned(), self.into_value())).collect()
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
    /// Its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// The time of the answer.
    pub at: Timestamp,
    /// The pending work.
    pub due: Due,
    /// Whether a process works on it.
    pub is_held: bool,
}

/// The answers that a process wants to work on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// These answers.
    These(Vec<QueryId>),
    /// At most this many: those with the fewest failures, oldest first.
    Next(usize),
}

/// A process that claims answers, and the length of its lease without renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) holder: HolderId,
    pub(crate) milliseconds: u64,
}

impl Lease {
    pub(crate) fn new(holder: HolderId, length: Duration) -> Lease {
        Lease { holder, milliseconds: u64::try_from(length.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// Whether a lease until `until` that was given for `length` is in force. A clock that was set back ends it.
pub(crate) fn is_in_force(until: Timestamp, length: Duration, now: Timestamp) -> bool {
    let left = until.0.saturating_sub(now.0);
    left > 0 && u128::from(left) <= length.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

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
