//! Questions and answers in the form of the System One API, which `/v1/systemone` and `hone decide` share
//! (<https://docs.typesafe.ai>; the shapes are those of `typesafe-sdk`).

mod examined;
mod marks;
mod purposes;
mod remarks;

use std::collections::HashSet;
use std::fmt;

use hone_protocol::{Decision, DecisionKind, DecisionOption, DecisionQuestion, DecisionRequest};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

pub use examined::ExaminedDecisions;
pub use marks::identity_of;
pub use purposes::{ExaminedPurposes, decider_for};
pub use remarks::Remarkers;

/// A question.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// Yes or no; "noul" is the API's word.
    Noul {
        /// The question, or a statement.
        #[serde(default)]
        instructions: Value,
        /// The criteria for yes and no.
        #[serde(default)]
        criteria: Option<NoulCriteria>,
    },
    /// One of several.
    Choice {
        /// The decision to make.
        #[serde(default)]
        instructions: Value,
        /// The options by name, with their meanings or null.
        criteria: Named<Value>,
    },
    /// A level.
    Score {
        /// The subject to rate.
        #[serde(default)]
        instructions: Value,
        /// The meanings of the levels, the lowest first.
        criteria: Vec<Value>,
    },
}

/// The criteria for yes and no.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoulCriteria {
    /// The criterion for yes.
    #[serde(default, rename = "true")]
    pub yes: Value,
    /// The criterion for no.
    #[serde(default, rename = "false")]
    pub no: Value,
}

/// The entries of an object in their order, 400 at most. No two have the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Named<T> {
    /// The maximum number of entries: an object has questions or options, and no request has more of either.
    const MOST: usize = DecisionRequest::MOST_QUESTIONS;

    /// The entries with these names.
    ///
    /// # Errors
    /// When there are too many, or two have the same name.
    pub fn new(entries: impl IntoIterator<Item = (String, T)>) -> Result<Named<T>, String> {
        let mut named = Named(Vec::new());
        let mut names = HashSet::new();
        entries.into_iter().try_for_each(|(name, value)| named.add(&mut names, name, value))?;
        Ok(named)
    }

    /// The entries.
    pub fn entries(&self) -> &[(String, T)] {
        &self.0
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn add(&mut self, names: &mut HashSet<String>, name: String, value: T) -> Result<(), String> {
        if self.0.len() == Self::MOST {
            return Err(format!("there are more than {} entries", Self::MOST));
        }
        if !names.insert(name.clone()) {
            return Err(format!("there are two entries {name:?}"));
        }
        self.0.push((name, value));
        Ok(())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let (mut named, mut names) = (Named(Vec::new()), HashSet::new());
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    named.add(&mut names, name, value).map_err(A::Error::custom)?;
                }
                Ok(named)
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

impl Question {
    /// The question as it is put to a model.
    ///
    /// # Errors
    /// When it asks nothing.
    pub fn asked(&self) -> Result<DecisionQuestion, String> {
        let (instructions, kind) = match self {
            Question::Noul { instructions, criteria } => {
                let NoulCriteria { yes, no } = criteria.clone().unwrap_or_default();
                let (yes, no) = (content(&yes), content(&no));
                if [&content(instructions), &yes, &no].iter().all(|text| text.is_none()) {
                    return Err("it has neither instructions nor criteria".to_owned());
                }
                (instructions, DecisionKind::YesNo { yes, no })
            }
            Question::Choice { instructions, criteria } => {
                let option = |(name, description): &(String, Value)| DecisionOption {
                    name: name.clone(),
                    description: content(description),
                };
                (instructions, DecisionKind::Choice(criteria.entries().iter().map(option).collect()))
            }
            Question::Score { instructions, criteria } => {
                let is_empty = |level: &Value| content(level).is_none_or(|text| text.trim().is_empty());
                if let Some(level) = criteria.iter().position(is_empty) {
                    return Err(format!("level {level} is empty"));
                }
                let level = |level: &Value| content(level).unwrap_or_default();
                (instructions, DecisionKind::Score(criteria.iter().map(level).collect()))
            }
        };
        Ok(DecisionQuestion { instructions: content(instructions).unwrap_or_default(), kind })
    }

    /// The names of its options, in the order of their probabilities; levels have numbers from 0.
    pub fn option_names(&self) -> Vec<String> {
        match self {
            Question::Noul { .. } => ["no", "yes"].map(str::to_owned).to_vec(),
            Question::Choice { criteria, .. } => criteria.names().map(str::to_owned).collect(),
            Question::Score { criteria, .. } => (0..criteria.len()).map(|level| level.to_string()).collect(),
        }
    }

    /// The answer in the API's format. A score is the mean of the levels from 0; the confidence says how far the
    /// likeliest option is above chance.
    pub fn answer(&self, decision: &Decision) -> Value {
        let confidence = decision.confidence();
        match self {
            Question::Noul { .. } => json!({"type": "noul", "noul": decision.yes()}),
            Question::Choice { criteria, .. } => {
                let probabilities = decision.probabilities.iter().map(|probability| json!(probability));
                let probabilities: Map<String, Value> =
                    criteria.names().map(str::to_owned).zip(probabilities).collect();
                let choice = criteria.names().nth(decision.likeliest());
                json!({"type": "choice", "choice": choice, "confidence": confidence, "probabilities": probabilities})
            }
            Question::Score { criteria, .. } => {
                let numbered = |values: Vec<Value>| -> Map<String, Value> {
                    values.into_iter().enumerate().map(|(level, value)| (level.to_string(), value)).collect()
                };
                let probabilities = decision.probabilities.iter().map(|probability| json!(probability)).collect();
                json!({
                    "type": "score",
                    "score": decision.score(),
                    "confidence": confidence,
                    "legend": numbered(criteria.clone()),
                    "probabilities": numbered(probabilities),
                })
            }
        }
    }
}

/// A text as it is, and anything else as JSON; `None` for null.
pub fn content(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn question(value: Value) -> Question {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn questions_of_the_api_are_asked_and_answered_in_its_form() {
        let decision = |probabilities: &[f64]| Decision { probabilities: probabilities.to_vec() };
        let noul = question(json!({"type": "noul", "instructions": "Spam?", "criteria": {"true": {"a": 1}}}));
        let asked = noul.asked().unwrap();
        assert_eq!(asked.kind, DecisionKind::YesNo { yes: Some("{\"a\":1}".to_owned()), no: None });
        assert_eq!(noul.answer(&decision(&[0.25, 0.75])), json!({"type": "noul", "noul": 0.75}));

        let choice = r#"{"type": "choice", "criteria": {"warm": "It is hot", "cold": null}}"#;
        let choice: Question = serde_json::from_str(choice).unwrap();
        let DecisionKind::Choice(options) = choice.asked().unwrap().kind else { panic!("{choice:?}") };
        assert_eq!(options.iter().map(|option| &*option.name).collect::<Vec<_>>(), ["warm", "cold"], "in their order");
        let answer = json!({
            "type": "choice", "choice": "cold", "confidence": 0.5, "probabilities": {"warm": 0.25, "cold": 0.75},
        });
        assert_eq!(choice.answer(&decision(&[0.25, 0.75])), answer);

        let score = question(json!({"type": "score", "instructions": ["How", "bad?"], "criteria": ["low", "high"]}));
        assert_eq!(score.asked().unwrap().instructions, r#"["How","bad?"]"#);
        let answer = json!({
            "type": "score", "score": 0.75, "confidence": 0.5,
            "legend": {"0": "low", "1": "high"}, "probabilities": {"0": 0.25, "1": 0.75},
        });
        assert_eq!(score.answer(&decision(&[0.25, 0.75])), answer);
    }

    /// A body may hold a million names: parsing stops at the first one too many.
    #[test]
    fn too_many_entries_are_refused_early() {
        let names: Vec<String> = (0..200_000).map(|number| format!("\"{number}\": null")).collect();
        let error = serde_json::from_str::<Named<Value>>(&format!("{{{}}}", names.join(","))).unwrap_err();
        assert!(error.to_string().contains("there are more than 400 entries"), "{error}");
    }

    #[test]
    fn questions_that_ask_nothing_are_refused() {
        for nothing in [
            json!({"type": "noul"}),
            json!({"type": "score", "criteria": ["low", ""]}),
            json!({"type": "score", "criteria": [null, "high"]}),
        ] {
            assert!(question(nothing.clone()).asked().is_err(), "{nothing}");
        }
        for wrong in [
            r#"{"type": "box", "instructions": "x"}"#,
            r#"{"type": "noul", "instruction": "x"}"#,
            r#"{"type": "choice", "criteria": {"a": null, "a": null}}"#,
            r#"{"type": "score", "criteria": "low, high"}"#,
            r#"{"instructions": "x"}"#,
        ] {
            assert!(serde_json::from_str::<Question>(wrong).is_err(), "{wrong}");
        }
    }
}
