//! Timings and counts of every lane, in memory that does not grow.

use std::time::Duration;

use hone_protocol::Lane;
use serde::{Deserialize, Serialize};

/// Buckets of a histogram per doubling of the time: neighbours are 9 % apart.
const BUCKETS_PER_DOUBLING: f64 = 8.0;
/// The shortest time that is distinguished from zero.
const SHORTEST_SECONDS: f64 = 1e-6;
/// Enough buckets for more than a day.
const N_BUCKETS: usize = 300;

/// Counts of observed times, each accurate to within 5 %. Its memory is fixed.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64; N_BUCKETS]>,
    n: u64,
    sum_seconds: f64,
    longest_seconds: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: Box::new([0; N_BUCKETS]), n: 0, sum_seconds: 0.0, longest_seconds: 0.0 }
    }
}

impl Histogram {
    /// Records a time.
    pub(crate) fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[bucket(seconds)] += 1;
        self.n += 1;
        self.sum_seconds += seconds;
        self.longest_seconds = self.longest_seconds.max(seconds);
    }

    /// Number of recorded times.
    #[cfg(test)]
    pub(crate) fn n(&self) -> u64 {
        self.n
    }

    /// The time in seconds that a fraction `quantile` of the recorded times does not exceed; 0 if nothing was recorded.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let rank = ((quantile * self.n as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0.0, middle).min(self.longest_seconds)
    }

    /// Summary statistics.
    pub(crate) fn summary(&self) -> TimeSummary {
        TimeSummary {
            n: self.n,
            mean_seconds: if self.n == 0 { 0.0 } else { self.sum_seconds / self.n as f64 },
            p50_seconds: self.quantile(0.50),
            p95_seconds: self.quantile(0.95),
            p99_seconds: self.quantile(0.99),
            longest_seconds: self.longest_seconds,
        }
    }
}

fn bucket(seconds: f64) -> usize {
    let doublings = (seconds.max(SHORTEST_SECONDS) / SHORTEST_SECONDS).log2();
    ((doublings * BUCKETS_PER_DOUBLING) as usize).min(N_BUCKETS - 1)
}

fn middle(bucket: usize) -> f64 {
    SHORTEST_SECONDS * ((bucket as f64 + 0.5) / BUCKETS_PER_DOUBLING).exp2()
}

/// Summary statistics of a histogram, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSummary {
    /// Number of recorded times.
    pub n: u64,
    /// Their mean.
    pub mean_seconds: f64,
    /// The median.
    pub p50_seconds: f64,
    /// The 95th percentile.
    pub p95_seconds: f64,
    /// The 99th percentile.
    pub p99_seconds: f64,
    /// The longest.
    pub longest_seconds: f64,
}

/// Statistics of one lane's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneMetrics {
    /// From a request's arrival to its first step.
    pub queue_time: Histogram,
    /// From a request's arrival to its first token.
    pub time_to_first_token: Histogram,
    /// From one token of a request to the next.
    pub time_between_tokens: Histogram,
    /// Counts of events.
    pub counts: LaneCounts,
}

impl LaneMetrics {
    /// Records a request's first step: how long it waited, the tokens of its prompt, and how many of those were cached.
    pub(super) fn count_first_run(&mut self, waited: Duration, prompt_tokens: usize, cached_tokens: usize) {
        self.queue_time.add(waited);
        self.counts.prompt_tokens += prompt_tokens as u64;
        self.counts.cached_tokens += cached_tokens as u64;
        self.counts.prefix_hits += u64::from(cached_tokens > 0);
    }
}

/// Event counts of a lane's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were refused because the queue was full or the request too large.
    pub refused: u64,
    /// Requests that were answered.
    pub finished: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests whose time limit passed.
    pub timed_out: u64,
    /// Times that a request lost its place in the KV cache, or its model was unloaded, for a more urgent one.
    pub preemptions: u64,
    /// Prompt tokens of the requests that started.
    pub prompt_tokens: u64,
    /// Prompt tokens that were found in the KV cache.
    pub cached_tokens: u64,
    /// Requests whose prompt was at least partly cached.
    pub prefix_hits: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
}

/// Statistics of all lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    lanes: [LaneMetrics; Lane::ALL.len()],
}

impl Metrics {
    /// Statistics of a lane.
    pub(crate) fn lane(&self, lane: Lane) -> &LaneMetrics {
        &self.lanes[lane as usize]
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> &mut LaneMetrics {
        &mut self.lanes[lane as usize]
    }

    /// Summaries of every lane, the most urgent first.
    pub(crate) fn summary(&self) -> Vec<LaneSummary> {
        let summarize = |lane: Lane| {
            let metrics = self.lane(lane);
            LaneSummary {
                lane,
                queue_time: metrics.queue_time.summary(),
                time_to_first_token: metrics.time_to_first_token.summary(),
                time_between_tokens: metrics.time_between_tokens.summary(),
                counts: metrics.counts,
            }
        };
        Lane::ALL.map(summarize).into()
    }
}

/// Summary of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneSummary {
    /// The lane.
    pub lane: Lane,
    /// From a request's arrival to its first step.
    pub queue_time: TimeSummary,
    /// From a request's arrival to its first token.
    pub time_to_first_token: TimeSummary,
    /// From one token of a request to the next.
    pub time_between_tokens: TimeSummary,
    /// Counts of events.
    #[serde(flatten)]
    pub counts: LaneCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_within_five_percent() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|milliseconds| histogram.add(Duration::from_millis(milliseconds)));
        for (quantile, expected) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (1.0, 1.0)] {
            let found = histogram.quantile(quantile);
            assert!((found / expected - 1.0).abs() < 0.05, "{quantile}: {found}");
        }
        assert!((histogram.summary().mean_seconds - 0.5005).abs() < 1e-9);
    }

    #[test]
    fn times_beyond_all_buckets_are_counted() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0.0);
        histogram.add(Duration::ZERO);
        histogram.add(Duration::from_secs(10_000_000));
        assert_eq!((histogram.n(), histogram.quantile(0.5)), (2, middle(0)));
        assert_eq!(histogram.summary().longest_seconds, 1e7);
    }
}
