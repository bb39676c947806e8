//! One request, as the scheduler sees it: token counts, never the tokens themselves.

use std::time::Duration;

use hone_protocol::{Lane, SessionId};

use super::cost::StepShape;
use super::{ModelId, RequestId, blocks_for};

/// An arriving request, as described to the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Its model.
    pub model: ModelId,
    /// Its urgency.
    pub lane: Lane,
    /// The session it belongs to; a request without one takes turns as a session of its own.
    pub session: Option<SessionId>,
    /// Tokens of its prompt; at least one.
    pub prompt_tokens: usize,
    /// Maximum number of tokens in its answer.
    pub answer_tokens: usize,
    /// Maximum device time that it may take.
    pub time_limit: Option<Duration>,
    /// Number of leading prompt tokens that are shared with many requests; computing them does not count towards the
    /// limit.
    pub common_tokens: usize,
    /// Tokens that its answer needs after its free text, if it is to be concluded within the time limit.
    pub conclusion_tokens: Option<usize>,
    /// Whether a prompt that takes too much of the time limit is refused early.
    pub can_be_shortened: bool,
}

impl Arrival {
    /// Blocks of the KV cache that it may need.
    pub(super) fn blocks(&self) -> usize {
        blocks_for(self.prompt_tokens.saturating_add(self.answer_tokens))
    }
}

/// The unit that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SessionKey {
    Session(SessionId),
    Alone(RequestId),
}

/// The phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPhase {
    /// In the queue since `since`, without a place in the KV cache.
    Waiting { since: Duration },
    /// It has a place; the cached part of its prompt is not known yet.
    Admitted,
    /// It waits until another request has computed their shared beginning.
    Following { leader: RequestId, n_tokens: usize },
    /// Its tokens are being computed.
    Running,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) model: ModelId,
    pub(super) lane: Lane,
    pub(super) session: SessionKey,
    pub(super) phase: RequestPhase,
    /// Tokens in the KV cache.
    pub(super) computed: usize,
    /// Number of them that were there when it started.
    pub(super) cached: usize,
    /// Known tokens that are not in the KV cache: of the prompt, or the last of the answer.
    pub(super) uncomputed: usize,
    /// Tokens of the answer so far.
    pub(super) generated: usize,
    pub(super) answer_tokens: usize,
    /// Blocks reserved while it has a place.
    pub(super) blocks: usize,
    /// Whether it can no longer be paused.
    pub(super) is_protected: bool,
    pub(super) arrived: Duration,
    /// Time spent waiting before the current phase.
    waited: Duration,
    pub(super) first_run: Option<Duration>,
    /// Its share of the time of the steps that it was part of, after its shared beginning.
    pub(super) ran: Duration,
    common_tokens: usize,
    pub(super) time_limit: Option<Duration>,
    pub(super) conclusion_tokens: Option<usize>,
    pub(super) can_be_shortened: bool,
    /// Whether it has been told to conclude.
    pub(super) is_concluding: bool,
    /// Its share of the time of the steps that each computed a token of its answer, and the number of tokens that they
    /// yielded.
    pub(super) decode_ran: Duration,
    pub(super) n_decoded: usize,
    pub(super) last_token: Option<Duration>,
}

/// A request whose model is not in memory.
#[derive(Debug)]
pub(crate) struct ParkedRequest(pub(super) Box<Request>);

impl ParkedRequest {
    /// Its id.
    pub(crate) fn id(&self) -> RequestId {
        self.0.id
    }
}

impl Request {
    pub(super) fn new(id: RequestId, arrival: Arrival, now: Duration) -> Self {
        Request {
            id,
            model: arrival.model,
            lane: arrival.lane,
            session: arrival.session.map_or(SessionKey::Alone(id), SessionKey::Session),
            phase: RequestPhase::Waiting { since: now },
            computed: 0,
            cached: 0,
            uncomputed: arrival.prompt_tokens,
            generated: 0,
            answer_tokens: arrival.answer_tokens,
            blocks: arrival.blocks(),
            is_protected: false,
            arrived: now,
            waited: Duration::ZERO,
            first_run: None,
            ran: Duration::ZERO,
            common_tokens: arrival.common_tokens,
            time_limit: arrival.time_limit,
            conclusion_tokens: arrival.conclusion_tokens,
            can_be_shortened: arrival.can_be_shortened,
            is_concluding: false,
            decode_ran: Duration::ZERO,
            n_decoded: 0,
            last_token: None,
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.phase, RequestPhase::Waiting { .. })
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == RequestPhase::Running
    }

    /// Whether its next token belongs to the answer.
    pub(super) fn is_decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed == 1
    }

    /// The amount of work that `n_tokens` more of it add to a step.
    pub(super) fn shape(&self, n_tokens: usize) -> StepShape {
        match self.is_decoding() {
            true => StepShape::decode(self.computed),
            false => StepShape::prefill(self.computed, n_tokens),
        }
    }

    /// Total time it has waited for a place.
    pub(super) fn waited(&self, now: Duration) -> Duration {
        match self.phase {
            RequestPhase::Waiting { since } => self.waited + now.saturating_sub(since),
            _ => self.waited,
        }
    }

    /// How urgently its model must stay in memory: most urgent if the request can no longer be paused.
    pub(super) fn urgency(&self) -> Lane {
        if self.is_protected { Lane::Interactive } else { self.lane }
    }

    /// Only time in which it had the device counts.
    pub(super) fn is_expired(&self) -> bool {
        self.time_limit.is_some_and(|limit| self.ran >= limit)
    }

    /// Counts its share of the time of a step.
    pub(super) fn account(&mut self, share: Duration) {
        if self.computed >= self.common_tokens {
            self.ran += share;
        }
        if self.is_decoding() {
            self.decode_ran += share;
        }
    }

    /// Tokens of the prompt that were computed at its own expense.
    pub(super) fn n_paid(&self) -> usize {
        self.computed.saturating_sub(self.cached.max(self.common_tokens))
    }

    pub(super) fn become_admitted(&mut self, now: Duration, is_protected: bool) {
        debug_assert!(self.is_queued());
        self.waited = self.waited(now);
        self.is_protected = is_protected;
        self.phase = RequestPhase::Admitted;
    }

    pub(super) fn become_running(&mut self, cached: usize) {
        debug_assert!(self.phase == RequestPhase::Admitted && self.computed == 0);
        self.computed = cached;
        self.cached = cached;
        self.uncomputed -= cached;
        self.phase = RequestPhase::Running;
    }

    /// Loses its place in the KV cache; all of its tokens must be computed again. The time it has used no longer counts
    /// against its limit, since it was lost to a more urgent request.
    pub(super) fn become_paused(&mut self, now: Duration) {
        debug_assert!(!self.is_queued() && !self.is_protected);
        self.uncomputed += self.computed;
        self.computed = 0;
        self.ran = Duration::ZERO;
        self.phase = RequestPhase::Waiting { since: now };
    }

    /// Its model is unloaded. From now on, its waiting does not count as waiting for a place.
    pub(super) fn become_parked(&mut self, now: Duration) {
        if !self.is_queued() {
            self.become_paused(now);
        }
        self.waited = self.waited(now);
    }

    /// Its model is back.
    pub(super) fn become_queued(&mut self, model: ModelId, now: Duration) {
        self.model = model;
        self.phase = RequestPhase::Waiting { since: now };
    }
}
