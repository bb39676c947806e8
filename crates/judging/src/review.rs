//! Reviews: a model's assessment of a text, as a JSON object.

use std::time::Duration;

use hone_protocol::{Completion, Constraint, CritiqueLevel, Judging, Support, Suspicion, ThinkingOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::judge::{Judge, VerdictOptions};
use crate::likelihood::Opinion;
use crate::prompt::JudgePrompt;
use crate::suspicion::ExaminedAnswer;
use crate::task::{JudgeTask, ShownTexts, Verdict, no_verdict, without_verdict};

/// Tokens of a typical review.
const USUAL_TOKENS: usize = 200;
/// Maximum characters of a text in a review.
const MOST_CHARACTERS: usize = 240;
/// Maximum number of suggestions of a review, and of blocking issues.
const MOST_ITEMS: usize = 3;
/// The criteria of a review of code quality.
const CRITERIA: [&str; 4] = ["correctness", "clarity", "completeness", "best_practices"];

/// Limits on the length and duration of a review.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReviewLimits {
    /// Maximum number of tokens.
    pub max_tokens: usize,
    /// Maximum device time.
    pub timeout: Duration,
}

impl ReviewLimits {
    /// Checks both limits.
    ///
    /// # Errors
    /// Describes the first invalid one.
    pub fn check(max_tokens: usize, timeout: f64) -> Result<(), String> {
        if max_tokens == 0 {
            return Err("max_tokens is 0: a review needs some".to_owned());
        }
        if timeout <= 0.0 || Duration::try_from_secs_f64(timeout).is_err() {
            return Err(format!("timeout is {timeout}: it must be above 0 (seconds)"));
        }
        Ok(())
    }
}

/// The form of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewForm {
    /// An assessment by four criteria.
    CodeQuality,
    /// Four metrics, feedback and suggestions.
    Critic,
    /// Objections to a text.
    Critique,
    /// Whether passages support a claim.
    Support,
}

impl ReviewForm {
    /// The schema of the object. All texts and lists are bounded, so the review ends.
    fn schema(self) -> Value {
        let text = json!({"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS});
        // An unrestricted number may have any number of digits, and a small model writes them until its tokens run out.
        let share = json!({"enum": (0..=100).map(|hundredths| f64::from(hundredths) / 100.0).collect::<Vec<_>>()});
        let texts = json!({"type": "array", "items": text, "maxItems": MOST_ITEMS});
        match self {
            ReviewForm::CodeQuality => {
                let one = |name: &&str| {
                    let name = json!({"type": "string", "enum": [name]});
                    object(&[
                        ("criterion", name),
                        ("passed", json!({"type": "boolean"})),
                        ("score", share.clone()),
                        ("message", text.clone()),
                    ])
                };
                let criteria: Vec<Value> = CRITERIA.iter().map(one).collect();
                let n = criteria.len();
                let criteria =
                    json!({"type": "array", "prefixItems": criteria, "items": false, "minItems": n, "maxItems": n});
                object(&[
                    ("overall_assessment", text.clone()),
                    ("score", share.clone()),
                    ("criteria_results", criteria),
                    ("suggestions", texts.clone()),
                    ("blocking_issues", texts.clone()),
                ])
            }
            ReviewForm::Critic => {
                let metrics = hone_protocol::Metrics::NAMES.map(|name| (name, share.clone()));
                object(&[("feedback", text.clone()), ("suggestions", texts), ("metrics", object(&metrics))])
            }
            // The reasons come first, so that the level can follow from them.
            ReviewForm::Critique => object(&[
                ("reasoning", text.clone()),
                ("strongest_counterargument", text.clone()),
                ("challenges", texts.clone()),
                ("suggested_improvements", texts),
                ("validity_score", share),
                ("level", json!({"type": "string", "enum": CritiqueLevel::ALL})),
            ]),
            ReviewForm::Support => {
                object(&[("reasoning", text), ("verdict", json!({"type": "string", "enum": Support::ALL}))])
            }
        }
    }
}

/// The schema of an object with exactly these properties.
fn object(properties: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

/// Work to review, and everything else besides the model that the review depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReviewTask {
    form: ReviewForm,
    prompt: String,
    goal: String,
    requirements: String,
    work: String,
    limits: ReviewLimits,
}

impl ReviewTask {
    /// A review in this form, with a prompt that has places for the texts.
    pub fn new(form: ReviewForm, prompt: &str, texts: Reviewed<'_>, limits: ReviewLimits) -> ReviewTask {
        let Reviewed { goal, requirements, work } = texts;
        let [prompt, goal, requirements, work] = [prompt.trim(), goal, requirements, work].map(str::to_owned);
        ReviewTask { form, prompt, goal, requirements, work, limits }
    }
}

/// The texts for a review.
#[derive(Clone, Copy, Debug)]
pub struct Reviewed<'a> {
    /// The goal.
    pub goal: &'a str,
    /// The requirements.
    pub requirements: &'a str,
    /// The resulting work.
    pub work: &'a str,
}

/// A review, or the reason why it could not be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The object that the model wrote.
    said: Option<Value>,
    /// The number of characters of the work that were not shown.
    #[serde(default)]
    pub(crate) left_out: usize,
    /// The finding that makes the work look as if it tried to influence its review; `None` if there is none.
    #[serde(default)]
    pub(crate) suspicious: Option<Suspicion>,
    /// The cost.
    judging: Judging,
}

impl Review {
    /// A review that only states why it could not be made.
    pub fn failed(reason: impl Into<String>) -> Review {
        Review { judging: Judging::failed(reason), ..Review::default() }
    }

    /// Parses the object.
    ///
    /// # Errors
    /// The reason for its absence.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        match (&self.judging.failure, &self.said) {
            (Some(failure), _) => Err(failure.clone()),
            (None, None) => Err("the model said nothing".to_owned()),
            (None, Some(said)) => {
                T::deserialize(said).map_err(|error| format!("the review is not in its form: {error}"))
            }
        }
    }
}

impl Review {
    /// Remarks for a reader of a review of the `work`.
    pub fn remarks(&self, work: &str) -> impl Iterator<Item = String> {
        let left_out =
            (self.left_out > 0).then(|| format!("{} characters of the {work} were not shown", self.left_out));
        left_out.into_iter().chain(self.suspicious.as_ref().map(|suspicion| addressed(work, suspicion)))
    }
}

/// Says that the `work` tries to influence its judge.
pub fn addressed(work: &str, suspicion: &Suspicion) -> String {
    format!("the {work} addresses its judge: {:?}", suspicion.passage)
}

impl Verdict for Review {
    fn judging(&self) -> &Judging {
        &self.judging
    }

    fn judging_mut(&mut self) -> &mut Judging {
        &mut self.judging
    }

    fn score(&self) -> Option<u8> {
        None
    }
}

impl JudgeTask for ReviewTask {
    type Verdict = Review;

    fn query(&self) -> &str {
        &self.goal
    }

    fn answers(&self) -> Vec<&str> {
        vec![&self.work]
    }

    fn requests(&self, judge: &Judge, shown: &ShownTexts) -> Vec<(JudgePrompt, VerdictOptions)> {
        let requirements = judge.neutralized(&self.requirements);
        let work = shown.answers[0].as_str();
        let goal = shown.query.as_str();
        let texts = [
            ("goal", goal),
            ("context", goal),
            ("requirements", &requirements),
            ("work", work),
            ("changes", work),
            ("content", work),
        ];
        let thinking_tokens = judge.profile().thinking_tokens();
        let form = VerdictOptions {
            seed: 0,
            constraint: Constraint::JsonSchema(self.form.schema()),
            max_tokens: thinking_tokens + self.limits.max_tokens,
            conclusion_tokens: USUAL_TOKENS.min(self.limits.max_tokens),
            named: Vec::new(),
            begun: String::new(),
            thinking: ThinkingOptions {
                is_on: Some(thinking_tokens > 0),
                effort: None,
                budget: (thinking_tokens > 0).then_some(thinking_tokens),
            },
            time_limit: Some(self.limits.timeout),
        };
        vec![(judge.prompt("", &self.prompt, &texts), form)]
    }

    fn unjudged(_: &Judge, examined: &[ExaminedAnswer]) -> Review {
        let suspicious = examined.iter().find_map(|examined| examined.suspicion.clone());
        Review { suspicious, ..Review::default() }
    }

    fn conclude(judge: &Judge, said: &[Option<&Completion>], shown: &ShownTexts, unjudged: Review) -> Option<Review> {
        let completion = (*said.first()?)?;
        let (text, end) = (completion.text.trim(), judge.profile().score.thinking.end.as_str());
        // An object that mentions the end of thoughts is not a thought.
        let thoughts = if text.starts_with('{') || end.is_empty() { None } else { text.split_once(end) };
        let text = thoughts.map_or(text, |(_, after)| after);
        Some(match serde_json::from_str(text.trim()) {
            Ok(said @ Value::Object(_)) => Review { said: Some(said), left_out: shown.left_out, ..unjudged },
            Ok(_) | Err(_) => without_verdict(unjudged, &no_verdict("a complete JSON object")),
        })
    }

    fn weigh(_: &Judge, _: &[Opinion], unjudged: Review) -> Review {
        without_verdict(unjudged, "the likelihood judge writes no reviews: name a model with review.model")
    }

    fn rate(_: &Judge, _: &[f64], unjudged: Review) -> Review {
        without_verdict(unjudged, "a reward model writes no reviews: name a model with review.model")
    }
}
