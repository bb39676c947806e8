//! Questions about a text that are answered with probabilities: nothing is generated, and nothing parsed.

use serde::{Deserialize, Serialize};

use crate::generate::Lane;
use crate::ids::{OwnerId, SessionId};

/// A text and questions about it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRequest {
    /// Name or path of the model.
    pub model: String,
    /// Distinguishes the model from earlier ones with its name; empty if names are never reused.
    pub identity: String,
    /// The text that the questions are about.
    pub state: String,
    /// The questions. Each is answered as if it were the only one.
    pub questions: Vec<DecisionQuestion>,
    /// How the model is asked questions of each kind.
    pub tunings: DecisionTunings,
    /// The most orders in which the options of a choice are shown, if they have labels; the model's answers are
    /// averaged. Levels are shown in at most two orders. At least 1.
    pub orders: usize,
    /// The request's priority.
    pub lane: Lane,
    /// The conversation that it belongs to.
    pub session: Option<SessionId>,
    /// The owner, if clients have keys.
    pub owner: Option<OwnerId>,
}

impl DecisionRequest {
    /// Orders that suffice to separate a model's opinion of an option from its opinion of the option's place.
    pub const ORDERS: usize = 2;
    /// The most questions of a request.
    pub const MOST_QUESTIONS: usize = 400;

    /// An interactive request.
    pub fn new(model: impl Into<String>, state: impl Into<String>, questions: Vec<DecisionQuestion>) -> Self {
        DecisionRequest {
            model: model.into(),
            identity: String::new(),
            state: state.into(),
            questions,
            tunings: DecisionTunings::default(),
            orders: DecisionRequest::ORDERS,
            lane: Lane::default(),
            session: None,
            owner: None,
        }
    }
}

/// How to ask a model questions of one kind, as determined by its examination.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionTuning {
    /// How it answers with an option.
    pub form: DecisionForm,
    /// The divisor of the logarithms of its probabilities: more than 1 for an overconfident model.
    pub temperature: f64,
}

impl Default for DecisionTuning {
    fn default() -> Self {
        DecisionTuning { form: DecisionForm::default(), temperature: 1.0 }
    }
}

/// How to ask a model questions of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionTunings {
    /// For questions answered with yes or no.
    pub yes_no: DecisionTuning,
    /// For questions with options.
    pub choice: DecisionTuning,
    /// For questions with levels.
    pub score: DecisionTuning,
}

impl DecisionTunings {
    /// The tuning for a kind of question.
    pub fn of(&self, kind: DecisionType) -> DecisionTuning {
        match kind {
            DecisionType::YesNo => self.yes_no,
            DecisionType::Choice => self.choice,
            DecisionType::Score => self.score,
        }
    }

    /// Mutable access to the tuning for a kind of question.
    pub fn of_mut(&mut self, kind: DecisionType) -> &mut DecisionTuning {
        match kind {
            DecisionType::YesNo => &mut self.yes_no,
            DecisionType::Choice => &mut self.choice,
            DecisionType::Score => &mut self.score,
        }
    }
}

/// The kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionType {
    /// Yes or no.
    YesNo,
    /// One of several options.
    Choice,
    /// A level.
    Score,
}

impl DecisionType {
    /// All of them.
    pub const ALL: [DecisionType; 3] = [DecisionType::YesNo, DecisionType::Choice, DecisionType::Score];

    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            DecisionType::YesNo => "yes or no",
            DecisionType::Choice => "choice",
            DecisionType::Score => "score",
        }
    }
}

/// How a model answers with an option. Which form is better depends on the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionForm {
    /// With the letter or number shown next to it: one token distinguishes all options.
    #[default]
    Labels,
    /// With its text, whose log-probability is summed. Each option is a request, so only questions with few options are
    /// asked this way. Small models may not connect a letter with the option next to it.
    Texts,
}

/// A question about a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionQuestion {
    /// The question itself; it may be empty if the options suffice.
    pub instructions: String,
    /// The possible answers.
    pub kind: DecisionKind,
}

/// The possible answers to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Yes or no.
    YesNo {
        /// The meaning of yes.
        yes: Option<String>,
        /// The meaning of no.
        no: Option<String>,
    },
    /// One of 2 to [`MOST_OPTIONS`](DecisionKind::MOST_OPTIONS) options.
    Choice(Vec<DecisionOption>),
    /// One of 2 to [`MOST_LEVELS`](DecisionKind::MOST_LEVELS) levels, described from the lowest to the highest.
    Score(Vec<String>),
}

impl DecisionKind {
    /// The most options of a choice.
    pub const MOST_OPTIONS: usize = 255;
    /// The most levels of a score.
    pub const MOST_LEVELS: usize = 10;

    /// Which kind of question it is.
    pub fn kind(&self) -> DecisionType {
        match self {
            DecisionKind::YesNo { .. } => DecisionType::YesNo,
            DecisionKind::Choice(_) => DecisionType::Choice,
            DecisionKind::Score(_) => DecisionType::Score,
        }
    }

    /// How many answers are possible.
    pub fn n_options(&self) -> usize {
        match self {
            DecisionKind::YesNo { .. } => 2,
            DecisionKind::Choice(options) => options.len(),
            DecisionKind::Score(levels) => levels.len(),
        }
    }
}

/// An option of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionOption {
    /// Its name, which may be its only description.
    pub name: String,
    /// When it applies.
    pub description: Option<String>,
}

/// The answer to a question: a probability for every option. They sum to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The probabilities of no and yes, of the options of a choice in their order, or of the levels from the lowest.
    pub probabilities: Vec<f64>,
}

impl Decision {
    /// The probability of yes.
    pub fn yes(&self) -> f64 {
        self.probabilities.last().copied().unwrap_or_default()
    }

    /// The index of the likeliest option; the first of several.
    pub fn likeliest(&self) -> usize {
        let larger = |best: usize, index: usize| {
            if self.probabilities[index] > self.probabilities[best] { index } else { best }
        };
        (0..self.probabilities.len()).fold(0, larger)
    }

    /// The mean of the levels from 0, weighted by their probabilities.
    pub fn score(&self) -> f64 {
        self.probabilities.iter().enumerate().map(|(level, probability)| level as f64 * probability).sum()
    }

    /// How far the likeliest option is above chance: 0 if all are equally likely, 1 if it is certain.
    pub fn confidence(&self) -> f64 {
        let chance = 1.0 / self.probabilities.len() as f64;
        let largest = self.probabilities.iter().copied().fold(0.0, f64::max);
        ((largest - chance) / (1.0 - chance)).clamp(0.0, 1.0)
    }
}

/// The answers to the questions of a request, in their order, and their cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// The answers.
    pub answers: Vec<Decision>,
    /// Tokens of the text and of the questions about it, counted each time that they are asked. Their common beginning
    /// counts once; questions asked without the text do not count.
    pub prompt_tokens: usize,
    /// Tokens of the first question that were already computed.
    pub cached_tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_a_mean_a_mode_and_a_distance_from_chance() {
        let of = |probabilities: &[f64]| Decision { probabilities: probabilities.to_vec() };
        let levels = of(&[0.1, 0.1, 0.8]);
        assert!((levels.score() - 1.7).abs() < 1e-12);
        assert_eq!(levels.likeliest(), 2);
        assert!((levels.confidence() - 0.7).abs() < 1e-12);
        assert_eq!(of(&[0.25, 0.75]).yes(), 0.75);
        let even = of(&[0.25; 4]);
        assert_eq!((even.likeliest(), even.confidence()), (0, 0.0));
        assert_eq!(of(&[0.0, 1.0]).confidence(), 1.0);
    }
}
