//! Decides whose turn it is: tracks the time that lanes have earned and that sessions have been given.

use std::collections::BTreeMap;

use hone_protocol::Lane;

use super::SchedulerSettings;
use super::request::SessionKey;

/// Departed sessions are remembered until there are more of them than this and the others have caught up.
const REMEMBERED_SESSIONS: usize = 256;
/// A lane that cannot use its credit (it waits for the KV cache) saves up at most this many chunks.
const MOST_SAVED_CHUNKS: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Lanes {
    lanes: [LaneState; Lane::ALL.len()],
    /// The most unspent credit, in seconds, that a lane can accumulate.
    largest_credit: f64,
}

#[derive(Debug, Default)]
struct LaneState {
    /// Seconds it earns per second of more urgent lanes' time.
    share: f64,
    /// Seconds that it has earned but not spent; negative if it overspent.
    credit: f64,
    /// The cost in seconds of its next chunk, if known and more than the lane has.
    saving_for: f64,
    sessions: BTreeMap<SessionKey, Session>,
    /// The recent minimum of the time given to any session.
    virtual_time: f64,
}

#[derive(Debug, Default)]
struct Session {
    /// Seconds of device time that it has been given, or would have been given had it always been present.
    given: f64,
    n_requests: usize,
}

impl Lanes {
    pub(super) fn new(settings: &SchedulerSettings) -> Self {
        // Converts a share of all time into a share of the others' time.
        let of_the_others = |share: f64| share / (1.0 - share);
        let shares = [0.0, of_the_others(settings.background_share), of_the_others(settings.batch_share)];
        let lanes = shares.map(|share| LaneState { share, ..LaneState::default() });
        Lanes { lanes, largest_credit: MOST_SAVED_CHUNKS * settings.chunk.as_secs_f64() }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut LaneState {
        &mut self.lanes[lane as usize]
    }

    /// A request of a session arrives. A session earns nothing for the time it was away.
    pub(super) fn enter(&mut self, lane: Lane, session: SessionKey) {
        let state = self.lane_mut(lane);
        state.advance_virtual_time();
        let virtual_time = state.virtual_time;
        let session = state.sessions.entry(session).or_default();
        if session.n_requests == 0 {
            session.given = session.given.max(virtual_time);
        }
        session.n_requests += 1;
    }

    /// A request of a session has left.
    pub(super) fn leave(&mut self, lane: Lane, session: SessionKey) {
        let state = self.lane_mut(lane);
        if let Some(session) = state.sessions.get_mut(&session) {
            session.n_requests -= 1;
        }
        if matches!(session, SessionKey::Alone(_)) {
            state.advance_virtual_time();
            state.sessions.remove(&session);
        }
        if state.sessions.len() > REMEMBERED_SESSIONS {
            state.advance_virtual_time();
            let virtual_time = state.virtual_time;
            state.sessions.retain(|_, session| session.n_requests > 0 || session.given > virtual_time);
        }
        if state.sessions.values().all(|session| session.n_requests == 0) {
            // No session is behind another any more: the next one starts level with the one that was given the most.
            let foremost = state.sessions.values().map(|session| session.given).fold(state.virtual_time, f64::max);
            state.virtual_time = foremost;
            state.credit = state.credit.min(0.0);
            state.saving_for = 0.0;
        }
    }

    /// Seconds that a session has been given; the one with the least comes first.
    pub(super) fn given(&self, lane: Lane, session: SessionKey) -> f64 {
        self.lanes[lane as usize].sessions.get(&session).map_or(0.0, |session| session.given)
    }

    /// Charges a session for `seconds` of device time.
    pub(super) fn give(&mut self, lane: Lane, session: SessionKey, seconds: f64) {
        if let Some(session) = self.lane_mut(lane).sessions.get_mut(&session) {
            session.given += seconds;
        }
    }

    /// Seconds that a lane has earned but not spent.
    pub(super) fn credit(&self, lane: Lane) -> f64 {
        self.lanes[lane as usize].credit
    }

    /// A lane saves for its next chunk, which costs `seconds`.
    pub(super) fn save_for(&mut self, lane: Lane, seconds: f64) {
        self.lane_mut(lane).saving_for = seconds;
    }

    /// More urgent lanes had the device for `seconds` while this one had work.
    pub(super) fn earn(&mut self, lane: Lane, seconds: f64) {
        let largest = self.largest_credit;
        let state = self.lane_mut(lane);
        let limit = state.saving_for.max(largest);
        // Credit already above the limit is kept.
        state.credit = (state.credit + state.share * seconds).min(limit.max(state.credit));
    }

    /// A lane had the device for `seconds` while a more urgent one had work.
    pub(super) fn spend(&mut self, lane: Lane, seconds: f64) {
        self.lane_mut(lane).credit -= seconds;
    }
}

impl LaneState {
    /// Advances to the time of the active session that was given least; never goes back.
    fn advance_virtual_time(&mut self) {
        let working = self.sessions.values().filter(|session| session.n_requests > 0);
        if let Some(least) = working.map(|session| session.given).reduce(f64::min) {
            self.virtual_time = self.virtual_time.max(least);
        }
    }
}
