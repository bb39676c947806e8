//! Removes the parts of a JSON schema that forbid nothing.
//!
//! The parser of schemas refuses keywords that it cannot enforce, which is right where it would otherwise allow
//! something that the schema forbids. But much of a typical schema forbids nothing: non-standard formats are
//! annotations (JSON Schema 2020-12, validation, 7.2.1), some keywords are written with the value that allows
//! everything, and some programs write `null` for a keyword that they leave out.

use serde_json::{Map, Value, json};

/// The formats that are enforced.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// The drafts of JSON Schema that are known by these addresses.
const DRAFTS: [&str; 5] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];
/// Keywords that hold a value instead of a schema.
const VALUES: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords that map names to schemas.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords that hold a whole number.
const WHOLE: [&str; 6] = ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];
/// Keywords that only describe.
const DESCRIPTIONS: [&str; 5] = ["$comment", "title", "description", "default", "examples"];

/// The schema in the form that the parser takes.
pub(super) fn enforceable(schema: &Value) -> Value {
    match schema {
        Value::Object(keywords) => Value::Object(simplified(keywords)),
        Value::Array(schemas) => schemas.iter().map(enforceable).collect(),
        other => other.clone(),
    }
}

fn simplified(keywords: &Map<String, Value>) -> Map<String, Value> {
    let given = keywords.iter().filter(|(keyword, value)| !value.is_null() || VALUES.contains(&keyword.as_str()));
    let mut schema: Map<String, Value> =
        given.map(|(keyword, value)| (keyword.clone(), simplified_value(keyword, value))).collect();
    with_names_as_properties(&mut schema);
    with_one_item_contained(&mut schema);
    let vacuous: Vec<String> = schema
        .iter()
        .filter(|(keyword, value)| is_vacuous(keyword, value, &schema))
        .map(|(key, _)| key.clone())
        .collect();
    vacuous.iter().for_each(|keyword| {
        schema.remove(keyword);
    });
    schema
}

fn simplified_value(keyword: &str, value: &Value) -> Value {
    match value {
        _ if VALUES.contains(&keyword) => value.clone(),
        Value::Object(named) if BY_NAME.contains(&keyword) => {
            named.iter().map(|(name, schema)| (name.clone(), enforceable(schema))).collect()
        }
        Value::Number(number) if WHOLE.contains(&keyword) => whole(number).map_or_else(|| value.clone(), Value::from),
        _ => enforceable(value),
    }
}

/// A whole number that may be written as `8.0`.
fn whole(number: &serde_json::Number) -> Option<u64> {
    let value = number.as_f64().filter(|value| !number.is_u64() && value.fract() == 0.0)?;
    (0.0..9e15).contains(&value).then_some(value as u64)
}

/// Whether a keyword of a schema allows everything.
fn is_vacuous(keyword: &str, value: &Value, schema: &Map<String, Value>) -> bool {
    let is_empty = value.as_object().is_some_and(Map::is_empty);
    let has = |other: &str| schema.contains_key(other);
    match keyword {
        "$schema" => !value.as_str().is_some_and(|address| DRAFTS.contains(&address.trim_end_matches('#'))),
        "$dynamicAnchor" | "$recursiveAnchor" => true,
        "format" => !value.as_str().is_some_and(|format| FORMATS.contains(&format)) || !may_be_text(schema),
        "required" => !value.is_array(),
        "propertyNames" => allows_every_name(value),
        "uniqueItems" => *value == Value::Bool(false) || most_items(schema) <= 1,
        "dependentRequired" | "dependentSchemas" | "dependencies" => is_empty,
        "contains" => schema.get("minContains").and_then(Value::as_u64) == Some(0) && !has("maxContains"),
        "minContains" => !has("contains") || value.as_u64() == Some(0) && !has("maxContains"),
        "maxContains" => !has("contains"),
        "if" => !has("then") && !has("else"),
        "then" | "else" => !has("if") || *value == Value::Bool(true) || is_empty,
        "unevaluatedProperties" | "unevaluatedItems" => *value == Value::Bool(true) || is_empty,
        "not" => *value == Value::Bool(false),
        "allOf" => value.as_array().is_some_and(Vec::is_empty),
        _ => false,
    }
}

fn may_be_text(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => true,
    }
}

fn most_items(schema: &Map<String, Value>) -> u64 {
    schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX)
}

/// Whether a schema of names allows every name.
fn allows_every_name(names: &Value) -> bool {
    let Value::Object(keywords) = names else { return *names == Value::Bool(true) };
    keywords.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => may_be_text(keywords),
        "minLength" => value.as_u64() == Some(0),
        other => DESCRIPTIONS.contains(&other),
    })
}

/// Rewrites names that are listed, or have a pattern, as properties, unless there are other properties.
fn with_names_as_properties(schema: &mut Map<String, Value>) {
    if schema.contains_key("properties") || schema.contains_key("patternProperties") {
        return;
    }
    let Some(Value::Object(names)) = schema.get("propertyNames") else { return };
    let rest = names.keys().filter(|key| !["type", "enum", "const", "pattern"].contains(&key.as_str()));
    if rest.into_iter().any(|key| !DESCRIPTIONS.contains(&key.as_str())) {
        return;
    }
    let value = schema.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
    let listed: Option<Vec<&str>> = match (names.get("enum"), names.get("const")) {
        (Some(Value::Array(listed)), None) => listed.iter().map(Value::as_str).collect(),
        (None, Some(one)) => one.as_str().map(|one| vec![one]),
        _ => None,
    };
    let (keyword, named) = match (listed, names.get("pattern")) {
        (Some(listed), None) => {
            ("properties", listed.into_iter().map(|name| (name.to_owned(), value.clone())).collect())
        }
        (None, Some(Value::String(pattern))) => ("patternProperties", Map::from_iter([(pattern.clone(), value)])),
        _ => return,
    };
    schema.insert(keyword.to_owned(), Value::Object(named));
    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    schema.remove("propertyNames");
}

/// Rewrites containing any item as having at least one item.
fn with_one_item_contained(schema: &mut Map<String, Value>) {
    let allows_all = |schema: &Value| *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty);
    let demands_more = ["minContains", "maxContains"].iter().any(|keyword| schema.contains_key(*keyword));
    if demands_more || !schema.get("contains").is_some_and(allows_all) {
        return;
    }
    let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).max(1);
    schema.insert("minItems".to_owned(), json!(least));
    schema.remove("contains");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, expected: Value) {
        assert_eq!(enforceable(&schema), expected, "{schema}");
    }

    #[test]
    fn what_forbids_nothing_is_left_out() {
        let text = json!({"type": "string"});
        for format in ["path", "password", "binary", "byte", "regex", "iri", "json-pointer", "made up"] {
            check(json!({"type": "string", "format": format}), text.clone());
        }
        check(json!({"type": "string", "format": "uuid"}), json!({"type": "string", "format": "uuid"}));
        check(
            json!({"type": ["string", "null"], "format": "date"}),
            json!({"type": ["string", "null"], "format": "date"}),
        );
        check(json!({"type": "integer", "format": "time"}), json!({"type": "integer"}));
        check(json!({"type": "object", "properties": null, "required": null}), json!({"type": "object"}));
        check(json!({"type": "object", "propertyNames": {"type": "string"}}), json!({"type": "object"}));
        check(json!({"uniqueItems": false, "dependentRequired": {}, "if": true}), json!({}));
        check(json!({"contains": {"type": "null"}, "minContains": 0}), json!({}));
        check(json!({"contains": {}}), json!({"minItems": 1}));
        check(json!({"not": false, "allOf": [], "unevaluatedProperties": true, "$schema": "x"}), json!({}));
        check(json!({"maxLength": 8.0, "minItems": 2}), json!({"maxLength": 8, "minItems": 2}));
    }

    #[test]
    fn what_forbids_something_stays() {
        for schema in [
            json!({"uniqueItems": true}),
            json!({"contains": {"const": 1}}),
            json!({"propertyNames": {"minLength": 2}}),
            json!({"not": {}}),
            json!({"if": {"const": 1}, "then": {"type": "null"}}),
            json!({"dependentRequired": {"a": ["b"]}}),
        ] {
            check(schema.clone(), schema);
        }
    }

    #[test]
    fn values_and_names_are_no_keywords() {
        let schema = json!({"enum": [null, {"format": "path"}], "const": null, "default": {"uniqueItems": false}});
        check(schema.clone(), schema);
        let named = json!({"properties": {"format": {"type": "string", "format": "x"}, "uniqueItems": false}});
        check(named, json!({"properties": {"format": {"type": "string"}, "uniqueItems": false}}));
    }

    #[test]
    fn names_that_are_listed_are_properties() {
        let value = json!({"type": "integer"});
        check(
            json!({"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": value}),
            json!({"type": "object", "properties": {"a": value, "b": value}, "additionalProperties": false}),
        );
        check(
            json!({"propertyNames": {"pattern": "^x"}, "additionalProperties": value}),
            json!({"patternProperties": {"^x": value}, "additionalProperties": false}),
        );
    }
}
