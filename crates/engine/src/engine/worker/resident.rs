//! A model in memory, with its requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hone_protocol::{GenerateError, Lane, OwnerId};

use super::saved_prefixes::{FEWEST_TOKENS, SavedPrefixes};
use super::source::ModelSource;
use crate::engine::request::{Guesser, RowReader, RunningRequest};
use crate::engine::status::{ModelState, ModelStatus};
use crate::kv_cache::{BLOCK_TOKENS, CachedSequence};
use crate::model::{Advance, Model, ModelError};
use crate::scheduler::ModelMemory;
use crate::scheduler::cost::StepShape;
use crate::scheduler::{ModelId, RequestId, RequestProgress, Scheduler, StepKind, StepPlan};
use crate::speculation::draft_model::{DraftModel, OfRequest};

/// A model in memory.
pub(super) struct ResidentModel {
    pub(super) id: ModelId,
    pub(super) source: ModelSource,
    pub(super) model: Model,
    /// Its draft model, if there is one.
    pub(super) draft: Option<DraftModel>,
    /// Its saved prefixes, if saving is enabled.
    pub(super) saved: Option<SavedPrefixes>,
    /// Prompts with answers of interactive requests to be saved: the latest, and the longest before it, which a short
    /// question of the same program does not displace.
    to_save: Vec<Vec<u32>>,
    requests: BTreeMap<RequestId, RunningRequest>,
    /// The requests of the suspended step.
    suspended: BTreeSet<RequestId>,
    /// Beginnings of prompts that stay in the KV cache, the oldest first.
    pinned: VecDeque<Vec<u32>>,
}

/// Maximum number of pinned beginnings: two for a judge's two kinds of prompts, and two for the judge before it.
const MOST_PINNED: usize = 4;

/// Maximum number of tokens, including guesses, in a step of generating requests: with more, arithmetic takes longer
/// than reading the weights.
const MAX_STEP_TOKENS: usize = 16;

/// A finished step.
pub(super) struct StepResult {
    /// The progress of its requests.
    pub(super) progress: Vec<RequestProgress>,
    /// Work done for guesses, beyond the plan.
    pub(super) guesses: StepShape,
}

/// A request that begins with the same tokens.
struct Leader {
    id: RequestId,
    n_common: usize,
    n_computed: usize,
}

/// Records a conversation, replacing its own beginning and the shorter of two others.
fn note_to_save(to_save: &mut Vec<Vec<u32>>, tokens: &[u32]) {
    to_save.retain(|other| !tokens.starts_with(other));
    if let [one, other] = to_save.as_slice() {
        let shorter = usize::from(other.len() < one.len());
        to_save.remove(shorter);
    }
    to_save.push(tokens.to_vec());
}

impl ResidentModel {
    pub(super) fn new(id: ModelId, source: ModelSource, model: Model) -> Self {
        ResidentModel {
            id,
            source,
            model,
            draft: None,
            saved: None,
            to_save: Vec::new(),
            requests: BTreeMap::new(),
            suspended: BTreeSet::new(),
            pinned: VecDeque::new(),
        }
    }

    /// Whether there is anything to save when the model leaves memory.
    pub(super) fn saves_prefix(&self) -> bool {
        self.saved.is_some() && !self.to_save.is_empty()
    }

    /// Saves the computed prefixes of the latest conversations.
    pub(super) fn save_prefix(&mut self) {
        let Some(saved) = &mut self.saved else { return };
        for tokens in &self.to_save {
            if let Err(error) = saved.save(tokens, &mut self.model) {
                tracing::warn!(%error, "the computed prefix of the conversation is not saved: it will be computed again");
            }
        }
    }

    pub(super) fn has(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    pub(super) fn add(&mut self, id: RequestId, request: RunningRequest) {
        self.requests.insert(id, request);
    }

    /// Requests whose callers have given up.
    pub(super) fn cancelled(&self) -> Vec<RequestId> {
        self.requests.iter().filter(|(_, request)| request.is_cancelled()).map(|(id, _)| *id).collect()
    }

    /// A request is over; its computed blocks are kept for prompts with the same beginning.
    pub(super) fn retire(&mut self, id: RequestId) {
        self.abandon_step_of(id);
        if let Some(mut request) = self.requests.remove(&id) {
            let beginning = request.common_tokens().to_vec();
            let is_saved = request.lane() == Lane::Interactive && request.owner().is_none();
            let (sequence, tokens) = request.leave_place(&mut self.model);
            if is_saved && tokens.len() >= FEWEST_TOKENS && self.saved.is_some() {
                note_to_save(&mut self.to_save, tokens);
            }
            self.model.keep(tokens, sequence);
            self.pin(&beginning);
        }
        self.draft.iter_mut().for_each(|draft| draft.forget(id));
    }

    /// Pins a beginning that many requests share, replacing the oldest pinned one if there are too many.
    fn pin(&mut self, beginning: &[u32]) {
        if self.model.cache_usage().pinned == 0 {
            // A request that needed the whole cache has released the pins.
            self.pinned.clear();
        }
        let beginning = &beginning[..beginning.len() / BLOCK_TOKENS * BLOCK_TOKENS];
        if beginning.is_empty() || self.pinned.iter().any(|pinned| pinned.starts_with(beginning)) {
            return;
        }
        let n_pinned = self.model.pin(beginning);
        // A shorter one comes from a request that did not get far.
        while let Some(index) = self.pinned.iter().position(|pinned| beginning[..n_pinned].starts_with(pinned)) {
            self.pinned.remove(index).iter().for_each(|shorter| self.model.unpin(shorter));
        }
        self.pinned.push_back(beginning[..n_pinned].to_vec());
        if self.pinned.len() > MOST_PINNED
            && let Some(oldest) = self.pinned.pop_front()
        {
            self.model.unpin(&oldest);
        }
    }

    pub(super) fn time_out(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get(&id) {
            request.fail(GenerateError::TimedOut { limit: request.time_limit().unwrap_or_default() });
        }
        self.retire(id);
    }

    /// Ends a request whose prompt takes too long; `room` tokens of it would fit.
    pub(super) fn refuse_prompt(&mut self, id: RequestId, room: usize) {
        self.requests.get(&id).into_iter().for_each(|request| request.refuse_prompt(room));
        self.retire(id);
    }

    /// Ends the free text of a request's answer.
    pub(super) fn conclude(&mut self, id: RequestId) {
        self.requests.get_mut(&id).into_iter().for_each(RunningRequest::conclude);
    }

    /// Removes a request that will resume when the model is loaded again.
    pub(super) fn take_off(&mut self, id: RequestId) -> Option<RunningRequest> {
        self.pause(id);
        self.requests.remove(&id)
    }

    /// A request loses its place in the cache and waits for another.
    pub(super) fn pause(&mut self, id: RequestId) {
        self.abandon_step_of(id);
        if let Some(request) = self.requests.get_mut(&id) {
            let (sequence, tokens) = request.leave_place(&mut self.model);
            self.model.keep(tokens, sequence);
        }
        self.draft.iter_mut().for_each(|draft| draft.forget(id));
    }

    /// Ends the requests of a step that failed; their cached contents are not relied upon.
    pub(super) fn fail(&mut self, ids: &[RequestId], error: &GenerateError) {
        for id in ids {
            self.abandon_step_of(*id);
            if let Some(mut request) = self.requests.remove(id) {
                request.fail(error.clone());
                let (sequence, _) = request.leave_place(&mut self.model);
                self.model.release(sequence);
            }
            self.draft.iter_mut().for_each(|draft| draft.forget(*id));
        }
    }

    /// Ends all requests. The model is not used after that.
    pub(super) fn fail_all(&mut self, error: &GenerateError) {
        let unanswered = self.requests.values().filter(|request| !request.has_ended());
        unanswered.for_each(|request| request.fail(error.clone()));
        self.requests.clear();
    }

    /// Starts a request that has a place in the cache: it starts with its owner's cached tokens, or follows a request
    /// of the same owner that is about to compute their shared beginning.
    pub(super) fn start(&mut self, id: RequestId, scheduler: &mut Scheduler) -> Result<(), ModelError> {
        let Some(request) = self.requests.get(&id) else { return Ok(()) };
        // The last token is always computed, because its logits are wanted.
        let (tokens, owner) = (request.tokens()[..request.tokens().len() - 1].to_vec(), request.owner());
        if let (Some(saved), None) = (&mut self.saved, owner) {
            saved.fetch(&tokens, &mut self.model);
        }
        let n_kept = self.model.cached_tokens_of(owner, &tokens);
        let leader =
            self.leader_of(id, owner, &tokens, scheduler).filter(|leader| leader.n_common >= n_kept + BLOCK_TOKENS);
        let sequence = match leader {
            Some(leader) if leader.n_computed < leader.n_common && self.may_wait(id, leader.id) => {
                scheduler.follow(id, leader.id, leader.n_common);
                return Ok(());
            }
            Some(leader) if leader.n_computed > n_kept => self.fork_of(&leader, n_kept, &tokens)?,
            _ => self.model.begin_of(owner, &tokens)?,
        };
        if let Some(request) = self.requests.get_mut(&id) {
            scheduler.start(id, sequence.n_tokens());
            request.take_place(sequence);
        }
        Ok(())
    }

    /// The beginning that a request shares with a running one. A model that keeps states may have to cut it back to
    /// fewer tokens than are kept from earlier requests; then the kept ones are used.
    fn fork_of(&mut self, leader: &Leader, n_kept: usize, tokens: &[u32]) -> Result<CachedSequence, ModelError> {
        let mut sequence = self.model.fork(self.requests[&leader.id].sequence());
        self.model.truncate(&mut sequence, leader.n_common.min(leader.n_computed));
        if sequence.n_tokens() > n_kept {
            return Ok(sequence);
        }
        let owner = self.requests[&leader.id].owner();
        self.model.release(sequence);
        self.model.begin_of(owner, tokens)
    }

    /// The owner's running request that shares the longest beginning with these tokens.
    fn leader_of(
        &self,
        id: RequestId,
        owner: Option<OwnerId>,
        tokens: &[u32],
        scheduler: &Scheduler,
    ) -> Option<Leader> {
        let is_other = |other: RequestId| other != id && scheduler.is_running(other);
        let others = self.requests.iter().filter(|(other, request)| request.owner() == owner && is_other(**other));
        let leaders = others.map(|(other, request)| Leader {
            id: *other,
            n_common: std::iter::zip(request.tokens(), tokens).take_while(|(a, b)| a == b).count(),
            n_computed: request.n_computed(),
        });
        leaders.max_by_key(|leader| (leader.n_common, leader.n_computed))
    }

    /// A request waits only for one that is at least as urgent.
    fn may_wait(&self, id: RequestId, leader: RequestId) -> bool {
        self.requests[&leader].lane() <= self.requests[&id].lane()
    }

    /// Carries out a step; `None` if it was suspended.
    pub(super) fn carry_out(
        &mut self,
        plan: &StepPlan,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<StepResult>, ModelError> {
        let (tokenizer, reward_head) = (self.model.tokenizer().clone(), self.model.reward_head().cloned());
        let reader = RowReader { tokenizer: &tokenizer, reward_head: reward_head.as_deref() };
        let logits = match plan.kind {
            StepKind::Resume => self.model.resume(pause)?,
            StepKind::Begin => {
                self.abandon_step();
                self.suspended = plan.entries.iter().map(|entry| entry.request).collect();
                let most_guesses = (MAX_STEP_TOKENS / plan.entries.len()).saturating_sub(1);
                let entries = planned(&mut self.requests, plan);
                let mut entries: Vec<Advance<'_>> = entries
                    .map(|(id, request, n_tokens)| {
                        // Guessing cannot be suspended, so no more urgent request may have to wait for it.
                        let guesser = match &mut self.draft {
                            _ if request.lane() != Lane::Interactive => Guesser::Nothing,
                            Some(model) => Guesser::DraftModel(OfRequest { model, request: id }),
                            None => Guesser::HeadOf(&mut self.model),
                        };
                        request.begin_step(n_tokens, most_guesses, guesser)
                    })
                    .collect();
                self.model.advance_in_slices(&mut entries, pause)?
            }
        };
        let Some(logits) = logits else { return Ok(None) };
        self.suspended.clear();
        let mut rows = logits.rows_with_states();
        let mut guesses = StepShape::default();
        for request in planned(&mut self.requests, plan).map(|(_, request, _)| request) {
            let n_guesses = request.finish_step(&mut rows, reader);
            guesses = guesses + StepShape::prefill(request.n_computed(), n_guesses);
        }
        drop(rows);
        let finished = planned(&mut self.requests, plan).map(|(id, request, _)| {
            request.undo_step(&mut self.model);
            request.progress(id)
        });
        Ok(Some(StepResult { progress: finished.collect(), guesses }))
    }

    fn abandon_step_of(&mut self, id: RequestId) {
        if self.suspended.contains(&id) {
            self.abandon_step();
        }
    }

    /// Discards a suspended step: its requests return to their state before it.
    fn abandon_step(&mut self) {
        for id in std::mem::take(&mut self.suspended) {
            if let Some(request) = self.requests.get_mut(&id) {
                request.undo_step(&mut self.model);
            }
        }
    }

    pub(super) fn status(&self, memory: ModelMemory, reserved_blocks: usize, idle: Option<f64>) -> ModelStatus {
        ModelStatus {
            name: self.source.name.clone(),
            state: ModelState::Ready,
            device: self.model.device_name(),
            weight_bytes: memory.weights,
            kv_cache_bytes: memory.kv_cache,
            cache: self.model.cache_usage(),
            reserved_blocks,
            requests: self.requests.len(),
            idle_seconds: idle,
        }
    }
}

/// The requests of a plan in the order of their numbers, each with its number of tokens in the step.
fn planned<'a>(
    requests: &'a mut BTreeMap<RequestId, RunningRequest>,
    plan: &'a StepPlan,
) -> impl Iterator<Item = (RequestId, &'a mut RunningRequest, usize)> {
    let n_tokens = |id: &RequestId| plan.entries.iter().find(|entry| entry.request == *id).map(|entry| entry.n_tokens);
    requests.iter_mut().filter_map(move |(id, request)| n_tokens(id).map(|n_tokens| (*id, request, n_tokens)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_and_the_longest_conversation_are_saved() {
        let mut to_save = Vec::new();
        let mut check = |tokens: &[u32], expected: &[&[u32]]| {
            note_to_save(&mut to_save, tokens);
            assert_eq!(to_save, expected);
        };
        check(&[1, 2, 3], &[&[1, 2, 3]]);
        check(&[1, 2, 3, 4], &[&[1, 2, 3, 4]]);
        check(&[7, 8], &[&[1, 2, 3, 4], &[7, 8]]);
        check(&[9], &[&[1, 2, 3, 4], &[9]]);
        check(&[5, 5, 5, 5, 5], &[&[1, 2, 3, 4], &[5, 5, 5, 5, 5]]);
    }
}
