//! Assembles a step within a time limit.

use hone_protocol::Lane;

use super::cost::{CostModel, StepShape};
use super::plan::StepEntry;
use super::request::Request;
use super::{ModelId, RequestId};

/// Prompts are never cut into pieces smaller than this, unless they end sooner: each piece costs a turn.
pub(super) const SMALLEST_CHUNK: usize = 8;
/// Predictions are not exact enough to cut a step short over less than this.
const TOLERANCE: f64 = 1.01;

/// A request that could be advanced now.
#[derive(Clone, Copy)]
pub(super) struct Runnable<'a> {
    pub(super) request: &'a Request,
    /// The lane in which it is scheduled.
    pub(super) lane: Lane,
}

impl Runnable<'_> {
    pub(super) fn id(&self) -> RequestId {
        self.request.id
    }

    pub(super) fn model(&self) -> ModelId {
        self.request.model
    }

    /// The fewest tokens that are worth a turn.
    pub(super) fn least_tokens(&self) -> usize {
        self.request.uncomputed.min(SMALLEST_CHUNK)
    }
}

pub(super) struct StepBuilder<'a> {
    cost: &'a CostModel,
    entries: Vec<(&'a Request, usize)>,
    /// Prompt tokens that the step may still take.
    prefill_room: usize,
}

impl<'a> StepBuilder<'a> {
    pub(super) fn new(cost: &'a CostModel, prefill_tokens: usize) -> Self {
        StepBuilder { cost, entries: Vec::new(), prefill_room: prefill_tokens.max(SMALLEST_CHUNK) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn seconds(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.cost.seconds(self.shape()) }
    }

    pub(super) fn shape(&self) -> StepShape {
        self.entries.iter().map(|(request, n_tokens)| request.shape(*n_tokens)).fold(StepShape::default(), |a, b| a + b)
    }

    pub(super) fn entries(&self) -> Vec<StepEntry> {
        let entry = |(request, n_tokens): &(&Request, usize)| StepEntry {
            request: request.id,
            n_tokens: *n_tokens,
            wants_logits: *n_tokens == request.uncomputed,
        };
        self.entries.iter().map(entry).collect()
    }

    /// Adds the next token of as many answers as fit into `limit` seconds.
    pub(super) fn add_decodes(&mut self, candidates: &[Runnable<'a>], limit: f64) {
        for candidate in candidates.iter().filter(|candidate| candidate.request.is_decoding()) {
            let is_there = self.n_tokens_of(candidate.request) > 0;
            if !is_there && self.fits(candidate.request, 1, limit) {
                self.add(candidate.request, 1);
            }
        }
    }

    /// Adds parts of prompts, as much as fits into `limit` seconds, starting with the first candidate.
    pub(super) fn add_prefills(&mut self, candidates: &[Runnable<'a>], limit: f64) {
        for candidate in candidates.iter().filter(|candidate| !candidate.request.is_decoding()) {
            let n_tokens = self.most_tokens(candidate.request, limit);
            let so_far = self.n_tokens_of(candidate.request);
            if so_far + n_tokens >= candidate.least_tokens() {
                self.add(candidate.request, n_tokens);
            }
        }
    }

    /// Adds tokens of a request, whatever they cost.
    pub(super) fn add(&mut self, request: &'a Request, n_tokens: usize) {
        if n_tokens == 0 {
            return;
        }
        if !request.is_decoding() {
            self.prefill_room = self.prefill_room.saturating_sub(n_tokens);
        }
        match self.entries.iter_mut().find(|(there, _)| there.id == request.id) {
            Some((_, so_far)) => *so_far += n_tokens,
            None => self.entries.push((request, n_tokens)),
        }
    }

    /// The most additional prompt tokens with which the step takes at most `limit` seconds.
    fn most_tokens(&self, request: &Request, limit: f64) -> usize {
        let left = request.uncomputed - self.n_tokens_of(request);
        let (mut fits, mut too_many) = (0, left.min(self.prefill_room) + 1);
        while too_many - fits > 1 {
            let middle = fits.midpoint(too_many);
            if self.fits(request, middle, limit) { fits = middle } else { too_many = middle }
        }
        fits
    }

    fn n_tokens_of(&self, request: &Request) -> usize {
        self.entries.iter().find(|(there, _)| there.id == request.id).map_or(0, |(_, n_tokens)| *n_tokens)
    }

    /// Whether the step takes at most `limit` seconds with `n_more` tokens of a request.
    fn fits(&self, request: &Request, n_more: usize, limit: f64) -> bool {
        let so_far = self.n_tokens_of(request);
        let added = request.shape(so_far + n_more);
        let others = self.entries.iter().filter(|(there, _)| there.id != request.id);
        let others =
            others.map(|(request, n_tokens)| request.shape(*n_tokens)).fold(StepShape::default(), |a, b| a + b);
        self.cost.seconds(others + added) <= limit * TOLERANCE
    }
}
