//! Agreement of a judge with people, and of judges with each other: pure statistics over verdicts.
//!
//! A [`Measure`] is a row: its name, the items that it applies to, and its formula. One formula gives the [`Figure`]'s
//! value and, over resampled items, its interval. A figure that would be meaningless has no value and states the
//! reason. `scripts/check.sh agreement` recomputes the formulas with scipy.

mod alpha;
mod bootstrap;
mod correlation;
mod graded;
mod measure;
mod pairs;
mod reliability;
mod scores;

use serde::Serialize;

pub use alpha::{MeasurementLevel, RatedUnit, krippendorff_alpha};
pub use graded::GradedAnswer;
pub use measure::{FigureUnit, Measure};
pub use pairs::{ComparedPair, PAIR_MEASURES};
pub use reliability::{GOOD, ReliabilityBin, reliability};
pub use scores::{SCORE_MEASURES, ScoreDistribution};

/// Minimum number of items for a figure; with fewer, an interval is meaningless.
const LEAST_ITEMS: usize = 10;

/// A statistic of some items, or the reason why it is undefined.
type Statistic = Result<f64, &'static str>;

/// A figure with its interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The number of items.
    pub n: usize,
    /// The figure; `None` if it is undefined or meaningless.
    pub value: Option<f64>,
    /// The lower end of the 95 % interval.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval.
    pub high: Option<f64>,
    /// The reason why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Figure {
    /// The figure of `items`. Items of the same `cluster` are not independent of each other.
    fn of<T>(items: &[&T], cluster: impl Fn(&T) -> usize, statistic: impl Fn(&[&T]) -> Statistic) -> Figure {
        let n = items.len();
        let without = |reason: String| Figure { n, value: None, low: None, high: None, reason: Some(reason) };
        if n < LEAST_ITEMS {
            return without(format!("{n} of at least {LEAST_ITEMS} items"));
        }
        match statistic(items) {
            Err(reason) => without(reason.to_owned()),
            Ok(value) => {
                let interval = bootstrap::interval(items, cluster, statistic);
                let (low, high) = (interval.map(|ends| ends[0]), interval.map(|ends| ends[1]));
                Figure { n, value: Some(value), low, high, reason: None }
            }
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}
