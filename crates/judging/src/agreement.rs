//! How well a judge agrees with people, and judges with each other: pure statistics over verdicts.
//!
//! A [`Measure`] is a row: its name, the items that it is about, and its formula. The same formula gives the
//! [`Figure`]'s value and, over resampled items, its interval. A figure that would mean nothing has no value and says
//! why. `scripts/check.sh agreement` recomputes the formulas with scipy.

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

/// The fewest items that a figure is computed from: of fewer, an interval says nothing.
const LEAST_ITEMS: usize = 10;

/// A statistic of some items, or why it is undefined for them.
type Statistic = Result<f64, &'static str>;

/// A figure with its interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// How many items it is computed from.
    pub n: usize,
    /// The figure; `None` if there is a reason against one.
    pub value: Option<f64>,
    /// The lower end of the 95 % interval.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval.
    pub high: Option<f64>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Figure {
    /// The figure of `items`, of which those of the same `cluster` are not independent of each other.
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
