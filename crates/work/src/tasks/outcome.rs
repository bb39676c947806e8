//! The outcome of a task for each agent that worked on it: whether its work was accepted, and after how many attempts.

use hone_protocol::{GateAction, Timestamp};

use super::record::{TaskRecord, TaskState, WorkAttempt};
use crate::TaskPhase;

/// The outcome of a task for one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOutcome {
    /// The agent's model.
    pub agent: String,
    /// The temperature of its first attempt, if it is known.
    pub temperature: Option<f32>,
    /// Whether it reasoned before that answer.
    pub thinking: bool,
    /// Failed attempts: those that the gate did not accept, and accepted ones whose work failed its verification.
    pub failures: usize,
    /// Whether its work was accepted. Work that another agent had to finish counts for that agent.
    pub is_accepted: bool,
    /// The beginning of its first attempt.
    pub at: Timestamp,
}

impl AgentOutcome {
    /// 1 for work that was accepted at the first attempt, 1/n at the nth, and 0 for work that was not accepted.
    pub fn score(&self) -> f64 {
        if self.is_accepted { 1.0 / (1 + self.failures) as f64 } else { 0.0 }
    }
}

impl TaskRecord {
    /// The outcomes of the agents that wrote a part of the result, in the order in which they began. An agent still at
    /// work has no outcome yet.
    pub fn outcomes(&self, phases: &[TaskPhase]) -> Vec<AgentOutcome> {
        let mut outcomes: Vec<AgentOutcome> = Vec::new();
        let mut last = None;
        for attempt in &self.attempts {
            let Some(decision) = &attempt.decision else { continue };
            let has_passed = decision.action == GateAction::Accept;
            if is_work(attempt, phases) {
                let known = outcomes.iter().position(|outcome| outcome.agent == attempt.agent);
                last = Some(known.unwrap_or_else(|| {
                    let &WorkAttempt { ref agent, temperature, thinking, started: at, .. } = attempt;
                    let agent = agent.clone();
                    outcomes.push(AgentOutcome { agent, temperature, thinking, failures: 0, is_accepted: false, at });
                    outcomes.len() - 1
                }));
            } else if has_passed || !is_evaluation(attempt) {
                continue;
            }
            if let Some(outcome) = last.and_then(|last| outcomes.get_mut(last)) {
                outcome.is_accepted = has_passed;
                outcome.failures += usize::from(!has_passed);
            }
        }
        let is_overruled = self.state == TaskState::Accepted && self.last_action() == Some(GateAction::Escalate);
        match (last, self.is_accepted()) {
            (Some(last), None) => drop(outcomes.remove(last)),
            (_, Some(false)) => outcomes.iter_mut().for_each(|outcome| outcome.is_accepted = false),
            (Some(last), Some(true)) if is_overruled => outcomes[last].is_accepted = true,
            _ => {}
        }
        outcomes
    }

    /// Whether the work was accepted; `None` while it is in progress. A task that waits because all attempts are used
    /// up counts as not accepted until a person accepts it.
    pub(crate) fn is_accepted(&self) -> Option<bool> {
        match self.state {
            TaskState::Working => None,
            TaskState::Delivering | TaskState::Accepted => Some(true),
            TaskState::Rejected => Some(false),
            TaskState::Waiting => Some(self.last_action() == Some(GateAction::Accept)),
        }
    }

    /// The gate's latest decision.
    pub(crate) fn last_action(&self) -> Option<GateAction> {
        Some(self.attempts.last()?.decision.as_ref()?.action)
    }
}

/// Whether an agent wrote a part of the result in an attempt, and it could be evaluated.
pub(crate) fn is_work(attempt: &WorkAttempt, phases: &[TaskPhase]) -> bool {
    let delivers = phases.iter().find(|phase| phase.name == attempt.phase).is_none_or(|phase| phase.delivers);
    delivers && is_scored(attempt) && attempt.answer.as_ref().is_some_and(|answer| !answer.is_empty())
}

/// Whether an attempt only evaluates the existing work.
pub(crate) fn is_evaluation(attempt: &WorkAttempt) -> bool {
    is_scored(attempt) && attempt.answer.as_ref().is_some_and(String::is_empty)
}

fn is_scored(attempt: &WorkAttempt) -> bool {
    attempt.decision.as_ref().is_some_and(|decision| decision.score.is_some())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use hone_protocol::{GateDecision, TaskId};

    use super::*;
    use crate::Assignment;

    /// An attempt with this phase, agent and gate decision. Each takes two seconds.
    pub(crate) fn attempt(phase: &str, agent: &str, action: GateAction) -> WorkAttempt {
        let (reason, score, feedback) = (String::new(), Some(0.9), String::new());
        WorkAttempt {
            phase: phase.to_owned(),
            number: 1,
            agent: agent.to_owned(),
            temperature: None,
            thinking: false,
            started: Timestamp(1_000),
            ended: Some(Timestamp(3_000)),
            calls: Vec::new(),
            candidates: Vec::new(),
            chosen: None,
            answer: Some("=== a.py".to_owned()),
            form_error: None,
            results: Vec::new(),
            critics: Vec::new(),
            decision: Some(GateDecision { action, reason, score, agent: None, feedback }),
        }
    }

    pub(crate) fn record(state: TaskState, attempts: Vec<WorkAttempt>) -> TaskRecord {
        TaskRecord {
            id: TaskId::fresh(),
            assignment: Assignment::parse("goal = \"add\"\ntype = \"python\"\n").unwrap(),
            workspace: "/tmp".into(),
            created: Timestamp(1_000),
            state,
            phase: 0,
            attempts,
            round: 0,
            files: BTreeMap::new(),
            tests_before: None,
            notes: Vec::new(),
            learned: 0,
        }
    }

    fn scores(state: TaskState, attempts: Vec<WorkAttempt>) -> Vec<(String, f64)> {
        let phases = TaskPhase::all(toml::Table::new()).unwrap();
        let outcomes = record(state, attempts).outcomes(&phases);
        outcomes.into_iter().map(|outcome| (outcome.agent.clone(), outcome.score())).collect()
    }

    fn scored(scores: &[(&str, f64)]) -> Vec<(String, f64)> {
        scores.iter().map(|(agent, score)| ((*agent).to_owned(), *score)).collect()
    }

    #[test]
    fn a_plan_and_an_evaluation_are_no_work() {
        use GateAction::Accept;
        let evaluated = WorkAttempt { answer: Some(String::new()), ..attempt("verification", "c", Accept) };
        let attempts = vec![attempt("discovery", "a", Accept), attempt("coding", "b", Accept), evaluated];
        assert_eq!(scores(TaskState::Accepted, attempts), scored(&[("b", 1.0)]));
    }

    #[test]
    fn an_agent_that_fails_has_no_credit_for_what_the_next_one_does() {
        use GateAction::{Accept, Reassign, Retry};
        let attempts =
            vec![attempt("coding", "a", Retry), attempt("coding", "a", Reassign), attempt("coding", "b", Accept)];
        assert_eq!(scores(TaskState::Accepted, attempts.clone()), scored(&[("a", 0.0), ("b", 1.0)]));
        assert_eq!(scores(TaskState::Working, attempts), scored(&[("a", 0.0)]), "b is still at work");
    }

    #[test]
    fn work_that_fails_its_verification_was_no_success() {
        use GateAction::{Accept, Retry};
        let verified = |action| WorkAttempt { answer: Some(String::new()), ..attempt("verification", "a", action) };
        let passed = vec![attempt("coding", "a", Accept), verified(Accept)];
        assert_eq!(scores(TaskState::Accepted, passed), scored(&[("a", 1.0)]));
        let repaired = |by| vec![attempt("coding", "a", Accept), verified(Retry), attempt("verification", by, Accept)];
        assert_eq!(scores(TaskState::Accepted, repaired("a")), scored(&[("a", 0.5)]));
        assert_eq!(scores(TaskState::Accepted, repaired("b")), scored(&[("a", 0.0), ("b", 1.0)]));
        let in_two_phases = vec![attempt("coding", "b", Accept), attempt("verification", "a", Accept)];
        assert_eq!(scores(TaskState::Accepted, in_two_phases), scored(&[("b", 1.0), ("a", 1.0)]));
    }

    #[test]
    fn of_four_tasks_a_model_that_fails_three_has_a_mean_of_a_quarter() {
        use GateAction::{Accept, Escalate, Retry};
        let failed = vec![attempt("coding", "a", Retry), attempt("coding", "a", Escalate)];
        let tasks = [
            (TaskState::Waiting, failed.clone()),
            (TaskState::Rejected, failed.clone()),
            (TaskState::Waiting, failed.clone()),
            (TaskState::Accepted, vec![attempt("coding", "a", Accept)]),
        ];
        let total: f64 = tasks.into_iter().flat_map(|(state, attempts)| scores(state, attempts)).map(|it| it.1).sum();
        assert_eq!(total / 4.0, 0.25);
        assert_eq!(scores(TaskState::Accepted, failed), scored(&[("a", 1.0 / 3.0)]), "a person has accepted it");
        let in_conflict = vec![attempt("coding", "a", Accept)];
        assert_eq!(scores(TaskState::Waiting, in_conflict), scored(&[("a", 1.0)]), "only the workspace has changed");
    }
}
