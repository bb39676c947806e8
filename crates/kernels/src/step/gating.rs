//! How a row chooses its experts.

/// How scores of experts become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Probabilities over all experts.
    Softmax,
    /// Probabilities over the chosen experts.
    SoftmaxOfChosen,
    /// Each expert's score by itself.
    Sigmoid,
}

/// How rows choose their experts: by the highest score; the first of equal ones wins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutingOptions {
    /// How scores become weights.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub is_normalized: bool,
    /// Multiplies the weights.
    pub scale: f32,
}

impl RoutingOptions {
    /// Fills the first half of `choices` with the numbers of the chosen experts and the second with their weights. The
    /// logits, one for each expert, are changed. `selection_bias` is added to the scores by which experts are chosen,
    /// but not to their weights; `output_scales` multiplies the weights of each expert.
    ///
    /// # Panics
    /// When there are more choices than experts, or a vector is shorter than the logits.
    pub fn choose(
        &self,
        logits: &mut [f32],
        selection_bias: Option<&[f32]>,
        output_scales: Option<&[f32]>,
        choices: &mut [f32],
    ) {
        let (experts, weights) = choices.split_at_mut(choices.len() / 2);
        match selection_bias {
            None => {
                prefer(experts, logits.len(), |expert| logits[expert]);
                gate(self.gating, logits);
            }
            Some(bias) => {
                gate(self.gating, logits);
                prefer(experts, logits.len(), |expert| logits[expert] + bias[expert]);
            }
        }
        weights.iter_mut().zip(&*experts).for_each(|(weight, expert)| *weight = logits[*expert as usize]);
        if self.gating == Gating::SoftmaxOfChosen {
            softmax(weights);
        }
        let mut factor = self.scale;
        if self.is_normalized {
            // No smaller than the smallest normal number in half precision, as in llama.cpp.
            factor /= weights.iter().sum::<f32>().max(6.103_515_6e-5);
        }
        for (weight, expert) in weights.iter_mut().zip(&*experts) {
            *weight *= factor * output_scales.map_or(1.0, |scales| scales[*expert as usize]);
        }
    }
}

/// Fills `experts` with the numbers of the highest-scoring experts.
fn prefer(experts: &mut [f32], n_experts: usize, score: impl Fn(usize) -> f32) {
    for slot in 0..experts.len() {
        let is_free = |expert: &usize| !experts[..slot].contains(&(*expert as f32));
        let better = |best: usize, expert: usize| if score(expert) > score(best) { expert } else { best };
        let best = (0..n_experts).filter(is_free).reduce(better).expect("there are more experts than choices");
        experts[slot] = best as f32;
    }
}

fn gate(gating: Gating, logits: &mut [f32]) {
    match gating {
        Gating::Softmax => softmax(logits),
        Gating::SoftmaxOfChosen => {}
        Gating::Sigmoid => logits.iter_mut().for_each(|logit| *logit = 1.0 / (1.0 + (-*logit).exp())),
    }
}

fn softmax(values: &mut [f32]) {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    values.iter_mut().for_each(|value| *value = (*value - largest).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: RoutingOptions, bias: Option<&[f32]>, experts: [f32; 2], weights: [f32; 2]) {
        let mut choices = [0.0; 4];
        options.choose(&mut [0.0, 1.0, 3.0, 2.0], bias, None, &mut choices);
        assert_eq!(choices[..2], experts);
        for (ours, expected) in choices[2..].iter().zip(weights) {
            assert!((ours - expected).abs() < 1e-5, "{ours} and not {expected}");
        }
    }

    #[test]
    fn scores_become_weights() {
        let plain = RoutingOptions { gating: Gating::Softmax, is_normalized: false, scale: 1.0 };
        let e = |x: f32| x.exp();
        let sum = 1.0 + e(1.0) + e(2.0) + e(3.0);
        check(plain, None, [2.0, 3.0], [e(3.0) / sum, e(2.0) / sum]);
        let chosen = [e(3.0) / (e(3.0) + e(2.0)), e(2.0) / (e(3.0) + e(2.0))];
        check(RoutingOptions { is_normalized: true, ..plain }, None, [2.0, 3.0], chosen);
        check(RoutingOptions { gating: Gating::SoftmaxOfChosen, ..plain }, None, [2.0, 3.0], chosen);
        let sigmoid = |x: f32| 1.0 / (1.0 + e(-x));
        let sigmoids = RoutingOptions { gating: Gating::Sigmoid, scale: 2.0, ..plain };
        check(sigmoids, None, [2.0, 3.0], [2.0 * sigmoid(3.0), 2.0 * sigmoid(2.0)]);
        let bias = [0.9, 0.0, 0.0, 0.0];
        check(sigmoids, Some(&bias), [0.0, 2.0], [2.0 * sigmoid(0.0), 2.0 * sigmoid(3.0)]);
    }
}
