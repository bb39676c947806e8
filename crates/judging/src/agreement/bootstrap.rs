//! Bootstrap intervals: the percentiles of a statistic over items drawn with replacement (Efron and Tibshirani 1993,
//! "An Introduction to the Bootstrap", chapter 13). Whole clusters are drawn, since verdicts on answers to the same
//! question depend on each other (Field and Welsh 2007, "Bootstrapping clustered data"). The draws are deterministic.

use std::collections::BTreeMap;

use super::Statistic;
use crate::random::SplitMix;

/// The number of resamples.
const RESAMPLES: usize = 1000;
/// The ends of a 95 % interval.
const ENDS: [f64; 2] = [0.025, 0.975];
const SEED: u64 = 0x0068_6f6e_6521;

/// The ends of the interval. Resamples for which the statistic is undefined are left out; `None` if most are undefined,
/// or there is only one cluster.
pub(super) fn interval<T>(
    items: &[&T],
    cluster: impl Fn(&T) -> usize,
    statistic: impl Fn(&[&T]) -> Statistic,
) -> Option<[f64; 2]> {
    let mut clusters: BTreeMap<usize, Vec<&T>> = BTreeMap::new();
    for item in items {
        clusters.entry(cluster(item)).or_default().push(item);
    }
    let clusters: Vec<Vec<&T>> = clusters.into_values().collect();
    let mut random = SplitMix::seeded(SEED);
    let mut resampled = || -> Option<f64> {
        let drawn = (0..clusters.len()).flat_map(|_| clusters[random.below(clusters.len())].iter().copied());
        statistic(&drawn.collect::<Vec<&T>>()).ok()
    };
    let mut values: Vec<f64> = (0..RESAMPLES).filter_map(|_| resampled()).collect();
    values.sort_by(f64::total_cmp);
    (clusters.len() > 1 && values.len() > RESAMPLES / 2).then(|| ENDS.map(|share| quantile(&values, share)))
}

/// A quantile of sorted values, interpolated between neighbours (Hyndman and Fan 1996, "Sample quantiles in statistical
/// packages", type 7).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(items: &[&(usize, f64)]) -> Statistic {
        Ok(items.iter().map(|(_, value)| value).sum::<f64>() / items.len() as f64)
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_the_normal_distribution() {
        let items: Vec<(usize, f64)> = (0..400).map(|index| (index, f64::from(u8::from(index % 2 == 0)))).collect();
        let items: Vec<&(usize, f64)> = items.iter().collect();
        let [low, high] = interval(&items, |item| item.0, mean).unwrap();
        // 1.96 standard errors of a share of one half.
        assert!((low - 0.451).abs() < 0.006 && (high - 0.549).abs() < 0.006, "{low} {high}");
        let again = interval(&items, |item| item.0, mean).unwrap();
        assert_eq!([low, high], again, "the draws are always the same");
    }

    #[test]
    fn items_of_one_question_do_not_narrow_the_interval() {
        let repeated: Vec<(usize, f64)> = (0..400).map(|index| (index / 40, (index / 40 % 2) as f64)).collect();
        let items: Vec<&(usize, f64)> = repeated.iter().collect();
        let [low, high] = interval(&items, |item| item.0, mean).unwrap();
        assert!(high - low > 0.5, "ten questions, not 400: {low} {high}");
        assert_eq!(interval(&items[..40], |item| item.0, mean), None, "one question");
        assert_eq!(interval(&items, |item| item.0, |_| Err("undefined")), None);
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.25), 1.25);
        assert_eq!(quantile(&[7.0], 0.975), 7.0);
    }
}
