//! Decides which requests have a place in the KV cache.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::request::{RequestPhase, SessionKey};
use super::{RequestId, Scheduler};

/// The actions to take before the next step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Requests whose time limit has passed. They are forgotten.
    pub expired: Vec<RequestId>,
    /// Requests whose prompts take too long, each with the number of tokens that would fit. They are forgotten.
    pub too_slow: Vec<(RequestId, usize)>,
    /// Requests whose free text must end so that they finish within their time limits; each is named once.
    pub concluding: Vec<RequestId>,
    /// Requests that lose their place in the KV cache and wait for a new one.
    pub dropped: Vec<RequestId>,
    /// Requests that have a place in the KV cache and are to be started, or to follow another.
    pub starting: Vec<RequestId>,
}

impl Scheduler {
    /// Decides which requests have a place in the KV cache. A suspended step is discarded when one of its requests is
    /// named as expired, too slow or dropped.
    pub(crate) fn turn(&mut self, now: Duration) -> Turn {
        self.note(now);
        let mut turn = Turn { expired: self.expire(), ..Turn::default() };
        self.find_shortages(&mut turn);
        self.admit(now, &mut turn);
        self.call_followers(&mut turn);
        turn
    }

    fn expire(&mut self) -> Vec<RequestId> {
        let is_expired = |id: &RequestId| self.requests[id].is_expired();
        let expired: Vec<RequestId> = self.requests.keys().copied().filter(is_expired).collect();
        for id in &expired {
            let lane = self.requests[id].lane;
            self.metrics.lane_mut(lane).counts.timed_out += 1;
            self.forget(*id);
        }
        expired
    }

    /// Admits requests in their order. The first request of a model that finds no room holds up all after it, so that
    /// small requests do not overtake a large one indefinitely.
    fn admit(&mut self, now: Duration, turn: &mut Turn) {
        let mut full_models = BTreeSet::new();
        for id in self.admission_order(now) {
            let model = self.requests[&id].model;
            if full_models.contains(&model) {
                continue;
            }
            let Some(victims) = self.make_room(id) else {
                full_models.insert(model);
                continue;
            };
            victims.into_iter().for_each(|victim| self.pause(victim, now, turn));
            let patience = self.settings.patience;
            if let Some(request) = self.requests.get_mut(&id) {
                let is_protected = request.waited(now) >= patience;
                request.become_admitted(now, is_protected);
                turn.starting.push(id);
            }
        }
    }

    /// First the requests whose patience is over, in the order of their arrival; then by lane, and within a lane one
    /// request of every session before the second of any.
    pub(super) fn admission_order(&self, now: Duration) -> Vec<RequestId> {
        if !self.requests.values().any(|request| request.is_queued()) {
            return Vec::new();
        }
        let mut n_before: BTreeMap<SessionKey, usize> = BTreeMap::new();
        for request in self.requests.values().filter(|request| !request.is_queued()) {
            *n_before.entry(request.session).or_default() += 1;
        }
        let mut order = Vec::new();
        for request in self.requests.values().filter(|request| request.is_queued()) {
            let n_before = n_before.entry(request.session).or_default();
            let given = self.lanes.given(request.lane, request.session);
            order.push(match request.waited(now) >= self.settings.patience {
                true => (false, None, 0, 0.0, request.id),
                false => (true, Some(request.lane), *n_before, given, request.id),
            });
            *n_before += 1;
        }
        order.sort_by(|one, other| {
            let keys = (one.0, one.1, one.2).cmp(&(other.0, other.1, other.2));
            keys.then(one.3.total_cmp(&other.3)).then(one.4.cmp(&other.4))
        });
        order.into_iter().map(|entry| entry.4).collect()
    }

    /// The requests to pause so that this one has room; `None` if that would not be enough.
    fn make_room(&self, id: RequestId) -> Option<Vec<RequestId>> {
        let request = &self.requests[&id];
        let available = self.ready(request.model).available_blocks(request.blocks);
        let mut n_blocks = request.blocks + self.reserved_blocks(request.model);
        let mut n_sequences = 1 + self.holders(request.model).count();
        let mut less_urgent: Vec<_> =
            self.holders(request.model).filter(|holder| holder.lane > request.lane && !holder.is_protected).collect();
        less_urgent.sort_by_key(|holder| (Reverse(holder.lane), Reverse(holder.id)));
        let mut victims = Vec::new();
        let mut less_urgent = less_urgent.into_iter();
        while n_blocks > available || n_sequences > self.settings.sequences {
            let victim = less_urgent.next()?;
            n_blocks -= victim.blocks;
            n_sequences -= 1;
            victims.push(victim.id);
        }
        Some(victims)
    }

    /// Takes a request's place in the KV cache away. It is queued again, ahead of later requests of its lane.
    fn pause(&mut self, id: RequestId, now: Duration, turn: &mut Turn) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.become_paused(now);
        let (lane, model) = (request.lane, request.model);
        self.metrics.lane_mut(lane).counts.preemptions += 1;
        self.void_suspended(model, id);
        turn.dropped.push(id);
    }

    /// Names followers again whose leader has computed enough, or is gone.
    fn call_followers(&mut self, turn: &mut Turn) {
        let is_over = |leader: &RequestId, n_tokens: usize| {
            self.requests.get(leader).is_none_or(|leader| !leader.is_running() || leader.computed >= n_tokens)
        };
        let called: Vec<RequestId> = self
            .requests
            .values()
            .filter(
                |request| matches!(&request.phase, RequestPhase::Following { leader, n_tokens } if is_over(leader, *n_tokens)),
            )
            .map(|request| request.id)
            .collect();
        for id in called {
            if let Some(request) = self.requests.get_mut(&id) {
                request.phase = RequestPhase::Admitted;
                turn.starting.push(id);
            }
        }
    }
}
