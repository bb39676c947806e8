//! Has an agent write: lets it explore the workspace, and then takes one answer, or several candidates in one batch.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use hone_protocol::{
    Constraint, FinishReason, GenerateError, GenerateRequest, Message, Payload, Prompt, Role, SamplingOptions,
    ToolLimits, ToolRounds,
};

use super::exploring::{Explorer, tools};
use super::prompting::{feedback_of, first_files, looked_at_bytes, prompt_bytes, shown_bytes};
use super::record::{TaskError, TaskRecord, WorkCandidate};
use super::runner::{ProgressSink, TaskProgress, TaskRun, step};
use crate::evaluating::{DirectoryFiles, is_work};
use crate::work_format::{has_blocks, tools_first, work_regex};
use crate::{Assignment, EvaluationContext, FileChange, TaskPhase, WorkspaceFiles, Written, changed_text, parse_work};

/// Minimum bytes of files that a prompt has room for.
const LEAST_SHOWN: usize = 500;
/// The fraction (1/n) of an agent's exploration budget that one result may take.
const OF_A_RESULT: usize = 4;
/// Minimum temperature of every candidate but the first, so that they differ.
const CANDIDATE_TEMPERATURE: f32 = 0.8;

/// The changed files by path: their texts, or `None` for deleted files.
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
        if let Some(attempt) = record.attempts.last_mut() {
            attempt.thinking = answers.iter().any(|answer| answer.has_reasoned);
        }
        if answers.len() > 1 {
            let candidates = answers.into_iter().map(WorkCandidate::new).collect();
            if let Some(attempt) = record.attempts.last_mut() {
                attempt.candidates = candidates;
            }
        } else if let Some(answer) = answers.pop() {
            let cut = answer.cut().map(|reason| self.why_cut(reason, phase));
            self.take(record, answer.text, cut);
        }
        self.save(record)
    }

    /// Takes the changes of an answer, either all of them or none. `cut` says how it was truncated, if it was.
    pub(super) fn take(&self, record: &mut TaskRecord, answer: String, cut: Option<String>) {
        let changed = self.changed_by(record, &answer, cut);
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
    /// The reason why it cannot be applied, in words for the agent.
    pub(super) fn changed_by(&self, record: &TaskRecord, answer: &str, cut: Option<String>) -> Result<Changed, String> {
        // Files that no attempt has changed come from the base, regardless of the current evaluation.
        let changes = parse_work(answer).map_err(|error| cut.unwrap_or(error))?;
        changed_files(&changes, &self.staging.before(), &record.files)
    }

    /// How an answer was truncated, in words for the agent.
    pub(super) fn why_cut(&self, reason: FinishReason, phase: &TaskPhase) -> String {
        let how = match reason {
            FinishReason::ContextFull => "was cut because the context is full".to_owned(),
            FinishReason::Repetition => "was stopped because it repeated itself".to_owned(),
            _ => format!("was cut at {} tokens", self.most_tokens(phase)),
        };
        format!("the answer {how}: write less at once, and edit parts of files instead of writing them whole")
    }

    /// The agent's answers, one for each candidate of the phase. An agent whose model supports tools may explore the
    /// workspace first. If the prompt does not fit, less of the workspace is shown.
    fn write(
        &self,
        record: &mut TaskRecord,
        phase: &TaskPhase,
        heard: &mut ProgressSink<'_>,
    ) -> Result<Vec<Written>, TaskError> {
        let task = record.assignment.clone();
        let agent = record.attempts.last().map_or_else(String::new, |attempt| attempt.agent.clone());
        let room = prompt_bytes(self.runner.author.context_tokens(&agent), self.tokens_to_write(phase));
        let mut rounds = ToolRounds::new(ToolLimits { rounds: phase.tool_calls, calls: phase.tool_calls });
        let (mut has_tools, mut explores) = (phase.tool_calls > 0, phase.tool_calls > 0);
        let mut budget = shown_bytes(room, has_tools);
        let looked_at = looked_at_bytes(room);
        let about_tools = tools_first(phase.tool_calls, looked_at / OF_A_RESULT, looked_at);
        let test_feedback = OnceCell::new();
        let mut answers = Vec::new();
        let mut beginning = self.messages(record, phase, budget, has_tools.then_some(&about_tools));
        loop {
            explores &= rounds.may_call() && n_bytes(rounds.turns()) < looked_at;
            let mut messages = beginning.clone();
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
                        let run_tests = || test_feedback.get_or_init(|| self.test_feedback(&task, phase)).clone();
                        let looking = Looking { most_bytes: looked_at / OF_A_RESULT, run_tests: &run_tests };
                        self.look(record, &looking, &one, &mut rounds, heard);
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
                Err(GenerateError::NoTools { .. }) if has_tools => {
                    (has_tools, explores) = (false, false);
                    budget = shown_bytes(room, has_tools);
                    beginning = self.messages(record, phase, budget, None);
                }
                Err(GenerateError::ContextOverflow { .. }) if budget > LEAST_SHOWN => {
                    budget /= 2;
                    beginning = self.messages(record, phase, budget, has_tools.then_some(&about_tools));
                }
                Err(GenerateError::ContextOverflow { .. }) if !rounds.turns().is_empty() => rounds.forget(),
                Err(error) => return Err(TaskError::Agent { agent, error }),
            }
        }
    }

    /// Carries out the agent's calls, and keeps them in the record.
    fn look(
        &self,
        record: &mut TaskRecord,
        looking: &Looking<'_>,
        written: &Written,
        rounds: &mut ToolRounds,
        heard: &mut ProgressSink<'_>,
    ) {
        let files = DirectoryFiles::new(self.staging.work());
        let (mut kept, named) = (Vec::new(), first_files(record));
        let Looking { most_bytes, run_tests } = *looking;
        let explorer = Explorer { files: &files, named: &named, most_bytes, run_tests };
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

    /// The results of a phase's tests, for an agent.
    fn test_feedback(&self, assignment: &Assignment, phase: &TaskPhase) -> String {
        let files = DirectoryFiles::new(self.staging.work());
        let context = EvaluationContext {
            phase: &phase.name,
            output: "",
            assignment,
            workspace: &files,
            changed: None,
            diff: "",
            plans: None,
        };
        feedback_of(&self.evaluators.test(&context))
    }

    /// Maximum tokens of an answer, without its reasoning.
    pub(super) fn most_tokens(&self, phase: &TaskPhase) -> usize {
        self.runner.request.max_tokens.unwrap_or(phase.max_tokens)
    }

    /// Maximum tokens of an answer with its reasoning.
    fn tokens_to_write(&self, phase: &TaskPhase) -> usize {
        self.most_tokens(phase) + self.runner.request.thinking.budget.unwrap_or_default()
    }

    fn request(&self, agent: &str, messages: Vec<Message>, phase: &TaskPhase) -> GenerateRequest {
        let configured = &self.runner.request;
        GenerateRequest {
            model: agent.to_owned(),
            prompt: Prompt::Chat(messages),
            max_tokens: Some(self.tokens_to_write(phase)),
            ..configured.clone()
        }
    }
}

/// The limits and callbacks of an agent's tools.
struct Looking<'a> {
    most_bytes: usize,
    run_tests: &'a dyn Fn() -> String,
}

fn n_bytes(turns: &[Message]) -> usize {
    turns.iter().map(|turn| turn.content.len()).sum()
}

/// The requests for the remaining answers, by their numbers, constrained to their form. They share one prompt,
/// including the previous exploration, which is computed once.
fn final_requests(request: &GenerateRequest, numbers: std::ops::Range<usize>) -> Vec<GenerateRequest> {
    let numbered = |number: usize| GenerateRequest {
        sampling: candidate_sampling(&request.sampling, number),
        constraint: Some(Constraint::Regex(work_regex())),
        ..request.clone()
    };
    numbers.map(numbered).collect()
}

/// The sampling options of the candidate with this number, from 0: the first one as configured.
fn candidate_sampling(configured: &SamplingOptions, number: usize) -> SamplingOptions {
    let temperature = match number {
        0 => configured.temperature,
        _ => configured.temperature.max(CANDIDATE_TEMPERATURE),
    };
    let seed = configured.seed.map(|seed| seed.wrapping_add(number as u64));
    SamplingOptions { temperature, seed, ..configured.clone() }
}

/// All changed files after these changes. If one of them cannot be made, none are.
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
