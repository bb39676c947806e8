//! The loop of a task: answer, apply, evaluate, decide, until it is accepted or needs a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use hone_protocol::{
    Envelope, EvaluationResult, GateAction, GateDecision, GenerateRequest, Payload, SessionId, Timestamp, WorkDecided,
    WorkEvaluated, WorkStep,
};

use super::delivery;
use super::exploring::WorkToolCall;
use super::learned::keep_lessons;
use super::record::{TaskError, TaskRecord, TaskState, TaskStore, WorkAttempt, file_error};
use super::staging::Staging;
use crate::evaluating::{DirectoryFiles, EvaluatorSet, ToolSettings};
use crate::{Author, EvaluationContext, EvaluatorTool, GateConfig, Reviewers, TaskPhase, decide};

/// The event sender's name.
const NAME: &str = "tasks";

/// A progress report of a run.
#[derive(Clone, Debug)]
pub enum TaskProgress<'a> {
    /// An agent begins an attempt.
    Attempt(&'a WorkAttempt),
    /// It explored the workspace before it answers.
    Called(&'a WorkToolCall),
    /// One of several candidates is evaluated.
    Candidate {
        /// Its number, from 1.
        number: usize,
        /// The number of candidates.
        of: usize,
    },
    /// An evaluator has ended.
    Evaluated(&'a EvaluationResult),
    /// The gate has decided.
    Decided(&'a GateDecision),
}

/// Works on tasks.
pub struct TaskRunner {
    /// Gets text from the agents' models.
    pub author: Arc<dyn Author>,
    /// The template of all requests to agents: sampling, reasoning, stop conditions, and a token limit, if it is below
    /// the phase's.
    pub request: GenerateRequest,
    /// The agent of the first attempt, if the gate has no ladder.
    pub agent: String,
    /// The phases.
    pub phases: Vec<TaskPhase>,
    /// The tools that evaluate.
    pub tools: Vec<EvaluatorTool>,
    /// Settings of the tools; their workspace is the copy of each task.
    pub tool_settings: ToolSettings,
    /// Asks models about the work.
    pub reviewers: Reviewers,
    /// The conditions for accepting work.
    pub gate: GateConfig,
    /// Publishes an event.
    pub publish: Box<dyn Fn(Envelope) + Send + Sync>,
    /// The storage of tasks.
    pub store: TaskStore,
}

/// Receives progress reports.
pub(super) type ProgressSink<'h> = dyn FnMut(TaskProgress<'_>) + 'h;

impl TaskRunner {
    /// Works on a task until it is accepted, or waits for a person. A run that ends early can be repeated.
    ///
    /// # Errors
    /// When one of the task's phases is not configured, another process works on the task, a file cannot be used, a model
    /// fails, or the run is stopped.
    pub fn run(&self, mut record: TaskRecord, heard: &mut ProgressSink<'_>) -> Result<TaskRecord, TaskError> {
        if record.state == TaskState::Working
            && let Some(phase) = TaskPhase::missing(&self.phases, &record.assignment)
        {
            return Err(TaskError::UnknownPhase { task: record.id, phase: phase.to_owned() });
        }
        let _lock = self.store.lock(record.id)?;
        let staging = Staging::open(self.store.folder_of(record.id), &record.workspace)?;
        let settings = ToolSettings { workspace: staging.work(), ..self.tool_settings.clone() };
        let evaluators = EvaluatorSet::new(self.tools.clone(), &settings, self.reviewers.clone());
        let run = TaskRun { runner: self, staging, evaluators };
        loop {
            match record.state {
                TaskState::Working if (self.tool_settings.is_cancelled)() => return Err(TaskError::Stopped(record.id)),
                TaskState::Working => run.step(&mut record, heard)?,
                TaskState::Delivering => run.deliver(&mut record)?,
                TaskState::Waiting | TaskState::Accepted => {
                    keep_lessons(&mut record, None);
                    self.store.save(&record)?;
                    return Ok(record);
                }
                TaskState::Rejected => return Ok(record),
            }
        }
    }

    /// The configured phases that the task goes through; all of them if it names none.
    fn phases_of(&self, record: &TaskRecord) -> Vec<&TaskPhase> {
        let wanted = &record.assignment.phases;
        self.phases.iter().filter(|phase| wanted.is_empty() || wanted.contains(&phase.name)).collect()
    }

    pub(super) fn publish(&self, record: &TaskRecord, payload: Payload) {
        let session = SessionId::from_bits(u128::from_be_bytes(*record.id.as_bytes()));
        (self.publish)(Envelope::new(NAME, session, payload));
    }
}

/// A task's run.
pub(super) struct TaskRun<'a> {
    pub(super) runner: &'a TaskRunner,
    pub(super) staging: Staging,
    pub(super) evaluators: EvaluatorSet,
}

impl TaskRun<'_> {
    /// One step: counts the tests, obtains and applies an answer, or evaluates it and decides.
    fn step(&self, record: &mut TaskRecord, heard: &mut ProgressSink<'_>) -> Result<(), TaskError> {
        let phases = self.runner.phases_of(record);
        let Some(phase) = phases.get(record.phase).copied() else {
            return self.finish(record);
        };
        if record.tests_before.is_none() {
            self.staging.apply(&BTreeMap::new())?;
            record.tests_before = Some(self.count_tests(record));
            return self.save(record);
        }
        match record.attempts.last() {
            Some(attempt) if attempt.decision.is_none() && attempt.answer.is_some() => {
                self.evaluate(record, phase, heard)?;
                self.decide(record, phases.len(), heard)
            }
            Some(attempt) if attempt.decision.is_none() && !attempt.candidates.is_empty() => {
                self.choose(record, phase, heard)
            }
            Some(attempt) if attempt.decision.is_none() => self.answer(record, phase, heard),
            _ => {
                self.begin(record, phase);
                self.save(record)?;
                if let Some(attempt) = record.attempts.last() {
                    heard(TaskProgress::Attempt(attempt));
                }
                Ok(())
            }
        }
    }

    pub(super) fn save(&self, record: &TaskRecord) -> Result<(), TaskError> {
        self.runner.store.save(record)
    }

    fn count_tests(&self, record: &TaskRecord) -> Vec<(String, hone_protocol::TestCounts)> {
        let files = DirectoryFiles::new(self.staging.work());
        let mut counted = Vec::new();
        for phase in self.runner.phases_of(record) {
            let context = EvaluationContext {
                phase: &phase.name,
                output: "",
                assignment: &record.assignment,
                workspace: &files,
                changed: None,
                diff: "",
                plans: None,
            };
            for (tool, counts) in self.evaluators.tests_in(&context) {
                if !counted.iter().any(|(known, _)| *known == tool) {
                    counted.push((tool, counts));
                }
            }
        }
        counted
    }

    /// Adds the next attempt.
    fn begin(&self, record: &mut TaskRecord, phase: &TaskPhase) {
        let round = record.attempts.get(record.round..).unwrap_or_default();
        let decided = round.last().and_then(|attempt| attempt.decision.as_ref()?.agent.clone());
        let first = self.runner.gate.ladder.first().unwrap_or(&self.runner.agent);
        let evaluates_first = phase.evaluates_first && round.is_empty() && record.notes.is_empty();
        let attempt = WorkAttempt {
            phase: phase.name.clone(),
            number: round.len() + 1,
            agent: decided.unwrap_or_else(|| first.clone()),
            temperature: Some(self.runner.request.sampling.temperature),
            thinking: false,
            started: Timestamp::now(),
            ended: None,
            calls: Vec::new(),
            candidates: Vec::new(),
            chosen: None,
            answer: evaluates_first.then(String::new),
            form_error: None,
            results: Vec::new(),
            critics: Vec::new(),
            decision: None,
        };
        record.attempts.push(attempt);
    }

    fn decide(&self, record: &mut TaskRecord, n_phases: usize, heard: &mut ProgressSink<'_>) -> Result<(), TaskError> {
        let round = record.attempts.get(record.round..).unwrap_or_default();
        let agents: Vec<&str> = round.iter().map(|attempt| attempt.agent.as_str()).collect();
        let Some(attempt) = round.last() else { return Ok(()) };
        let decision = decide(&self.runner.gate, &attempt.results, &attempt.critics, &agents);
        let step = step(record);
        let evaluated = WorkEvaluated {
            step: step.clone(),
            passed: decision.action == GateAction::Accept,
            score: decision.score,
            results: attempt.results.clone(),
            critics: attempt.critics.clone(),
        };
        let is_fruitless = attempt.results.iter().all(|result| result.score().is_none());
        if let Some(attempt) = record.attempts.last_mut() {
            attempt.decision = Some(decision.clone());
            attempt.ended = Some(Timestamp::now());
        }
        match decision.action {
            GateAction::Accept => {
                record.phase += 1;
                record.round = record.attempts.len();
                record.notes.clear();
            }
            GateAction::Escalate => record.state = TaskState::Waiting,
            GateAction::Retry | GateAction::Reassign => {}
        }
        self.save(record)?;
        let of_evaluation =
            if is_fruitless { Payload::EvaluationFailed(evaluated) } else { Payload::EvaluationCompleted(evaluated) };
        self.runner.publish(record, of_evaluation);
        heard(TaskProgress::Decided(&decision));
        let decided = WorkDecided { step, decision };
        match decided.decision.action {
            // Only the last phase accepts the task.
            GateAction::Accept if record.phase < n_phases => {}
            GateAction::Accept => self.runner.publish(record, Payload::TaskAccepted(decided)),
            GateAction::Retry => self.runner.publish(record, Payload::TaskRetried(decided)),
            GateAction::Reassign => self.runner.publish(record, Payload::TaskReassigned(decided)),
            GateAction::Escalate => {
                self.runner.publish(record, Payload::EscalationRequired(decided.clone()));
                self.runner.publish(record, Payload::TaskEscalated(decided));
            }
        }
        Ok(())
    }

    /// After the last phase: writes the result to the workspace, unless the same files were changed there.
    fn finish(&self, record: &mut TaskRecord) -> Result<(), TaskError> {
        record.state = TaskState::Delivering;
        if let Some(path) = self.conflict(record) {
            record.state = TaskState::Waiting;
            record.notes.push(format!("{path} was changed in the workspace since the work began"));
        }
        self.save(record)
    }

    fn conflict(&self, record: &TaskRecord) -> Option<String> {
        delivery::conflict(&record.workspace, &self.staging.before(), &record.delivered(&self.runner.phases))
    }

    fn deliver(&self, record: &mut TaskRecord) -> Result<(), TaskError> {
        delivery::deliver(&record.workspace, &record.delivered(&self.runner.phases))
            .map_err(file_error(&record.workspace))?;
        record.state = TaskState::Accepted;
        self.save(record)
    }
}

/// Identifies the latest attempt in events.
pub(super) fn step(record: &TaskRecord) -> WorkStep {
    let (phase, attempt, agent) = match record.attempts.last() {
        Some(attempt) => (attempt.phase.clone(), attempt.number, attempt.agent.clone()),
        None => (String::new(), 0, String::new()),
    };
    WorkStep { task: record.id, kind: record.assignment.kind.clone(), phase, attempt, agent }
}
