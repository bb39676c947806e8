//! Has an agent write: lets it look around, and then takes one answer, or several candidates in one batch.

use std::collections::BTreeMap;

use hone_protocol::{
    Constraint, GenerateError, GenerateRequest, Message, Payload, Prompt, Role, SamplingOptions, ToolLimits, ToolRounds,
};

use super::exploring::{Explorer, tools};
use super::prompting::{feedback_of, shown_bytes};
use super::record::{TaskError, TaskRecord, WorkCandidate};
use super::runner::{ProgressSink, TaskProgress, TaskRun, step};
use crate::evaluating::{DirectoryFiles, is_work};
use crate::work_format::{has_blocks, work_regex};
use crate::{EvaluationContext, FileChange, TaskPhase, WorkspaceFiles, Written, changed_text, parse_work};

/// The least bytes of files that a prompt has room for.
const LEAST_SHOWN: usize = 500;
/// How much less than the files of a prompt a tool's result may have.
const OF_A_RESULT: usize = 4;
/// The least temperature of every candidate but the first, so that they differ.
const CANDIDATE_TEMPERATURE: f32 = 0.8;

/// The changed files, by path: their texts, or nothing where they are deleted.
pub(super) type Changed = BTreeMap<String, Option<String>>;

impl TaskRun<'_> {
    /// Has the agent write. A single answer is taken; several become candidates.
    pub(super) fn answer(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        heard: &mut ProgressSink<'_>,
    ) -> Result<(), TaskError> {
        self.staging.apply(&record.files)?;
        if record.attempts.len() - record.round > 1 {
            self.runner.publish(record, Payload::OptimizationStarted(step(record)));
        }
        let mut answers = self.write(record, phase, heard)?;
        if answers.len() > 1 {
            let candidates = answers.into_iter().map(WorkCandidate::new).collect();
            if let Some(attempt) = record.attempts.last_mut() {
                attempt.candidates = candidates;
            }
        } else if let Some(answer) = answers.pop() {
            let is_cut = !answer.finish_reason.is_complete();
            self.take(record, answer.text, is_cut.then_some(self.most_tokens(phase)));
        }
        self.save(record)
    }

    /// Takes the changes of an answer: all of them, or none. `cut_at` is the limit of tokens at which it was cut.
    pub(super) fn take(&self, record: &mut TaskRecord, answer: String, cut_at: Option<usize>) {
        let changed = self.changed_by(record, &answer, cut_at);
        let Some(attempt) = record.attempts.last_mut() else { return };
        match changed {
            Ok(changed) => record.files = changed,
            Err(error) => attempt.form_error = Some(error),
        }
        attempt.answer = Some(answer);
    }

    /// All changed files after an answer.
    ///
    /// # Errors
    /// Why it cannot be applied, in words for the agent.
    pub(super) fn changed_by(
        &self,
        record: &TaskRecord,
        answer: &str,
        cut_at: Option<usize>,
    ) -> Result<Changed, String> {
        // The files that no attempt has changed are those of the base, whatever is being evaluated now.
        let changes = parse_work(answer).map_err(|error| match cut_at {
            Some(most) => format!(
                "the answer was cut at {most} tokens: write less at once, and edit parts of files instead of writing \
                 them whole"
            ),
            None => error,
        })?;
        changed_files(&changes, &self.staging.before(), &record.files)
    }

    /// The agent's answers, as many as the phase has candidates. Before it writes them, it may look around, if its model
    /// knows tools. Where the prompt does not fit, less of the workspace is shown.
    fn write(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        heard: &mut ProgressSink<'_>,
    ) -> Result<Vec<Written>, TaskError> {
        let agent = record.attempts.last().map_or_else(String::new, |attempt| attempt.agent.clone());
        let mut budget = shown_bytes(self.runner.author.context_tokens(&agent), phase.max_tokens);
        let mut rounds = ToolRounds::new(ToolLimits { rounds: phase.tool_calls, calls: phase.tool_calls });
        let (mut has_tools, mut explores) = (phase.tool_calls > 0, phase.tool_calls > 0);
        let mut answers = Vec::new();
        loop {
            explores &= rounds.may_call();
            let mut messages = self.messages(record, phase, budget, has_tools);
            messages.extend(rounds.turns().iter().cloned());
            let tools = if has_tools { tools() } else { Vec::new() };
            let request = GenerateRequest { tools, ..self.request(&agent, messages, phase) };
            let requests =
                if explores { vec![request] } else { final_requests(&request, answers.len()..phase.candidates) };
            let written = self.runner.author.write(requests, &*self.runner.tool_settings.is_cancelled);
            match written {
                Ok(None) => return Err(TaskError::Stopped(record.id)),
                Ok(Some(written)) if explores => match written.into_iter().next() {
                    Some(one) if !one.calls.is_empty() => {
                        self.look(record, phase, &one, &mut rounds, budget / OF_A_RESULT, heard);
                    }
                    Some(one) if has_blocks(&one.text) => {
                        answers.push(one);
                        explores = false;
                        if phase.candidates == 1 {
                            return Ok(answers);
                        }
                    }
                    _ => explores = false,
                },
                Ok(Some(written)) => {
                    answers.extend(written);
                    return Ok(answers);
                }
                Err(GenerateError::NoTools { .. }) if has_tools => (has_tools, explores) = (false, false),
                Err(GenerateError::ContextOverflow { .. }) if budget > LEAST_SHOWN => budget /= 2,
                Err(GenerateError::ContextOverflow { .. }) if !rounds.turns().is_empty() => rounds.forget(),
                Err(error) => return Err(TaskError::Agent { agent, error }),
            }
        }
    }

    /// Carries out what the agent calls, and keeps it in the record.
    fn look(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        written: &Written,
        rounds: &mut ToolRounds,
        most_bytes: usize,
        heard: &mut ProgressSink<'_>,
    ) {
        let files = DirectoryFiles::new(self.staging.work());
        let mut kept = Vec::new();
        let run_tests = || self.test_feedback(record, phase, &files);
        let explorer = Explorer { files: &files, most_bytes, run_tests: &run_tests };
        let result_of = |call: &_, is_within_limits: bool| -> Result<_, std::convert::Infallible> {
            if !is_within_limits {
                return Ok(Some(Message::new(Role::Tool, "You have looked often enough: write the work.")));
            }
            let (turn, call) = explorer.carry_out(call);
            heard(TaskProgress::Called(&call));
            kept.push(call);
            Ok(Some(turn))
        };
        let Ok(_) = rounds.carry_out(&written.text, &written.calls, result_of);
        if let Some(attempt) = record.attempts.last_mut() {
            attempt.calls.extend(kept);
        }
    }

    /// What the tests of a phase show, for an agent.
    fn test_feedback(&self, record: &TaskRecord, phase: &TaskPhase, files: &DirectoryFiles) -> String {
        let context = EvaluationContext {
            phase: &phase.name,
            output: "",
            assignment: &record.assignment,
            workspace: files,
            changed: None,
            diff: "",
        };
        feedback_of(&self.evaluators.test(&context))
    }

    /// The most tokens of an answer, its reasoning not counted.
    pub(super) fn most_tokens(&self, phase: &TaskPhase) -> usize {
        self.runner.request.max_tokens.map_or(phase.max_tokens, |most| most.min(phase.max_tokens))
    }

    fn request(&self, agent: &str, messages: Vec<Message>, phase: &TaskPhase) -> GenerateRequest {
        let configured = &self.runner.request;
        let most_tokens = self.most_tokens(phase);
        GenerateRequest {
            model: agent.to_owned(),
            prompt: Prompt::Chat(messages),
            max_tokens: Some(most_tokens + configured.thinking.budget.unwrap_or_default()),
            ..configured.clone()
        }
    }
}

/// The requests for the answers that are still to be written, by their numbers, held to their form. They have one prompt, that of
/// the looking around before, which is computed once.
fn final_requests(request: &GenerateRequest, numbers: std::ops::Range<usize>) -> Vec<GenerateRequest> {
    let numbered = |number: usize| GenerateRequest {
        sampling: candidate_sampling(&request.sampling, number),
        constraint: Some(Constraint::Regex(work_regex())),
        ..request.clone()
    };
    numbers.map(numbered).collect()
}

/// How the candidate with this number, from 0, is sampled: the first one as configured.
fn candidate_sampling(configured: &SamplingOptions, number: usize) -> SamplingOptions {
    let temperature = match number {
        0 => configured.temperature,
        _ => configured.temperature.max(CANDIDATE_TEMPERATURE),
    };
    let seed = configured.seed.map(|seed| seed.wrapping_add(number as u64));
    SamplingOptions { temperature, seed, ..configured.clone() }
}

/// All changed files after these changes; nothing is changed if one of them cannot be made.
fn changed_files(
    changes: &[FileChange],
    now: &DirectoryFiles,
    files: &BTreeMap<String, Option<String>>,
) -> Result<BTreeMap<String, Option<String>>, String> {
    let mut changed = files.clone();
    for change in changes {
        let path = change.path();
        if !is_work(path) {
            return Err(format!("{path} belongs to version control or to tools, and cannot be changed"));
        }
        let before = match changed.get(path) {
            Some(text) => text.clone(),
            None => now.text(path),
        };
        let after = changed_text(change, before.as_deref())?;
        changed.insert(path.to_owned(), after);
    }
    Ok(changed)
}
