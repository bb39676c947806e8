//! Evaluates the work of an attempt, and chooses the best of several candidates.

use std::cmp::Ordering;

use hone_protocol::{Category, CriterionResult, CriticScore, EvaluationResult, EvaluationStatus, GateAction, Payload};

use super::answering::Changed;
use super::record::{CandidateEvaluation, TaskError, TaskRecord, WorkCandidate};
use super::runner::{ProgressSink, TaskProgress, TaskRun, step};
use crate::evaluating::DirectoryFiles;
use crate::evaluator::Plans;
use crate::{EvaluationContext, TaskPhase, criticize, decide};

/// Work to evaluate.
struct WorkToEvaluate<'a> {
    answer: &'a str,
    /// The changed files, or the reason why the answer cannot be applied.
    changed: Result<&'a Changed, &'a str>,
}

impl TaskRun<'_> {
    /// Evaluates the answer of the latest attempt, unless it was already evaluated as a candidate.
    pub(super) fn evaluate(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        heard: &mut ProgressSink<'_>,
    ) -> Result<(), TaskError> {
        let Some(attempt) = record.attempts.last() else { return Ok(()) };
        if !attempt.results.is_empty() {
            return Ok(());
        }
        self.runner.publish(record, Payload::EvaluationStarted(step(record)));
        let work = WorkToEvaluate {
            answer: attempt.answer.as_deref().unwrap_or_default(),
            changed: match &attempt.form_error {
                Some(error) => Err(error),
                None => Ok(&record.files),
            },
        };
        let (results, critics) = self.findings(record, phase, &work, heard)?;
        if let Some(attempt) = record.attempts.last_mut() {
            (attempt.results, attempt.critics) = (results, critics);
        }
        Ok(())
    }

    /// Evaluates the next candidate of the latest attempt, or takes the best one after the last.
    pub(super) fn choose(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        heard: &mut ProgressSink<'_>,
    ) -> Result<(), TaskError> {
        let Some(attempt) = record.attempts.last() else { return Ok(()) };
        let next = attempt.candidates.iter().position(|candidate| candidate.evaluation.is_none());
        match next {
            Some(index) => self.evaluate_candidate(record, phase, index, heard)?,
            None => self.take_best(record, phase),
        }
        self.save(record)
    }

    fn evaluate_candidate(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        index: usize,
        heard: &mut ProgressSink<'_>,
    ) -> Result<(), TaskError> {
        let Some(attempt) = record.attempts.last() else { return Ok(()) };
        let candidates = &attempt.candidates;
        let cut = candidates[index].cut.map(|reason| self.why_cut(reason, phase));
        if index == 0 {
            self.runner.publish(record, Payload::EvaluationStarted(step(record)));
        }
        heard(TaskProgress::Candidate { number: index + 1, of: candidates.len() });
        let answer = &candidates[index].answer;
        let same = candidates[..index].iter().find(|other| other.answer == *answer);
        let evaluation = match same.and_then(|other| other.evaluation.clone()) {
            Some(evaluation) => evaluation,
            None => {
                let changed = self.changed_by(record, answer, cut);
                let work = WorkToEvaluate { answer, changed: changed.as_ref().map_err(String::as_str) };
                let (results, critics) = self.findings(record, phase, &work, heard)?;
                let agent = attempt.agent.as_str();
                let decision = decide(&self.runner.gate, &results, &critics, &[agent]);
                let is_accepted = decision.action == GateAction::Accept;
                CandidateEvaluation { is_accepted, score: decision.score, results, critics }
            }
        };
        if let Some(attempt) = record.attempts.last_mut() {
            attempt.candidates[index].evaluation = Some(evaluation);
        }
        Ok(())
    }

    /// Makes the best candidate the answer, with its findings. Ties go to the first.
    fn take_best(&self, record: &mut TaskRecord, phase: &TaskPhase) {
        let Some(attempt) = record.attempts.last_mut() else { return };
        let candidates = attempt.candidates.iter().enumerate();
        let evaluated = candidates.filter_map(|(index, candidate)| Some((index, candidate.evaluation.as_ref()?)));
        let best = evaluated.reduce(|best, other| if is_better(other.1, best.1) { other } else { best });
        let Some((index, evaluation)) = best else { return };
        (attempt.results, attempt.critics) = (evaluation.results.clone(), evaluation.critics.clone());
        attempt.chosen = Some(index + 1);
        let WorkCandidate { answer, cut, .. } = attempt.candidates[index].clone();
        self.take(record, answer, cut.map(|reason| self.why_cut(reason, phase)));
    }

    /// The paths of changed files, without files that other phases wrote for agents only.
    fn changed_paths(&self, files: &Changed, phase: &TaskPhase) -> Vec<String> {
        let others = || self.runner.phases.iter().filter(|other| !other.delivers && other.name != phase.name);
        files.keys().filter(|path| !others().any(|other| other.files.contains(path))).cloned().collect()
    }

    /// The findings of evaluators and critics about work, which is put into the folder that tools run in.
    fn findings(
        &self,
        record: &TaskRecord,
        phase: &TaskPhase,
        work: &WorkToEvaluate<'_>,
        heard: &mut ProgressSink<'_>,
    ) -> Result<(Vec<EvaluationResult>, Vec<CriticScore>), TaskError> {
        let files = work.changed.unwrap_or(&record.files);
        self.staging.apply(files)?;
        let assignment = phase.assignment_of(&record.assignment);
        let changed = self.changed_paths(files, phase);
        let diff = self.runner.store.diff(record.id);
        let context = EvaluationContext {
            phase: &phase.name,
            output: work.answer,
            assignment: &assignment,
            workspace: &DirectoryFiles::new(self.staging.work()),
            changed: Some(&changed),
            diff: &diff,
            plans: (!phase.delivers).then_some(Plans { files: &phase.files, task: &record.assignment }),
        };
        let results = match work.changed {
            Err(error) => {
                let result = not_in_form(error);
                heard(TaskProgress::Evaluated(&result));
                vec![result]
            }
            Ok(_) => {
                let before = record.tests_before.as_deref().filter(|_| phase.checks_task);
                self.evaluators.evaluate(&context, before, &mut |result| heard(TaskProgress::Evaluated(result)))
            }
        };
        if (self.runner.tool_settings.is_cancelled)() {
            // A stopped tool's output is not a finding.
            return Err(TaskError::Stopped(record.id));
        }
        let critics = criticize(&self.runner.gate, &results, &context, self.evaluators.reviewers());
        Ok((results, critics))
    }
}

/// Whether a candidate is better than another: work that the gate accepts comes first, then unblocked work, then the
/// higher score.
fn is_better(one: &CandidateEvaluation, other: &CandidateEvaluation) -> bool {
    let is_blocked =
        |it: &CandidateEvaluation| it.results.iter().any(|result| result.blocking_issues().next().is_some());
    let by_gate = one.is_accepted.cmp(&other.is_accepted);
    let by_obstacles = is_blocked(other).cmp(&is_blocked(one));
    let score = |it: &CandidateEvaluation| it.score.unwrap_or(-1.0);
    by_gate.then(by_obstacles).then(score(one).total_cmp(&score(other))) == Ordering::Greater
}

/// The result of an answer that does not have the required form.
fn not_in_form(error: &str) -> EvaluationResult {
    let message = format!("the answer could not be applied: {error}");
    let criterion = CriterionResult {
        criterion: "form".to_owned(),
        passed: false,
        score: 0.0,
        message: message.clone(),
        evidence: None,
    };
    EvaluationResult {
        evaluator: "form".to_owned(),
        category: Category::Compliance,
        deterministic: true,
        status: EvaluationStatus::Failed { score: 0.0 },
        feedback: message,
        criteria: vec![criterion],
        suggestions: vec![format!("fix the answer: {error}")],
        tests: None,
        not_contained: Vec::new(),
        seconds: 0.0,
    }
}
