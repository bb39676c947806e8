//! Mirostat 2 (Basu et al. 2020, <https://arxiv.org/abs/2007.14966>): tokens whose surprise is above a bound are left
//! out, and the bound moves against the difference between the surprise of the chosen token and the target.

use hone_protocol::MirostatOptions;

/// The bound, in bits.
#[derive(Debug)]
pub(super) struct Mirostat {
    options: MirostatOptions,
    bound: f32,
}

impl Mirostat {
    pub(super) fn new(options: MirostatOptions) -> Mirostat {
        // Twice the target, the authors' initial value.
        Mirostat { options, bound: 2.0 * options.tau }
    }

    /// Number of probabilities, largest first, whose surprise is within the bound; at least one.
    pub(super) fn n_kept(&self, probabilities: impl Iterator<Item = f32>) -> usize {
        probabilities.take_while(|probability| -probability.log2() <= self.bound).count().max(1)
    }

    /// Takes the probability of the chosen token among those that were kept.
    pub(super) fn learn(&mut self, probability: f32) {
        let surprise = -probability.max(f32::MIN_POSITIVE).log2();
        self.bound -= self.options.eta * (surprise - self.options.tau);
    }
}
