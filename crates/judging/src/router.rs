//! Chooses the model for the next task of a type: usually the one that did best.
//!
//! Thompson sampling (Thompson, 1933; Agrawal and Goyal, 2012, "Analysis of Thompson sampling for the multi-armed
//! bandit problem"): a model's quality has the distribution Beta(1 + scores, 1 + missing score). One value is drawn for
//! each model, and the highest wins. A model that is probably the best is thus chosen with about that probability. An
//! exploration floor makes one choice in ten uniformly among all models, so that a model that was unlucky, or was
//! replaced by a better version of the same name, is tried again.

use crate::random::SplitMix;

/// The share of choices that are made uniformly among all models.
const EXPLORATION: f64 = 0.1;

/// A model with its history.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The model.
    pub model: String,
    /// Its scores on tasks of the type, 0 to 1.
    pub scores: Vec<f64>,
}

/// A model, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedModel {
    /// The model.
    pub model: String,
    /// The reason for the choice.
    pub reason: String,
}

/// Chooses a model, deterministically for a given seed. `None` without models.
pub fn choose(arms: &[Arm], seed: u64) -> Option<RoutedModel> {
    let mut random = SplitMix::seeded(seed);
    if arms.is_empty() {
        return None;
    }
    if random.fraction() < EXPLORATION {
        let arm = &arms[random.below(arms.len())];
        let reason = format!("to explore, as one choice in ten does; {}", past(arm));
        return Some(RoutedModel { model: arm.model.clone(), reason });
    }
    let drawn = arms.iter().map(|arm| (arm, draw(arm, &mut random)));
    let (arm, _) = drawn.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let reason = match arms.len() {
        1 => format!("the only model; {}", past(arm)),
        n => format!("drawn from {n} models by their results; {}", past(arm)),
    };
    Some(RoutedModel { model: arm.model.clone(), reason })
}

fn past(arm: &Arm) -> String {
    match arm.scores.len() {
        0 => "it has no results yet".to_owned(),
        1 => format!("its only result was {:.0} % of the best possible one", 100.0 * arm.scores[0]),
        n => {
            let mean = 100.0 * arm.scores.iter().sum::<f64>() / n as f64;
            format!("its {n} results were {mean:.0} % of the best possible ones on average")
        }
    }
}

/// Draws a value from the distribution of a model's quality.
fn draw(arm: &Arm, random: &mut SplitMix) -> f64 {
    let total: f64 = arm.scores.iter().map(|score| score.clamp(0.0, 1.0)).sum();
    let good = gamma(1.0 + total, random);
    let bad = gamma(1.0 + arm.scores.len() as f64 - total, random);
    good / (good + bad)
}

/// Draws from the gamma distribution with this shape, at least 1, and scale 1 (Marsaglia and Tsang, 2000, "A simple
/// method for generating gamma variables").
fn gamma(shape: f64, random: &mut SplitMix) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && random.positive_fraction().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Draws from the standard normal distribution (Box and Muller, 1958).
fn normal(random: &mut SplitMix) -> f64 {
    let radius = (-2.0 * random.positive_fraction().ln()).sqrt();
    radius * (std::f64::consts::TAU * random.fraction()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(model: &str, scores: &[f64]) -> Arm {
        Arm { model: model.to_owned(), scores: scores.to_vec() }
    }

    /// The share of 10 000 choices that each model gets.
    fn shares(arms: &[Arm]) -> Vec<f64> {
        let mut counts = vec![0.0; arms.len()];
        for seed in 0..10_000 {
            let chosen = choose(arms, seed).unwrap().model;
            counts[arms.iter().position(|arm| arm.model == chosen).unwrap()] += 1.0 / 10_000.0;
        }
        counts
    }

    #[test]
    fn the_better_model_is_found_and_the_other_one_still_tried() {
        let mut arms = vec![arm("worse", &[]), arm("better", &[])];
        let mut random = SplitMix::seeded(7);
        for seed in 0..600 {
            let chosen = choose(&arms, seed).unwrap().model;
            let arm = arms.iter_mut().find(|arm| arm.model == chosen).unwrap();
            let quality = if chosen == "better" { 0.8 } else { 0.5 };
            arm.scores.push(f64::from(u8::from(random.fraction() < quality)));
        }
        assert!(arms[1].scores.len() > 450, "{} of 600", arms[1].scores.len());
        assert!(arms[0].scores.len() >= 15, "the floor is 5 % for each of two: {}", arms[0].scores.len());
    }

    #[test]
    fn the_floor_holds_where_the_history_is_clear() {
        let [bad, good] = shares(&[arm("bad", &[0.0; 500]), arm("good", &[1.0; 500])])[..] else { panic!() };
        // 5 % with a standard deviation of 0.2 %.
        assert!((bad - EXPLORATION / 2.0).abs() < 0.01 && (good - 0.95).abs() < 0.01, "{bad} {good}");
    }

    #[test]
    fn without_a_history_all_are_equal_and_a_seed_decides() {
        let arms = [arm("a", &[]), arm("b", &[]), arm("c", &[])];
        assert!(shares(&arms).iter().all(|share| (share - 1.0 / 3.0).abs() < 0.02), "{:?}", shares(&arms));
        assert_eq!(choose(&arms, 3), choose(&arms, 3));
        assert_eq!(choose(&[], 3), None);
    }

    /// Beta(1 + 3, 1 + 1) has the mean 2/3 and the variance 2/63.
    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let (arm, mut random) = (arm("a", &[1.0, 1.0, 1.0, 0.0]), SplitMix::seeded(1));
        let draws: Vec<f64> = (0..50_000).map(|_| draw(&arm, &mut random)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 2.0 / 3.0).abs() < 0.004 && (variance - 2.0 / 63.0).abs() < 0.001, "{mean} {variance}");
    }

    #[test]
    fn a_choice_says_why() {
        let choice =
            (0..).find_map(|seed| choose(&[arm("a", &[0.5, 1.0])], seed).filter(|it| it.reason.starts_with("the")));
        let expected = "the only model; its 2 results were 75 % of the best possible ones on average";
        assert_eq!(choice.unwrap().reason, expected);
        let explores = (0..).find_map(|seed| choose(&[arm("a", &[])], seed).filter(|it| it.reason.starts_with("to")));
        assert_eq!(explores.unwrap().reason, "to explore, as one choice in ten does; it has no results yet");
    }
}
