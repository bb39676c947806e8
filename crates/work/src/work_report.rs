//! Statistics over tasks: how many are accepted and at which attempt, how many feedback saves, the duration of phases,
//! how often a person is needed, and the findings of tools.

use std::collections::{BTreeMap, BTreeSet};

use hone_judging::{Share, counted};
use hone_protocol::{GateAction, Timestamp};
use serde::Serialize;

use crate::{TaskPhase, TaskRecord, TaskState};

/// The type of tasks that name none.
pub const UNNAMED_TYPE: &str = "task";

/// Statistics over tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkReport {
    /// Tasks of each type.
    pub types: BTreeMap<String, TypeFigures>,
    /// Attempts at each phase.
    pub phases: BTreeMap<String, PhaseFigures>,
    /// The share of tasks that a person had to decide about, by the period in which they began (milliseconds since
    /// 1970); empty unless a trend is requested.
    pub escalations: BTreeMap<u64, Share>,
}

/// Statistics over the tasks of a type, without tasks that agents still work on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TypeFigures {
    /// Tasks that agents have worked on.
    pub tasks: u64,
    /// The gate's decisions about all attempts, including those of tasks in progress.
    pub decisions: Decisions,
    /// Accepted tasks.
    pub accepted: Share,
    /// Tasks that were accepted at the first attempt at the work itself.
    pub pass_at_1: Share,
    /// Tasks that were accepted within three attempts.
    pub pass_at_3: Share,
    /// Of the tasks whose first attempt failed, those that were accepted after feedback, without a person.
    pub saved_by_feedback: Share,
    /// Tasks that a person had to decide about.
    pub escalated: Share,
    /// Of the tasks that the gate escalated and a person decided about, those that were accepted unchanged: the gate
    /// was wrong.
    pub false_alarms: Share,
}

/// The gate's decisions about attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Decisions {
    /// The number of attempts.
    pub attempts: u64,
    /// The accepted share.
    pub accepted: f64,
    /// The share retried by the same agent.
    pub retried: f64,
    /// The share reassigned to another agent.
    pub reassigned: f64,
    /// The share escalated to a person.
    pub escalated: f64,
}

/// Statistics over the attempts at a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// The number of attempts.
    pub attempts: u64,
    /// Attempts that the gate accepted.
    pub accepted: Share,
    /// The median time from the beginning of an attempt to the decision, in seconds; `None` if no attempt has a known
    /// duration.
    pub median_seconds: Option<f64>,
}

impl WorkReport {
    /// The statistics over these tasks. `period` maps a time to the beginning of its period.
    pub fn of(records: &[&TaskRecord], phases: &[TaskPhase], period: Option<impl Fn(u64) -> u64>) -> WorkReport {
        let ended: Vec<EndedTask<'_>> = records.iter().filter_map(|record| EndedTask::new(record, phases)).collect();
        let kinds: BTreeSet<&str> = records.iter().copied().map(type_of).collect();
        let mut periods: BTreeMap<u64, Vec<&EndedTask<'_>>> = BTreeMap::new();
        for task in &ended {
            if let Some(period) = &period {
                periods.entry(period(task.record.created.0)).or_default().push(task);
            }
        }
        WorkReport {
            types: kinds.into_iter().map(|kind| (kind.to_owned(), TypeFigures::of(kind, records, &ended))).collect(),
            phases: phase_figures(records),
            escalations: periods
                .into_iter()
                .map(|(at, tasks)| (at, share(&tasks, |task| task.is_escalated())))
                .collect(),
        }
    }
}

/// A task that no agent works on anymore.
struct EndedTask<'a> {
    record: &'a TaskRecord,
    is_accepted: bool,
    /// Attempts at the work itself, up to the accepted one.
    n_attempts: usize,
}

impl<'a> EndedTask<'a> {
    fn new(record: &'a TaskRecord, phases: &[TaskPhase]) -> Option<EndedTask<'a>> {
        let (is_accepted, outcomes) = (record.is_accepted()?, record.outcomes(phases));
        let n_failed: usize = outcomes.iter().map(|outcome| outcome.failures).sum();
        let n_attempts = n_failed + usize::from(is_accepted);
        (!outcomes.is_empty()).then_some(EndedTask { record, is_accepted, n_attempts })
    }

    fn is_accepted_within(&self, n: usize) -> bool {
        self.is_accepted && self.n_attempts <= n
    }

    fn is_escalated(&self) -> bool {
        let is_escalation = |action| action == GateAction::Escalate;
        let mut decisions = self.record.attempts.iter().filter_map(|attempt| attempt.decision.as_ref());
        decisions.any(|decision| is_escalation(decision.action))
    }

    /// Whether a person accepted work that the gate had escalated.
    fn is_false_alarm(&self) -> bool {
        self.is_accepted && self.record.last_action() == Some(GateAction::Escalate)
    }
}

impl TypeFigures {
    fn of(kind: &str, records: &[&TaskRecord], ended: &[EndedTask<'_>]) -> TypeFigures {
        let tasks: Vec<&EndedTask<'_>> = ended.iter().filter(|task| type_of(task.record) == kind).collect();
        let tasks = tasks.as_slice();
        let some = |is_some: &dyn Fn(&EndedTask<'_>) -> bool| -> Vec<&EndedTask<'_>> {
            tasks.iter().copied().filter(|task| is_some(task)).collect()
        };
        let decided = some(&|task| task.is_escalated() && task.record.state != TaskState::Waiting);
        let retried = some(&|task| task.n_attempts > 1 || !task.is_accepted);
        TypeFigures {
            tasks: tasks.len() as u64,
            decisions: Decisions::of(records.iter().copied().filter(|record| type_of(record) == kind)),
            accepted: share(tasks, |task| task.is_accepted),
            pass_at_1: share(tasks, |task| task.is_accepted_within(1)),
            pass_at_3: share(tasks, |task| task.is_accepted_within(3)),
            saved_by_feedback: share(&retried, |task| task.is_accepted && !task.is_escalated()),
            escalated: share(tasks, |task| task.is_escalated()),
            false_alarms: share(&decided, |task| task.is_false_alarm()),
        }
    }
}

impl Decisions {
    fn of<'a>(records: impl Iterator<Item = &'a TaskRecord>) -> Decisions {
        let decisions = records.flat_map(|record| &record.attempts).filter_map(|attempt| attempt.decision.as_ref());
        let actions: Vec<GateAction> = decisions.map(|decision| decision.action).collect();
        let of = |action| {
            let count = actions.iter().filter(|taken| **taken == action).count();
            count as f64 / actions.len().max(1) as f64
        };
        Decisions {
            attempts: actions.len() as u64,
            accepted: of(GateAction::Accept),
            retried: of(GateAction::Retry),
            reassigned: of(GateAction::Reassign),
            escalated: of(GateAction::Escalate),
        }
    }
}

fn share(tasks: &[&EndedTask<'_>], is_counted: impl Fn(&EndedTask<'_>) -> bool) -> Share {
    Share::new(tasks.iter().filter(|task| is_counted(task)).count() as u64, tasks.len() as u64)
}

fn phase_figures(records: &[&TaskRecord]) -> BTreeMap<String, PhaseFigures> {
    let mut phases: BTreeMap<&str, (u64, u64, Vec<f64>)> = BTreeMap::new();
    for attempt in records.iter().flat_map(|record| &record.attempts) {
        let Some(decision) = &attempt.decision else { continue };
        let (attempts, accepted, seconds) = phases.entry(&attempt.phase).or_default();
        *attempts += 1;
        *accepted += u64::from(decision.action == GateAction::Accept);
        seconds.extend(attempt.ended.map(|ended| seconds_between(attempt.started, ended)));
    }
    let figures = |(attempts, accepted, seconds)| PhaseFigures {
        attempts,
        accepted: Share::new(accepted, attempts),
        median_seconds: median(seconds),
    };
    phases.into_iter().map(|(name, counts)| (name.to_owned(), figures(counts))).collect()
}

fn seconds_between(start: Timestamp, end: Timestamp) -> f64 {
    end.0.saturating_sub(start.0) as f64 / 1000.0
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// The type of a task in statistics.
pub fn type_of(record: &TaskRecord) -> &str {
    Some(record.assignment.kind.as_str()).filter(|kind| !kind.is_empty()).unwrap_or(UNNAMED_TYPE)
}

/// Findings of tools and reviewers about an agent's attempts, without their locations, so that one finding in many
/// files counts once.
pub fn findings_about(record: &TaskRecord, agent: &str) -> Vec<String> {
    let attempts = record.attempts.iter().filter(|attempt| attempt.agent == agent);
    let results = attempts.flat_map(|attempt| &attempt.results);
    results
        .flat_map(|result| {
            let found = result.suggestions.iter().map(|text| format!("{}: {}", result.evaluator, without_place(text)));
            // A tool names each rule once for each location.
            counted(found.collect::<Vec<_>>().iter().map(String::as_str)).into_iter().map(|(text, _)| text)
        })
        .collect()
}

/// A finding without the file and the lines at its beginning.
fn without_place(text: &str) -> &str {
    let Some((place, rest)) = text.split_once(": ") else { return text };
    let place = place.rsplit(' ').next().unwrap_or(place);
    let mut parts = place.split(':');
    let path = parts.next().unwrap_or_default();
    let is_path = path.contains(['.', '/']) && !path.ends_with('.');
    let are_numbers = parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if is_path && are_numbers { rest } else { text }
}

#[cfg(test)]
mod tests {
    use hone_protocol::GateAction::{Accept, Escalate, Reassign, Retry};

    use super::*;
    use crate::tasks::outcome_tests::{attempt, record};

    const DAY: u64 = 86_400_000;

    fn report(records: &[TaskRecord]) -> WorkReport {
        let phases = TaskPhase::all(toml::Table::new()).unwrap();
        let records: Vec<&TaskRecord> = records.iter().collect();
        WorkReport::of(&records, &phases, Some(|at| at / DAY * DAY))
    }

    #[test]
    fn tasks_are_counted_by_the_attempt_at_which_they_were_accepted() {
        let [first, second, fourth] = [1, 2, 4].map(|n| {
            let mut attempts = vec![attempt("discovery", "a", Accept)];
            attempts.extend((1..n).map(|_| attempt("coding", "a", Retry)));
            attempts.push(attempt("coding", "a", Accept));
            record(TaskState::Accepted, attempts)
        });
        let failed = vec![attempt("coding", "a", Reassign), attempt("coding", "b", Escalate)];
        let mut late = record(TaskState::Rejected, failed.clone());
        late.created = Timestamp(3 * DAY + 5);
        // A person has accepted the work of b unchanged, after one attempt by each agent.
        let overruled = record(TaskState::Accepted, failed.clone());
        let working = record(TaskState::Working, Vec::new());
        let report = report(&[first, second, fourth, late, overruled, record(TaskState::Waiting, failed), working]);
        let python = &report.types["python"];
        assert_eq!((python.tasks, python.accepted), (6, Share::new(4, 6)));
        assert_eq!((python.pass_at_1, python.pass_at_3), (Share::new(1, 6), Share::new(3, 6)));
        assert_eq!((python.saved_by_feedback, python.escalated), (Share::new(2, 5), Share::new(3, 6)));
        assert_eq!((python.decisions.attempts, python.decisions.retried), (16, 0.25));
        assert_eq!(python.false_alarms, Share::new(1, 2), "a person accepted one, and rejected the other");
        assert_eq!(report.escalations, BTreeMap::from([(0, Share::new(2, 5)), (3 * DAY, Share::new(1, 1))]));
        let coding = &report.phases["coding"];
        assert_eq!((coding.attempts, coding.accepted, coding.median_seconds), (13, Share::new(3, 13), Some(2.0)));
    }

    #[test]
    fn a_finding_is_the_same_in_every_file() {
        for (text, expected) in [
            ("src/a.py:3:1: F401 `os` imported but unused", "F401 `os` imported but unused"),
            ("fix src/a.py:3: F401 unused", "F401 unused"),
            ("tests/test_a.py::test_add: assert 1 == 2", "tests/test_a.py::test_add: assert 1 == 2"),
            ("write the file: a.py", "write the file: a.py"),
            ("add tests", "add tests"),
        ] {
            assert_eq!(without_place(text), expected);
        }
    }
}
