//! Plans the next step, and accounts for it when it is done.

use std::time::Duration;

use hone_protocol::Lane;

use super::cost::{CostModel, StepShape};
use super::plan::{Pause, RequestProgress, StepKind, StepPlan};
use super::request::Request;
use super::step_builder::{Runnable, SMALLEST_CHUNK, StepBuilder};
use super::{ModelId, ReadyModel, Scheduler};
use crate::kv_cache::BLOCK_TOKENS;

/// Maximum number of chunks that a suspendable step may span, so that little is lost when it is discarded.
const MOST_CHUNKS: usize = 25;
/// A suspended step is expected to take at least this fraction of its total time again.
const LEAST_REMAINDER: f64 = 0.05;

/// A step that is being carried out.
#[derive(Clone, Debug)]
pub(super) struct RunningStep {
    pub(super) plan: StepPlan,
    shape: StepShape,
    /// Seconds spent on its earlier parts.
    spent: f64,
    /// The lane of the most urgent request that could have run.
    top: Lane,
    /// Each lane's fraction of the step's time.
    parts: [f64; Lane::ALL.len()],
    /// Lanes that had work.
    had_work: [bool; Lane::ALL.len()],
}

/// A step suspended so that other models' steps could run.
#[derive(Clone, Debug)]
pub(super) struct SuspendedStep {
    pub(super) plan: StepPlan,
    shape: StepShape,
    spent: f64,
}

impl Scheduler {
    /// The next step; `None` if no request can be advanced.
    pub(crate) fn plan(&mut self, now: Duration) -> Option<StepPlan> {
        let candidates = self.candidates();
        let top = candidates.first()?.lane;
        let (step, prices) = match self.earned_step(&candidates, top) {
            (Some(step), prices) => (step, prices),
            (None, prices) => (self.urgent_step(&candidates, top), prices),
        };
        for (lane, seconds) in prices {
            self.lanes.save_for(lane, seconds);
        }
        self.begin(step.clone(), now);
        Some(step.plan)
    }

    /// The planned step is done; `extra` was computed beyond the plan.
    pub(crate) fn step_done(
        &mut self,
        now: Duration,
        elapsed: Duration,
        progress: &[RequestProgress],
        extra: StepShape,
    ) {
        self.note(now);
        let Some(running) = self.running.take() else { return };
        if let Some(model) = self.ready_mut(running.plan.model) {
            model.traits.cost.measure(running.shape + extra, running.spent + elapsed.as_secs_f64());
        }
        self.settle(&running, elapsed.as_secs_f64());
        for progress in progress {
            self.advance(progress, now);
        }
    }

    /// The planned step has been suspended.
    pub(crate) fn step_suspended(&mut self, elapsed: Duration) {
        let Some(running) = self.running.take() else { return };
        self.settle(&running, elapsed.as_secs_f64());
        let is_whole = running.plan.entries.iter().all(|entry| self.requests.contains_key(&entry.request));
        if let Some(model) = self.ready_mut(running.plan.model) {
            let RunningStep { plan, shape, spent, .. } = running;
            let suspended = SuspendedStep { plan, shape, spent: spent + elapsed.as_secs_f64() };
            model.suspended = is_whole.then_some(suspended);
        }
    }

    /// The planned step failed; its requests are unchanged, and are to be cancelled or retried.
    pub(crate) fn step_failed(&mut self) {
        self.running = None;
    }

    /// The lane in which a request is scheduled: its own, or a more urgent one whose request it holds up.
    #[cfg(test)]
    pub(crate) fn counts_as(&self, id: super::RequestId) -> Option<Lane> {
        self.requests.get(&id).map(|request| self.effective_lane(request))
    }

    /// All requests that could be advanced: by lane, and within a lane by session, starting with the one that was given
    /// least.
    fn candidates(&self) -> Vec<Runnable<'_>> {
        let running = self.requests.values().filter(|request| request.is_running());
        let mut candidates: Vec<(f64, Runnable<'_>)> = running
            .map(|request| {
                let candidate = Runnable { request, lane: self.effective_lane(request) };
                (self.lanes.given(request.lane, request.session), candidate)
            })
            .collect();
        candidates.sort_by(|(given, one), (other_given, other)| {
            one.lane.cmp(&other.lane).then(given.total_cmp(other_given)).then(one.id().cmp(&other.id()))
        });
        candidates.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// A request that cannot be paused is as urgent as the most urgent one that waits for its place: otherwise that one
    /// would have to wait until the other had finished in the time left over by urgent work.
    fn effective_lane(&self, request: &Request) -> Lane {
        if !request.is_protected {
            return request.lane;
        }
        let waiting = self.requests.values().filter(|other| other.model == request.model && other.is_queued());
        waiting.map(|other| other.lane).fold(request.lane, Lane::min)
    }

    /// The chunk of a lane below `top` that has earned it, and the prices for lanes that are still saving.
    fn earned_step(&self, candidates: &[Runnable<'_>], top: Lane) -> (Option<RunningStep>, Vec<(Lane, f64)>) {
        let mut prices = Vec::new();
        for lane in Lane::ALL.into_iter().filter(|lane| *lane > top) {
            let Some(model) = self.next_model(candidates, lane) else { continue };
            let more_urgent = Lane::ALL.into_iter().filter(|other| *other < lane);
            if more_urgent.into_iter().any(|other| self.next_model(candidates, other) == Some(model)) {
                continue; // It joins that lane's step.
            }
            let mut step = self.chunk(candidates, lane, model);
            let price = match step.plan.pause {
                Pause::Never => step.plan.seconds,
                _ => step.plan.seconds.min(self.settings.chunk.as_secs_f64()),
            };
            if price > self.lanes.credit(lane) {
                prices.push((lane, price));
            } else if !self.was_earned {
                if step.plan.pause != Pause::Never {
                    step.plan.pause = Pause::After(self.settings.chunk);
                }
                step.top = top;
                return (Some(step), prices);
            }
        }
        (None, prices)
    }

    /// The step of the most urgent lane that has work, joined by work that less urgent requests of the model have
    /// earned.
    fn urgent_step(&self, candidates: &[Runnable<'_>], top: Lane) -> RunningStep {
        let model = self.next_model(candidates, top).unwrap_or(candidates[0].model());
        if top > Lane::Interactive {
            return self.chunk(candidates, top, model);
        }
        let of_lane = |lane: Lane| of(candidates, lane, model);
        let state = self.ready(model);
        let mut builder = StepBuilder::new(&state.traits.cost, self.settings.prefill_tokens);
        self.add_interactive(&mut builder, &state.traits.cost, candidates, &of_lane(top));
        let mut parts = [0.0; Lane::ALL.len()];
        for lane in Lane::ALL.into_iter().filter(|lane| *lane > top) {
            if self.next_model(candidates, lane) == Some(model) {
                let limit = builder.seconds() + self.settings.chunk.as_secs_f64();
                parts[lane as usize] = self.add_joining(&mut builder, &of_lane(lane), lane, limit);
            }
        }
        parts[top as usize] = builder.seconds() - parts.iter().sum::<f64>();
        self.running_step(&builder, model, Pause::Never, top, parts)
    }

    fn add_interactive<'a>(
        &self,
        builder: &mut StepBuilder<'a>,
        cost: &CostModel,
        all: &[Runnable<'a>],
        own: &[Runnable<'a>],
    ) {
        builder.add_decodes(own, f64::INFINITY);
        let is_awaited = all.iter().any(|other| other.lane == Lane::Interactive && other.request.is_decoding());
        let longest = match cost.is_measured() {
            true => self.settings.longest_step,
            // Before anything has been measured, estimates err on the safe side.
            false => 4 * self.settings.longest_step,
        };
        let limit = if is_awaited { self.settings.interactive_chunk } else { longest }.as_secs_f64();
        if let Some(first) = own.iter().find(|candidate| !candidate.request.is_decoding()) {
            builder.add(first.request, first.request.uncomputed.min(BLOCK_TOKENS));
        }
        builder.add_prefills(own, limit);
    }

    /// Adds the work that a lane has earned the time for, as long as the step takes at most `limit` seconds. Returns
    /// the added seconds.
    fn add_joining<'a>(
        &self,
        builder: &mut StepBuilder<'a>,
        candidates: &[Runnable<'a>],
        lane: Lane,
        limit: f64,
    ) -> f64 {
        let before = builder.seconds();
        let limit = limit.min(before + self.lanes.credit(lane));
        builder.add_decodes(candidates, limit);
        builder.add_prefills(candidates, limit);
        builder.seconds() - before
    }

    /// A step of a lane that is not interactive, or the rest of a suspended one.
    fn chunk(&self, candidates: &[Runnable<'_>], lane: Lane, model: ModelId) -> RunningStep {
        let state = self.ready(model);
        if let Some(suspended) = &state.suspended {
            return self.resumed(suspended, lane);
        }
        let own = of(candidates, lane, model);
        let most_tokens = self.settings.prefill_tokens.min(state.traits.cost.reliable_prefill());
        let mut builder = StepBuilder::new(&state.traits.cost, most_tokens);
        let head = own[0].request;
        builder.add(head, if head.is_decoding() { 1 } else { head.uncomputed.min(SMALLEST_CHUNK) });
        let limit = self.chunk_limit(state, builder.seconds());
        // The work that less urgent lanes have earned is added before the rest of the chunk: otherwise a full chunk
        // would leave no room for it.
        let mut parts = [0.0; Lane::ALL.len()];
        for lower in Lane::ALL.into_iter().filter(|lower| *lower > lane) {
            if self.next_model(candidates, lower) == Some(model) {
                let joining = of(candidates, lower, model);
                parts[lower as usize] = self.add_joining(&mut builder, &joining, lower, limit);
            }
        }
        builder.add_decodes(&own, limit);
        builder.add_prefills(&own, limit);
        parts[lane as usize] = builder.seconds() - parts.iter().sum::<f64>();
        self.running_step(&builder, model, state.pause(), lane, parts)
    }

    /// The limit in seconds of a chunk whose least work takes `least`. If that exceeds the budget, the limit is twice
    /// the least; if nothing has been measured, the chunk does no more than the least.
    fn chunk_limit(&self, state: &ReadyModel, least: f64) -> f64 {
        let budget = self.settings.chunk.as_secs_f64() * state.traits.slices.clamp(1, MOST_CHUNKS) as f64;
        match state.traits.cost.is_measured() {
            false => 0.0,
            true if least > budget => 2.0 * least,
            true => budget,
        }
    }

    /// The rest of a suspended step. The lane that needs the model pays for it, whichever lane began it.
    fn resumed(&self, suspended: &SuspendedStep, top: Lane) -> RunningStep {
        let SuspendedStep { plan, shape, spent } = suspended.clone();
        let parts = Lane::ALL.map(|lane| if lane == top { 1.0 } else { 0.0 });
        let whole = self.ready(plan.model).traits.cost.seconds(shape);
        let seconds = (whole - spent).max(LEAST_REMAINDER * whole);
        let plan = StepPlan { kind: StepKind::Resume, pause: Pause::OnArrival, seconds, ..plan };
        RunningStep { plan, shape, spent, top, parts, had_work: self.lanes_with_work() }
    }

    fn running_step(
        &self,
        builder: &StepBuilder<'_>,
        model: ModelId,
        pause: Pause,
        top: Lane,
        seconds_of_lanes: [f64; Lane::ALL.len()],
    ) -> RunningStep {
        let seconds = builder.seconds();
        let plan = StepPlan { model, kind: StepKind::Begin, entries: builder.entries(), pause, seconds };
        let parts = seconds_of_lanes.map(|part| if seconds > 0.0 { part / seconds } else { 0.0 });
        RunningStep { plan, shape: builder.shape(), spent: 0.0, top, parts, had_work: self.lanes_with_work() }
    }

    /// The model that a lane uses next: one on which it has a suspended step, otherwise that of its first candidate. A
    /// model on which a less urgent lane has a suspended step comes last, because that step would have to be paid for.
    fn next_model(&self, candidates: &[Runnable<'_>], lane: Lane) -> Option<ModelId> {
        let own = || candidates.iter().filter(|candidate| candidate.lane == lane).map(Runnable::model);
        if lane == Lane::Interactive {
            return own().next();
        }
        let free = |model: &ModelId| self.ready(*model).suspended.is_none();
        own().find(|model| self.has_suspended(*model, lane)).or_else(|| own().find(free)).or_else(|| own().next())
    }

    fn has_suspended(&self, model: ModelId, lane: Lane) -> bool {
        let suspended = self.ready(model).suspended.as_ref();
        suspended.is_some_and(|step| {
            let mut requests = step.plan.entries.iter().map(|entry| &self.requests[&entry.request]);
            requests.any(|request| self.effective_lane(request) == lane)
        })
    }

    fn lanes_with_work(&self) -> [bool; Lane::ALL.len()] {
        Lane::ALL.map(|lane| self.requests.values().any(|request| request.lane == lane))
    }

    fn begin(&mut self, step: RunningStep, now: Duration) {
        for entry in &step.plan.entries {
            let Some(request) = self.requests.get_mut(&entry.request) else { continue };
            if request.first_run.is_none() {
                request.first_run = Some(now);
                self.metrics.lane_mut(request.lane).count_first_run(
                    now.saturating_sub(request.arrived),
                    request.computed + request.uncomputed,
                    request.computed,
                );
            }
        }
        if let Some(model) = self.ready_mut(step.plan.model) {
            model.suspended = None;
        }
        self.was_earned = step.parts[step.top as usize] == 0.0;
        self.running = Some(step);
    }

    /// Charges lanes and sessions for a step.
    fn settle(&mut self, step: &RunningStep, elapsed: f64) {
        for lane in Lane::ALL.into_iter().filter(|lane| *lane > step.top) {
            let own = elapsed * step.parts[lane as usize];
            self.lanes.spend(lane, own);
            if step.had_work[lane as usize] {
                let above: f64 = step.parts[..lane as usize].iter().sum();
                self.lanes.earn(lane, elapsed * above);
            }
        }
        let tokens: usize = step.plan.entries.iter().map(|entry| entry.n_tokens).sum();
        for entry in &step.plan.entries {
            if let Some(request) = self.requests.get_mut(&entry.request) {
                let seconds = elapsed * entry.n_tokens as f64 / tokens as f64;
                request.account(Duration::from_secs_f64(seconds));
                self.lanes.give(request.lane, request.session, seconds);
            }
        }
    }

    fn advance(&mut self, progress: &RequestProgress, now: Duration) {
        let Some(request) = self.requests.get_mut(&progress.request) else { return };
        let n_new = progress.generated.saturating_sub(request.generated);
        let metrics = self.metrics.lane_mut(request.lane);
        if n_new > 0 {
            match request.last_token {
                None => metrics.time_to_first_token.add(now.saturating_sub(request.arrived)),
                Some(last) => metrics.time_between_tokens.add(now.saturating_sub(last)),
            }
            request.last_token = Some(now);
            metrics.counts.generated_tokens += n_new as u64;
        }
        if request.is_decoding() {
            request.n_decoded += n_new;
        }
        request.computed = progress.computed;
        request.uncomputed = progress.uncomputed;
        request.generated = progress.generated;
        if progress.has_ended {
            metrics.counts.finished += 1;
            self.forget(progress.request);
        }
    }
}

impl ReadyModel {
    fn pause(&self) -> Pause {
        if self.traits.slices > 1 { Pause::OnArrival } else { Pause::Never }
    }
}

fn of<'a>(candidates: &[Runnable<'a>], lane: Lane, model: ModelId) -> Vec<Runnable<'a>> {
    candidates.iter().filter(|candidate| candidate.lane == lane && candidate.model() == model).copied().collect()
}
