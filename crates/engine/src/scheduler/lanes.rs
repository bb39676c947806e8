//! Whose turn it is: time that lanes have earned, and time that sessions have been given.

use std::collections::BTreeMap;

use hone_protocol::Lane;

use super::SchedulerSettings;
use super::request::SessionKey;

/// Sessions that have gone are remembered until there are more of them than this and the others have caught up.
const REMEMBERED_SESSIONS: usize = 256;
/// A lane that cannot use what it has earned (it waits for the KV cache) saves up so many chunks and no more.
const MOST_SAVED_CHUNKS: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Lanes {
    lanes: [LaneState; Lane::ALL.len()],
    /// The most seconds that a lane can have earned without having spent them.
    largest_credit: f64,
}

#[derive(Debug, Default)]
struct LaneState {
    /// Part of the time of more urgent lanes that it earns.
    share: f64,
    /// Seconds that it has earned and not spent; negative where it took more than it had.
    credit: f64,
    /// Seconds that its next chunk costs, where that is known and more than the lane has.
    saving_for: f64,
    sessions: BTreeMap<SessionKey, Session>,
    /// What the session that was given least had been given, of late.
    virtual_time: f64,
}

#[derive(Debug, Default)]
struct Session {
    /// Seconds of the device that it has been given, or would have been had it been there all the time.
    given: f64,
    n_requests: usize,
}

impl Lanes {
    pub(super) fn new(settings: &SchedulerSettings) -> Self {
        // A share of all the time is this much of the time of the others.
        let of_the_others = |share: f64| share / (1.0 - share);
        let shares = [0.0, of_the_others(settings.background_share), of_the_others(settings.batch_share)];
        let lanes = shares.map(|share| LaneState { share, ..LaneState::default() });
        Lanes { lanes, largest_credit: MOST_SAVED_CHUNKS * settings.chunk.as_secs_f64() }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut LaneState {
        &mut self.lanes[lane as usize]
    }

    /// A request of a session comes in. A session that was away is given no time for that.
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

    /// A request of a session is gone.
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
            // Nobody is behind anybody any more: who comes next begins with what the foremost has had.
            let foremost = state.sessions.values().map(|session| session.given).fold(state.virtual_time, f64::max);
            state.virtual_time = foremost;
            state.credit = state.credit.min(0.0);
            state.saving_for = 0.0;
        }
    }

    /// Seconds that a session has been given; what was given least comes first.
    pub(super) fn given(&self, lane: Lane, session: SessionKey) -> f64 {
        self.lanes[lane as usize].sessions.get(&session).map_or(0.0, |session| session.given)
    }

    /// A session has been given so many seconds.
    pub(super) fn give(&mut self, lane: Lane, session: SessionKey, seconds: f64) {
        if let Some(session) = self.lane_mut(lane).sessions.get_mut(&session) {
            session.given += seconds;
        }
    }

    /// Seconds that a lane has earned and not spent.
    pub(super) fn credit(&self, lane: Lane) -> f64 {
        self.lanes[lane as usize].credit
    }

    /// A lane's next chunk costs so many seconds, and it saves for it.
    pub(super) fn save_for(&mut self, lane: Lane, seconds: f64) {
        self.lane_mut(lane).saving_for = seconds;
    }

    /// More urgent lanes have had the device for so many seconds while this one had work.
    pub(super) fn earn(&mut self, lane: Lane, seconds: f64) {
        let largest = self.largest_credit;
        let state = self.lane_mut(lane);
        let limit = state.saving_for.max(largest);
        // What it has beyond the limit by now stays its own.
        state.credit = (state.credit + state.share * seconds).min(limit.max(state.credit));
    }

    /// A lane has had the device for so many seconds while a more urgent one had work.
    pub(super) fn spend(&mut self, lane: Lane, seconds: f64) {
        self.lane_mut(lane).credit -= seconds;
    }
}

impl LaneState {
    /// Follows the session with work that was given least; never goes back.
    fn advance_virtual_time(&mut self) {
        let working = self.sessions.values().filter(|session| session.n_requests > 0);
        if let Some(least) = working.map(|session| session.given).reduce(f64::min) {
            self.virtual_time = self.virtual_time.max(least);
        }
    }
}
