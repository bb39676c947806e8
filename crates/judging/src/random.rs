//! A small generator of reproducible random numbers (SplitMix64: Steele, Lea and Flood 2014, "Fast splittable
//! pseudorandom number generators").

/// Random numbers determined by their seed.
pub(crate) struct SplitMix {
    state: u64,
}

impl SplitMix {
    pub(crate) fn seeded(seed: u64) -> SplitMix {
        SplitMix { state: seed }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Shuffles the values (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (1..values.len()).rev() {
            values.swap(end, self.below(end + 1));
        }
    }

    /// A number from 0 to 1, excluding 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from 0 to 1, excluding 0.
    pub(crate) fn positive_fraction(&mut self) -> f64 {
        1.0 - self.fraction()
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_bound_comes() {
        let mut random = SplitMix::seeded(1);
        let mut counts = [0; 5];
        (0..5000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn shuffled_values_are_the_same_values() {
        let mut values: Vec<usize> = (0..100).collect();
        SplitMix::seeded(1).shuffle(&mut values);
        assert!(!values.is_sorted());
        values.sort_unstable();
        assert_eq!(values, (0..100).collect::<Vec<_>>());
    }
}
