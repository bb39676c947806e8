//! 100 000 random requests with simulated time and cost, and the invariants that must hold at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::kv_cache::BLOCK_TOKENS;
use crate::scheduler::cost::CostModel;
use crate::scheduler::metrics::LaneCounts;
use crate::scheduler::{Arrival, ModelId, Refusal, RequestId, SchedulerSettings};
use hone_protocol::{Lane, SessionId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::simulator::{Device, Done, Simulated, Simulator};

const N_REQUESTS: u64 = 100_000;
/// Blocks of every model's KV cache: sometimes too few for the requests.
const KV_BLOCKS: usize = 160;
/// The longest step in seconds that can be suspended: 25 chunks, plus noise and prediction errors.
const LONGEST_STEP: f64 = 0.6;
/// Steps after which the costs are known.
const WARM_STEPS: u64 = 2000;
/// Steps take up to this much longer or shorter than their cost says.
const NOISE: f64 = 0.1;

#[test]
fn what_must_always_hold_holds_for_a_hundred_thousand_requests() {
    let mut run = Run::new(20_261_122);
    while run.n_arrived < N_REQUESTS || !run.simulator.requests.is_empty() {
        run.go_on();
    }
    run.check_end();
}

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    /// From 0 to below 1.
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn choose<T: Copy>(&mut self, weighted: &[(u64, T)]) -> T {
        let mut left = self.below(weighted.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in weighted {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        unreachable!("the weights add up")
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Finished,
    Cancelled,
    Refused,
    TimedOut,
}

struct Run {
    simulator: Simulator,
    random: Random,
    settings: SchedulerSettings,
    n_arrived: u64,
    next_arrival: Duration,
    is_burst: bool,
    /// Arrived and not ended.
    open: BTreeMap<RequestId, Arrival>,
    ends: BTreeMap<End, u64>,
    /// The last step contained no interactive request although one could have run.
    has_waited: bool,
    /// Seconds that each lane is owed by its share.
    owed: [f64; 3],
    n_suspended: u64,
    n_dropped: u64,
    n_steps: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let settings = SchedulerSettings { queue_limits: [40, 60, 80], ..SchedulerSettings::default() };
        let mut simulator = Simulator::new(settings.clone());
        // A small generator, a judge that can be suspended inside its steps, and a small model that cannot. The guesses
        // are those of a machine that is faster or slower than the real one.
        let models = [
            ([6e-3, 0.4e-3, 0.5e-3, 1e-7], 1, 0.3),
            ([300e-3, 12e-3, 14e-3, 1e-6], 60, 2.0),
            ([4e-3, 0.3e-3, 0.4e-3, 1e-7], 1, 1.0),
        ];
        for (index, (coefficients, slices, factor)) in models.into_iter().enumerate() {
            let device = Device { cost: CostModel::with_coefficients(coefficients), slices };
            let guess = CostModel::with_coefficients(coefficients.map(|coefficient| factor * coefficient));
            simulator.add_model(ModelId(index as u32), device, KV_BLOCKS, guess);
        }
        Run {
            simulator,
            random: Random(ChaCha8Rng::seed_from_u64(seed)),
            settings,
            n_arrived: 0,
            next_arrival: Duration::ZERO,
            is_burst: false,
            open: BTreeMap::new(),
            ends: BTreeMap::new(),
            has_waited: false,
            owed: [0.0; 3],
            n_suspended: 0,
            n_dropped: 0,
            n_steps: 0,
        }
    }

    fn go_on(&mut self) {
        while self.n_arrived < N_REQUESTS && self.simulator.now >= self.next_arrival {
            self.arrive();
        }
        if self.random.below(300) == 0 {
            self.cancel_one();
        }
        self.turn();
        let counts_as = self.runnable();
        let runnable = Lane::ALL.map(|lane| counts_as.values().any(|other| *other == lane));
        for (id, lane) in &counts_as {
            self.simulator.requests.get_mut(id).unwrap().lane = *lane;
        }
        let next_arrival = (self.n_arrived < N_REQUESTS).then_some(self.next_arrival);
        let slowness = 1.0 + NOISE * (2.0 * self.random.uniform() - 1.0);
        let is_warm = self.n_steps > WARM_STEPS;
        match self.simulator.step(slowness, next_arrival) {
            Some(done) => {
                self.n_steps += 1;
                self.check_step(&done, &counts_as, runnable, is_warm);
                done.ended.iter().for_each(|id| self.end(*id, End::Finished));
            }
            None => {
                assert!(runnable.iter().all(|is_runnable| !is_runnable), "work is left and no step is planned");
                assert!(
                    self.open.is_empty() || next_arrival.is_some(),
                    "requests are left that never end: {:?}",
                    self.open
                );
                self.simulator.now = self.simulator.now.max(self.next_arrival);
            }
        }
    }

    fn arrive(&mut self) {
        self.n_arrived += 1;
        if self.random.below(200) == 0 {
            self.is_burst = !self.is_burst;
        }
        let mean = if self.is_burst { 0.05 } else { 1.0 };
        self.next_arrival += Duration::from_secs_f64(-mean * (1.0 - self.random.uniform()).ln());
        let id = RequestId(self.n_arrived);
        let random = &mut self.random;
        let lane = random.choose(&[(5, Lane::Interactive), (3, Lane::Background), (2, Lane::Batch)]);
        let judge_weight = if lane == Lane::Interactive { 0 } else { 2 };
        let model = random.choose(&[(6, 0), (judge_weight, 1), (4, 2)]);
        let prompt = 1 + random.choose(&[(6, 60), (3, 400), (1, 1500)]) * random.below(1000) as usize / 1000;
        let answer = 1 + random.below(if model == 1 { 12 } else { 60 }) as usize;
        let arrival = Arrival {
            model: ModelId(model),
            lane,
            session: (random.below(4) > 0).then(|| SessionId::from_bits(random.below(12).into())),
            prompt_tokens: prompt,
            answer_tokens: answer + random.below(200) as usize,
            time_limit: (random.below(20) == 0).then(|| Duration::from_millis(100 + random.below(4_000))),
            common_tokens: random.below(40) as usize,
            conclusion_tokens: (random.below(2) == 0).then(|| random.below(12) as usize),
            can_be_shortened: random.below(2) == 0,
        };
        let mut request = Simulated::new(lane, prompt, answer);
        if random.below(4) == 0 {
            request.cached = random.below(prompt as u64) as usize;
        }
        if random.below(5) == 0 {
            request.leader = self.some_open(|other| other.model == arrival.model && other.lane <= lane).map(|leader| {
                let shared = prompt.min(self.open[&leader].prompt_tokens);
                (leader, 1 + self.random.below(shared as u64) as usize)
            });
        }
        match self.simulator.arrive(id, arrival.clone(), request) {
            Ok(()) => drop(self.open.insert(id, arrival)),
            Err(refusal) => self.check_refusal(&refusal, &arrival),
        }
    }

    fn check_refusal(&mut self, refusal: &Refusal, arrival: &Arrival) {
        *self.ends.entry(End::Refused).or_default() += 1;
        match refusal {
            Refusal::QueueFull { lane, queued, retry_after } => {
                // Paused requests are queued in addition to newly arrived ones.
                assert!(*lane == arrival.lane && *queued >= self.settings.queue_limits[*lane as usize]);
                assert!(*retry_after > Duration::ZERO && *retry_after < Duration::from_secs(3600), "{retry_after:?}");
            }
            other => {
                let needed = (arrival.prompt_tokens + arrival.answer_tokens).div_ceil(BLOCK_TOKENS);
                assert!(needed > KV_BLOCKS, "{other}");
            }
        }
    }

    fn some_open(&mut self, is_wanted: impl Fn(&Arrival) -> bool) -> Option<RequestId> {
        let wanted: Vec<RequestId> =
            self.open.iter().filter(|(_, arrival)| is_wanted(arrival)).map(|(id, _)| *id).collect();
        let index = self.random.below(wanted.len().max(1) as u64) as usize;
        wanted.get(index).copied()
    }

    fn cancel_one(&mut self) {
        if let Some(id) = self.some_open(|_| true) {
            self.simulator.cancel(id);
            self.end(id, End::Cancelled);
        }
    }

    /// Records the end of a request, which must end exactly once.
    fn end(&mut self, id: RequestId, end: End) {
        assert!(self.open.remove(&id).is_some(), "{} has ended before", id.0);
        *self.ends.entry(end).or_default() += 1;
    }

    fn turn(&mut self) {
        let turn = self.simulator.turn();
        for id in turn.expired.iter().chain(turn.too_slow.iter().map(|(id, _)| id)) {
            assert!(self.open[id].time_limit.is_some());
            self.end(*id, End::TimedOut);
        }
        self.n_dropped += turn.dropped.len() as u64;
        assert!(
            turn.dropped.iter().all(|id| self.open[id].lane > Lane::Interactive),
            "interactive work is not dropped"
        );
        for model in self.simulator.devices.keys() {
            assert!(self.simulator.scheduler.reserved_blocks(*model) <= KV_BLOCKS);
        }
    }

    /// The requests that could be advanced, and the lane each is scheduled in.
    fn runnable(&self) -> BTreeMap<RequestId, Lane> {
        let scheduler = &self.simulator.scheduler;
        let running = self.open.keys().filter(|id| scheduler.is_running(**id));
        running.map(|id| (*id, scheduler.counts_as(*id).unwrap())).collect()
    }

    fn check_step(&mut self, done: &Done, counts_as: &BTreeMap<RequestId, Lane>, runnable: [bool; 3], is_warm: bool) {
        self.n_suspended += u64::from(done.is_suspended);
        let plan = &done.plan;
        let requests: BTreeSet<RequestId> = plan.entries.iter().map(|entry| entry.request).collect();
        assert_eq!(requests.len(), plan.entries.len(), "a request is in a step once");
        assert!(requests.len() <= self.settings.sequences);
        assert!(plan.entries.iter().all(|entry| self.open[&entry.request].model == plan.model && entry.n_tokens > 0));
        let lanes: BTreeSet<Lane> = requests.iter().map(|id| counts_as[id]).collect();
        self.check_wait(done, &lanes, runnable, is_warm);
        self.check_shares(done, runnable, is_warm);
    }

    /// No interactive token is delayed by more than one chunk: less urgent steps never come two in a row while
    /// interactive work waits, and none of them exceeds the budget or the time of the least work.
    fn check_wait(&mut self, done: &Done, lanes: &BTreeSet<Lane>, runnable: [bool; 3], is_warm: bool) {
        let seconds = done.elapsed.as_secs_f64();
        let is_behind = runnable[0] && !lanes.contains(&Lane::Interactive);
        assert!(!(is_behind && self.has_waited), "two chunks in a row while interactive work waits");
        self.has_waited = is_behind;
        if is_warm && is_behind {
            // Twice the least work, if that exceeds the budget: at most eight tokens of the small model.
            let budget = self.settings.chunk.as_secs_f64().max(2.0 * 8e-3);
            assert!(seconds < 1.5 * budget, "interactive work waits {seconds} s for {:?}", done.plan);
        }
    }

    /// While a lane has something to run, it receives its share of the time of the more urgent ones, up to the time of
    /// one step of its own or of a less urgent lane, for which it may have to wait or pay.
    fn check_shares(&mut self, done: &Done, runnable: [bool; 3], is_warm: bool) {
        let seconds = done.elapsed.as_secs_f64();
        let shares = [0.0, self.settings.background_share, self.settings.batch_share];
        for lane in 1..3 {
            let above: f64 = done.parts[..lane].iter().sum();
            let owed = self.owed[lane] + seconds * (shares[lane] * above - done.parts[lane]);
            self.owed[lane] = if runnable[lane] { owed.max(0.0) } else { 0.0 };
            assert!(!is_warm || self.owed[lane] < LONGEST_STEP, "lane {lane} is owed {} s", self.owed[lane]);
        }
    }

    fn check_end(&self) {
        let scheduler = &self.simulator.scheduler;
        assert!(self.open.is_empty() && scheduler.is_idle());
        assert_eq!(self.ends.values().sum::<u64>(), N_REQUESTS, "{:?}", self.ends);
        let counts = Lane::ALL.map(|lane| scheduler.metrics().lane(lane).counts);
        let total = |count: fn(&LaneCounts) -> u64| counts.iter().map(count).sum::<u64>();
        assert_eq!(total(|counts| counts.arrived), N_REQUESTS);
        assert_eq!(total(|counts| counts.finished), self.ends[&End::Finished]);
        assert_eq!(total(|counts| counts.cancelled), self.ends[&End::Cancelled]);
        assert_eq!(total(|counts| counts.refused), self.ends[&End::Refused]);
        assert_eq!(total(|counts| counts.timed_out), self.ends[&End::TimedOut]);
        assert_eq!(total(|counts| counts.preemptions), self.n_dropped);
        for model in self.simulator.devices.keys() {
            assert_eq!(scheduler.reserved_blocks(*model), 0);
        }
        // Everything happened during the run.
        assert!(self.n_suspended > 1000 && self.n_dropped > 1000, "{} and {}", self.n_suspended, self.n_dropped);
        assert!(self.ends.len() == 4 && self.ends.values().all(|n| *n > 100), "{:?}", self.ends);
    }
}
