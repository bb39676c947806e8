//! Has an agent write: one answer, or several candidates in one batch.

use std::collections::BTreeMap;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use hone_protocol::{
    Completion, Constraint, GenerateError, GenerateRequest, Generation, Message, Payload, Prompt, Role, SamplingOptions,
};

use super::record::{TaskError, TaskRecord, WorkAttempt, WorkCandidate};
use super::runner::{TaskRun, step};
use crate::evaluating::{DirectoryFiles, is_work};
use crate::feedback_memory::{PastAttempt, optimized_prompt};
use crate::work_format::{WORK_FORM, work_regex};
use crate::{FileChange, TaskPhase, WorkspaceFiles, changed_text, parse_work, quoted_file};

/// How many bytes of files a prompt shows.
const SHOWN_BYTES: usize = 12_000;
/// How often a slow answer is checked: whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);
/// The least temperature of every candidate but the first, so that they differ.
const CANDIDATE_TEMPERATURE: f32 = 0.8;

/// The changed files, by path: their texts, or nothing where they are deleted.
pub(super) type Changed = BTreeMap<String, Option<String>>;

impl TaskRun<'_> {
    /// Has the agent write. A single answer is taken; several become candidates.
    pub(super) fn answer(&self, record: &mut TaskRecord, phase: &TaskPhase) -> Result<(), TaskError> {
        self.staging.apply(&record.files)?;
        if record.attempts.len() - record.round > 1 {
            self.runner.publish(record, Payload::OptimizationStarted(step(record)));
        }
        let messages = self.messages(record, phase);
        let Some(attempt) = record.attempts.last() else { return Ok(()) };
        let mut answers = self.generate(record, &attempt.agent, &messages, phase)?;
        if answers.len() > 1 {
            let candidates = answers.into_iter().map(WorkCandidate::new).collect();
            if let Some(attempt) = record.attempts.last_mut() {
                attempt.candidates = candidates;
            }
        } else if let Some(answer) = answers.pop() {
            self.take(record, answer);
        }
        self.save(record)
    }

    /// Takes the changes of an answer: all of them, or none.
    pub(super) fn take(&self, record: &mut TaskRecord, answer: String) {
        let changed = self.changed_by(record, &answer);
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
    pub(super) fn changed_by(&self, record: &TaskRecord, answer: &str) -> Result<Changed, String> {
        // The files that no attempt has changed are those of the base, whatever is being evaluated now.
        let changes = parse_work(answer)?;
        changed_files(&changes, &self.staging.before(), &record.files)
    }

    /// The agent's answers to one prompt, which it computes once: as many as the phase has candidates.
    fn generate(
        &self,
        record: &TaskRecord,
        agent: &str,
        messages: &[Message],
        phase: &TaskPhase,
    ) -> Result<Vec<String>, TaskError> {
        let request = |number: usize| GenerateRequest {
            sampling: candidate_sampling(&self.runner.sampling, number),
            max_tokens: Some(phase.max_tokens),
            constraint: Some(Constraint::Regex(work_regex())),
            ..GenerateRequest::new(agent, Prompt::Chat(messages.to_vec()))
        };
        let start = |number| Generation::start(self.runner.generator.as_ref(), request(number));
        let generations: Vec<Generation> = (0..phase.candidates).map(start).collect();
        generations.iter().map(|generation| self.complete(record, agent, generation)).collect()
    }

    fn complete(&self, record: &TaskRecord, agent: &str, generation: &Generation) -> Result<String, TaskError> {
        let failed = |error| TaskError::Agent { agent: agent.to_owned(), error };
        let mut completion = Completion::default();
        loop {
            match generation.events().recv_timeout(LOOK) {
                Ok(event) => {
                    if completion.take(event).map_err(failed)? {
                        return Ok(completion.text);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(failed(GenerateError::Stopped)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if (self.runner.tool_settings.is_cancelled)() {
                return Err(TaskError::Stopped(record.id));
            }
        }
    }

    fn messages(&self, record: &TaskRecord, phase: &TaskPhase) -> Vec<Message> {
        let round = record.attempts.get(record.round..).unwrap_or_default();
        let past: Vec<PastAttempt> = round.iter().filter_map(past_attempt).collect();
        let most = self.runner.gate.max_retries + 1;
        let mut text = optimized_prompt(&phase.prompt_for(&record.assignment), &phase.name, &past, most);
        if !record.notes.is_empty() {
            text.push_str(&format!("\n\nA person says: {}", record.notes.join("\n")));
        }
        let shown = self.shown_files(record);
        if !shown.is_empty() {
            text.push_str(&format!("\n\n## The files as they are\n{shown}"));
        }
        vec![Message::new(Role::System, WORK_FORM), Message::new(Role::User, text)]
    }

    /// The files that matter most, as far as there is room.
    fn shown_files(&self, record: &TaskRecord) -> String {
        let files = DirectoryFiles::new(self.staging.work());
        let first = record.files.keys().chain(&record.assignment.files).cloned();
        let mut shown = String::new();
        let mut seen = Vec::new();
        for path in first.chain(files.paths()) {
            if seen.contains(&path) {
                continue;
            }
            if let Some(text) = files.text(&path).map(|text| quoted_file(&path, &text))
                && shown.len() + text.len() <= SHOWN_BYTES
            {
                shown.push_str(&text);
            }
            seen.push(path);
        }
        shown
    }
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

fn past_attempt(attempt: &WorkAttempt) -> Option<PastAttempt> {
    let decision = attempt.decision.as_ref()?;
    let suggestions = attempt.results.iter().flat_map(|result| result.suggestions.iter().cloned()).collect();
    let feedback = if decision.feedback.is_empty() { decision.reason.clone() } else { decision.feedback.clone() };
    Some(PastAttempt { score: decision.score, feedback, suggestions })
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
