//! Expectations of fields, and checks against them.

use serde::Deserialize;
use serde_json::Value;

/// What is expected of a field: a value that it equals, or rules that it satisfies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expectation {
    /// Exactly this value.
    Equals(Value),
    /// All of these.
    Follows(Box<Rules>),
}

/// Rules for a value; unset ones do not apply.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rules {
    /// The kind of value.
    is: Option<Kind>,
    /// The smallest allowed number.
    min: Option<f64>,
    /// The largest allowed number.
    max: Option<f64>,
    /// A text that it must contain, ignoring case.
    contains: Option<String>,
    /// The allowed values.
    one_of: Option<Vec<Value>>,
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// A text that is not empty.
    Text,
    /// A list that is not empty.
    List,
    /// True or false.
    Boolean,
    /// Null or missing.
    Null,
}

impl<'de> Deserialize<'de> for Expectation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            rules @ Value::Object(_) => {
                serde_json::from_value(rules).map(Expectation::Follows).map_err(serde::de::Error::custom)
            }
            value => Ok(Expectation::Equals(value)),
        }
    }
}

impl Expectation {
    /// What is wrong with the field at `path` of `object`; `None` if nothing is. The text `$name` refers to the field
    /// `name` of `known`.
    pub(crate) fn fault(&self, object: &Value, path: &str, known: &Value) -> Option<String> {
        let value = path.split('.').try_fold(object, |value, name| value.get(name)).unwrap_or(&Value::Null);
        let wanted = match self {
            Expectation::Equals(expected) => {
                let expected = resolve(expected, known);
                (!equal(value, expected)).then(|| expected.to_string())
            }
            Expectation::Follows(rules) => rules.broken_by(value),
        };
        wanted.map(|wanted| format!("{path} is {}, expected {wanted}", shortened(value)))
    }
}

impl Rules {
    /// The first rule that `value` violates, in words.
    fn broken_by(&self, value: &Value) -> Option<String> {
        let number = value.as_f64();
        let text = value.as_str().map(str::to_lowercase);
        let holds = |part: &String| text.as_ref().is_some_and(|text| text.contains(&part.to_lowercase()));
        let kind = self.is.filter(|kind| !kind.holds(value)).map(|kind| format!("{kind:?}").to_lowercase());
        let least = self.min.filter(|min| number.is_none_or(|number| number < *min));
        let greatest = self.max.filter(|max| number.is_none_or(|number| number > *max));
        let part = self.contains.as_ref().filter(|part| !holds(part));
        let choices = self.one_of.as_ref().filter(|choices| !choices.iter().any(|choice| equal(value, choice)));
        kind.or(least.map(|min| format!("{min} or more")))
            .or(greatest.map(|max| format!("{max} or less")))
            .or(part.map(|part| format!("a text with {part:?}")))
            .or(choices.map(|choices| format!("one of {}", Value::Array(choices.clone()))))
    }
}

impl Kind {
    fn holds(self, value: &Value) -> bool {
        match self {
            Kind::Integer => value.is_i64() || value.is_u64(),
            Kind::Number => value.is_number(),
            Kind::Text => value.as_str().is_some_and(|text| !text.trim().is_empty()),
            Kind::List => value.as_array().is_some_and(|list| !list.is_empty()),
            Kind::Boolean => value.is_boolean(),
            Kind::Null => value.is_null(),
        }
    }
}

/// Numbers are compared by value, whether or not they were written with a decimal point.
fn equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

fn resolve<'a>(expected: &'a Value, known: &'a Value) -> &'a Value {
    let name = expected.as_str().and_then(|text| text.strip_prefix('$'));
    name.and_then(|name| known.get(name)).unwrap_or(expected)
}

/// A value, truncated to fit on a line.
fn shortened(value: &Value) -> String {
    const LONGEST: usize = 120;
    let text = value.to_string();
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(expectation: Value, path: &str, expected: Option<&str>) {
        let object = json!({
            "subject": "critique.result",
            "query_id": "q7",
            "payload": {"score": 4, "expected": 3.5, "feedback": "Well Done", "self_graded": true, "list": [], "none": null}
        });
        let expectation: Expectation = serde_json::from_value(expectation).unwrap();
        let fault = expectation.fault(&object, path, &json!({"query_id": "q7"}));
        assert_eq!(fault.as_deref(), expected);
    }

    #[test]
    fn a_field_is_what_is_expected_or_the_fault_is_named() {
        check(json!(4), "payload.score", None);
        check(json!(4.0), "payload.score", None);
        check(json!(5), "payload.score", Some("payload.score is 4, expected 5"));
        check(json!("$query_id"), "query_id", None);
        check(json!("$query_id"), "subject", Some("subject is \"critique.result\", expected \"q7\""));
        check(json!({"is": "integer", "min": 1, "max": 5}), "payload.score", None);
        check(json!({"max": 3}), "payload.score", Some("payload.score is 4, expected 3 or less"));
        check(json!({"min": 5}), "payload.score", Some("payload.score is 4, expected 5 or more"));
        check(json!({"is": "integer"}), "payload.expected", Some("payload.expected is 3.5, expected integer"));
        check(json!({"is": "number"}), "payload.expected", None);
        check(json!({"contains": "well"}), "payload.feedback", None);
        check(
            json!({"contains": "bad"}),
            "payload.feedback",
            Some("payload.feedback is \"Well Done\", expected a text with \"bad\""),
        );
        check(json!({"is": "null"}), "payload.none", None);
        check(json!({"is": "null"}), "payload.nowhere", None);
        check(json!({"is": "text"}), "payload.nowhere", Some("payload.nowhere is null, expected text"));
        check(json!({"is": "list"}), "payload.list", Some("payload.list is [], expected list"));
        check(json!({"is": "boolean"}), "payload.self_graded", None);
        check(
            json!({"one_of": ["A", "B"]}),
            "subject",
            Some("subject is \"critique.result\", expected one of [\"A\",\"B\"]"),
        );
        check(json!({"one_of": [4]}), "payload.score", None);
    }

    #[test]
    fn a_rule_that_there_is_not_is_refused() {
        assert!(serde_json::from_value::<Expectation>(json!({"atleast": 3})).is_err());
    }
}
