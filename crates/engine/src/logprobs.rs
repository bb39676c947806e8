//! Log-probabilities: natural logarithms of the softmax of a model's own logits.

use crate::sampler::{argmax, sum_of_exponentials};

/// Logarithm of the sum of the exponentials, computed without overflow.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f32 {
    let largest = logits.get(argmax(logits) as usize).copied().unwrap_or(f32::NEG_INFINITY);
    largest + sum_of_exponentials(logits, largest).ln()
}

/// Ids of the `count` largest logits, largest first, lower ids first among equals.
pub(crate) fn largest(logits: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_sum_exp_neither_overflows_nor_vanishes() {
        for offset in [-1000.0, 0.0, 1000.0] {
            let sum = log_sum_exp(&[offset, offset, f32::NEG_INFINITY]);
            assert!((sum - offset - std::f32::consts::LN_2).abs() < 1e-3, "{sum}");
        }
    }

    #[test]
    fn the_largest_come_first_and_ties_by_id() {
        let logits = [1.0, 3.0, 2.0, 3.0];
        assert_eq!(largest(&logits, 3), [1, 3, 2]);
        assert_eq!(largest(&logits, 9), [1, 3, 2, 0]);
        assert_eq!(largest(&logits, 0), [] as [u32; 0]);
    }
}
