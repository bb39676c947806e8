//! Expectations of fields, and checks against them.

use serde::Deserialize;
use serde_json::Value;

/// The expectation for a field: a value that it equals, or rules that it satisfies.
#[derive(Clone, Debug, PartialEq)]
pub enum Expectation {
    /// Exactly this value.
    Equals(Value),
    /// All of these.
    Follows(Box<Rules>),
}

/// Rules for a value; unset ones do not apply.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
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
    /// A value that it must differ from.
    not: Option<Value>,
    /// Two values; it must be the boolean that says whether they are equal, or null where the first is null.
    whether_equal: Option<[Value; 2]>,
    /// Whether null is also allowed.
    nullable: bool,
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
    /// Null. A field that does not exist is not null.
    Null,
    /// Nothing: the field does not exist.
    Missing,
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
    /// The mismatch of the field at `path` of `object`; `None` if there is none. The text `$name.path` refers to a
    /// field of `known`.
    pub fn fault(&self, object: &Value, path: &str, known: &Value) -> Option<String> {
        let value = field(object, path);
        if self.rules().nullable && value == Some(&Value::Null) {
            return None;
        }
        let wanted = match self.rules().resolved(known) {
            Ok(rules) => rules.broken_by(value)?,
            Err(unknown) => format!("{unknown}, which is unknown"),
        };
        let found = value.map_or("does not exist".to_owned(), |value| format!("is {}", shortened(value)));
        Some(format!("{path} {found}, expected {wanted}"))
    }

    /// The names that it refers to, without their paths.
    pub fn references(&self) -> Vec<String> {
        let rules = self.rules();
        let names = rules.values().into_iter().filter_map(reference);
        names.map(|name| name.split('.').next().unwrap_or_default().to_owned()).collect()
    }

    fn rules(&self) -> Rules {
        match self {
            Expectation::Equals(value) => Rules { one_of: Some(vec![value.clone()]), ..Rules::default() },
            Expectation::Follows(rules) => (**rules).clone(),
        }
    }
}

impl Rules {
    /// The values that may refer to others.
    fn values(&self) -> Vec<&Value> {
        let (choices, pair) = (self.one_of.iter().flatten(), self.whether_equal.iter().flatten());
        choices.chain(&self.not).chain(pair).collect()
    }

    /// These rules with references replaced by their values.
    ///
    /// # Errors
    /// The reference that has no value.
    fn resolved(mut self, known: &Value) -> Result<Rules, String> {
        let (choices, pair) = (self.one_of.iter_mut().flatten(), self.whether_equal.iter_mut().flatten());
        for value in choices.chain(&mut self.not).chain(pair) {
            if let Some(name) = reference(value) {
                *value = field(known, name).ok_or_else(|| format!("${name}"))?.clone();
            }
        }
        Ok(self)
    }

    /// The first rule that a field with this value violates, in words. A field that does not exist violates every rule
    /// but one.
    fn broken_by(&self, value: Option<&Value>) -> Option<String> {
        let number = value.and_then(Value::as_f64);
        let text = value.and_then(Value::as_str).map(str::to_lowercase);
        let is = |expected: &Value| value.is_some_and(|value| equal(value, expected));
        let holds = |part: &String| text.as_ref().is_some_and(|text| text.contains(&part.to_lowercase()));
        let kind = self.is.filter(|kind| !kind.holds(value)).map(|kind| format!("{kind:?}").to_lowercase());
        let least = self.min.filter(|min| number.is_none_or(|number| number < *min));
        let greatest = self.max.filter(|max| number.is_none_or(|number| number > *max));
        let part = self.contains.as_ref().filter(|part| !holds(part));
        let choices = self.one_of.as_ref().filter(|choices| !choices.iter().any(is));
        let other = self.not.as_ref().filter(|other| value.is_none() || is(other));
        let whether = self.whether_equal.as_ref().map(whether_equal).filter(|whether| !is(whether));
        let is_missing = value.is_none() && self.is != Some(Kind::Missing);
        kind.or(least.map(|min| format!("{min} or more")))
            .or(greatest.map(|max| format!("{max} or less")))
            .or(part.map(|part| format!("a text with {part:?}")))
            .or(choices.map(|choices| one_of(choices)))
            .or(other.map(|other| format!("anything but {other}")))
            .or(whether.map(|whether| whether.to_string()))
            .or(is_missing.then(|| "a value".to_owned()))
    }
}

/// The boolean that says whether the values are equal; null where the first is null.
fn whether_equal([a, b]: &[Value; 2]) -> Value {
    if a.is_null() { Value::Null } else { equal(a, b).into() }
}

impl Kind {
    fn holds(self, value: Option<&Value>) -> bool {
        let Some(value) = value else { return self == Kind::Missing };
        match self {
            Kind::Integer => value.is_i64() || value.is_u64(),
            Kind::Number => value.is_number(),
            Kind::Text => value.as_str().is_some_and(|text| !text.trim().is_empty()),
            Kind::List => value.as_array().is_some_and(|list| !list.is_empty()),
            Kind::Boolean => value.is_boolean(),
            Kind::Null => value.is_null(),
            Kind::Missing => false,
        }
    }
}

/// The value at a path of names with dots between them.
fn field<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name))
}

/// The target of a value that is a reference.
fn reference(value: &Value) -> Option<&str> {
    value.as_str().and_then(|text| text.strip_prefix('$'))
}

fn one_of(choices: &[Value]) -> String {
    match choices {
        [only] => only.to_string(),
        choices => format!("one of {}", Value::Array(choices.to_vec())),
    }
}

/// Numbers are compared by value, whether or not they were written with a decimal point, and whether in single or
/// double precision.
fn equal(a: &Value, b: &Value) -> bool {
    let single = |number: f64| f64::from(number as f32);
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b || single(a) == b || a == single(b),
        _ => a == b,
    }
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
            "payload": {"score": 4, "expected": 3.5, "feedback": "Well Done", "self_graded": true, "list": [], "none": null,
                        "temperature": 0.7_f32}
        });
        let expectation: Expectation = serde_json::from_value(expectation).unwrap();
        let known = json!({"query_id": "q7", "answer_b": {"query_id": "q8"}, "comparison": {"winner": "A"}});
        let fault = expectation.fault(&object, path, &known);
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
        check(json!({"is": "integer", "max": 3, "nullable": true}), "payload.none", None);
        check(json!({"max": 3, "nullable": true}), "payload.score", Some("payload.score is 4, expected 3 or less"));
        check(
            json!({"max": 3, "nullable": true}),
            "payload.missing",
            Some("payload.missing does not exist, expected 3 or less"),
        );
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
        check(json!({"is": "missing"}), "payload.nowhere", None);
        check(json!({"is": "missing"}), "payload.none", Some("payload.none is null, expected missing"));
        check(json!({"is": "list"}), "payload.list", Some("payload.list is [], expected list"));
        check(json!({"is": "boolean"}), "payload.self_graded", None);
        check(
            json!({"one_of": ["A", "B"]}),
            "subject",
            Some("subject is \"critique.result\", expected one of [\"A\",\"B\"]"),
        );
        check(json!({"one_of": [4]}), "payload.score", None);
        check(json!(0.7), "payload.temperature", None);
        check(json!(0.71), "payload.temperature", Some("payload.temperature is 0.699999988079071, expected 0.71"));
    }

    #[test]
    fn a_field_that_does_not_exist_is_not_null_and_nothing_else() {
        let missing = |expectation: Value, wanted: &str| {
            let fault = format!("payload.nowhere does not exist, expected {wanted}");
            check(expectation, "payload.nowhere", Some(&fault));
        };
        missing(json!({"is": "null"}), "null");
        missing(json!({"is": "text"}), "text");
        missing(json!(null), "null");
        missing(json!(4), "4");
        missing(json!({"not": 4}), "anything but 4");
        missing(json!({"whether_equal": [1, 1]}), "true");
        missing(json!({}), "a value");
    }

    #[test]
    fn a_field_may_have_to_do_with_another_one() {
        let fault = "query_id is \"q7\", expected anything but \"q7\"";
        check(json!({"not": "$query_id"}), "query_id", Some(fault));
        check(json!({"not": "$answer_b.query_id"}), "query_id", None);
        check(json!("$answer_b.query_id"), "query_id", Some("query_id is \"q7\", expected \"q8\""));
        let whether = |winner: &str| json!({"whether_equal": ["$comparison.winner", winner]});
        check(whether("A"), "payload.self_graded", None);
        check(whether("B"), "payload.self_graded", Some("payload.self_graded is true, expected false"));
        check(json!({"whether_equal": [null, "A"]}), "payload.none", None);
        check(
            json!({"whether_equal": [null, "A"]}),
            "payload.self_graded",
            Some("payload.self_graded is true, expected null"),
        );
        let unknown = "query_id is \"q7\", expected $answer_b.nothing, which is unknown";
        check(json!("$answer_b.nothing"), "query_id", Some(unknown));
        let expectation: Expectation = serde_json::from_value(whether("$a.b.c")).unwrap();
        assert_eq!(expectation.references(), ["comparison", "a"]);
    }

    #[test]
    fn a_rule_that_there_is_not_is_refused() {
        assert!(serde_json::from_value::<Expectation>(json!({"atleast": 3})).is_err());
    }
}
