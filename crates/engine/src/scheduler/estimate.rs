//! Estimates how long queued requests will have to wait.
//!
//! The estimate simulates the future once: a request ends when the rest of its prompt and an answer of typical length
//! have been computed, and a queued request starts when enough of those before it have ended. More urgent work is
//! assumed to be done first.

use std::time::Duration;

use hone_protocol::Lane;

use super::cost::StepShape;
use super::request::Request;
use super::{ModelId, RequestId, Scheduler};

/// Typical length of an answer in tokens, before any has been seen.
const FIRST_GUESS_ANSWER: f64 = 128.0;
/// The shortest time after which a caller is told to try again.
const SHORTEST_RETRY: Duration = Duration::from_millis(100);

/// A request that waits for a place in the KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QueuedRequest {
    /// The request.
    pub request: RequestId,
    /// Its lane.
    pub lane: Lane,
    /// Its model.
    pub model: ModelId,
    /// Its position among the queued requests of its lane, from 1.
    pub position: usize,
    /// Expected remaining wait.
    pub wait: Duration,
}

/// The expected future of a model's KV cache.
struct Future {
    free_blocks: usize,
    free_sequences: usize,
    /// When requests end, in seconds from now, and how many blocks each then frees.
    ends: Vec<(f64, usize)>,
    /// When the last queued request starts; no later one starts before it.
    last_start: f64,
}

impl Scheduler {
    /// All queued requests, in the order in which they will be admitted.
    pub(crate) fn queue(&self, now: Duration) -> Vec<QueuedRequest> {
        let mut futures: Vec<(ModelId, Future)> =
            self.ready_models().map(|model| (model, self.future_of(model))).collect();
        let mut n_before = [0; Lane::ALL.len()];
        let mut queue = Vec::new();
        for id in self.admission_order(now) {
            let request = &self.requests[&id];
            let Some((_, future)) = futures.iter_mut().find(|(model, _)| *model == request.model) else { continue };
            let start = future.start(request.blocks);
            future.ends.push((start + self.seconds_left(request), request.blocks));
            n_before[request.lane as usize] += 1;
            let position = n_before[request.lane as usize];
            let wait = Duration::from_secs_f64(self.seconds_until(request, start));
            queue.push(QueuedRequest { request: id, lane: request.lane, model: request.model, position, wait });
        }
        queue
    }

    /// When the first of a lane's queue is expected to leave it.
    pub(super) fn next_departure(&self, lane: Lane, now: Duration) -> Duration {
        let first = self.queue(now).into_iter().find(|queued| queued.lane == lane);
        first.map_or(SHORTEST_RETRY, |first| first.wait.max(SHORTEST_RETRY))
    }

    fn ready_models(&self) -> impl Iterator<Item = ModelId> {
        self.models.iter().filter(|(_, state)| state.ready.is_some()).map(|(id, _)| *id)
    }

    fn future_of(&self, model: ModelId) -> Future {
        let available = self.ready(model).traits.kv_blocks;
        let ends: Vec<(f64, usize)> =
            self.holders(model).map(|request| (self.seconds_left(request), request.blocks)).collect();
        Future {
            free_blocks: available.saturating_sub(self.reserved_blocks(model)),
            free_sequences: self.settings.sequences.saturating_sub(ends.len()),
            ends,
            last_start: 0.0,
        }
    }

    /// Seconds that a request is expected to need if no more urgent work intervenes.
    fn seconds_left(&self, request: &Request) -> f64 {
        let cost = &self.ready(request.model).traits.cost;
        let prompt = if request.is_decoding() { 0 } else { request.uncomputed };
        let prefill = cost.seconds(StepShape::prefill(request.computed, prompt));
        let position = request.computed + request.uncomputed;
        let token = cost.seconds(StepShape::decode(position));
        prefill + token * self.expected_answer(request)
    }

    /// Expected number of tokens still missing from a request's answer.
    fn expected_answer(&self, request: &Request) -> f64 {
        let counts = self.metrics.lane(request.lane).counts;
        let usual = match counts.finished {
            0 => FIRST_GUESS_ANSWER,
            finished => counts.generated_tokens as f64 / finished as f64,
        };
        let left = (usual - request.generated as f64).max(usual / 4.0);
        left.min(request.answer_tokens.saturating_sub(request.generated) as f64)
    }

    /// Seconds until a request that gets its place in `start` seconds begins to run: after more urgent work is done. On
    /// every model, that takes as long as its longest request.
    fn seconds_until(&self, request: &Request, start: f64) -> f64 {
        let longest = |model: ModelId| {
            let of_model = self.requests.values().filter(move |other| other.model == model);
            let more_urgent = of_model.filter(|other| other.lane < request.lane);
            more_urgent.map(|other| self.seconds_left(other)).fold(0.0, f64::max)
        };
        let others: f64 = self.ready_models().filter(|model| *model != request.model).map(longest).sum();
        others + start.max(longest(request.model))
    }
}

impl Future {
    /// When a request of `n_blocks` blocks can start; records that it does.
    fn start(&mut self, n_blocks: usize) -> f64 {
        self.ends.sort_by(|one, other| other.0.total_cmp(&one.0));
        while self.free_blocks < n_blocks || self.free_sequences == 0 {
            let Some((end, freed)) = self.ends.pop() else { break };
            self.free_blocks += freed;
            self.free_sequences += 1;
            self.last_start = self.last_start.max(end);
        }
        self.free_blocks = self.free_blocks.saturating_sub(n_blocks);
        self.free_sequences = self.free_sequences.saturating_sub(1);
        self.last_start
    }
}
