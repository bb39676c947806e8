//! Size limits of forms. The cost of compiling a form grows with these figures, so they are checked before anything is
//! compiled; none of the checks takes more than one walk through the form.

use serde_json::Value;

/// Maximum number of properties of one object, and of all objects of a schema together.
const MOST_PROPERTIES: usize = 1000;
const MOST_PROPERTIES_TOGETHER: usize = 4000;
/// Maximum number of schemas in one `anyOf`, `oneOf` or `allOf`.
const MOST_ALTERNATIVES: usize = 500;
/// Maximum number of values of one `enum`, and of texts to choose from.
const MOST_VALUES: usize = 10_000;
/// Maximum number of schemas for the first items of one list.
const MOST_FIRST_ITEMS: usize = 1000;
/// Maximum number of objects, lists and values in a schema.
const MOST_PARTS: usize = 50_000;
/// Maximum bytes of a regular expression, and of all patterns of a schema together.
const MOST_EXPRESSION_BYTES: usize = 64 << 10;
/// Maximum bytes of the texts of a choice together.
const MOST_CHOICE_BYTES: usize = 1 << 20;

/// Checks the size of a schema.
///
/// # Errors
/// When it exceeds a limit, which the error names.
pub(super) fn check_schema(schema: &Value) -> Result<(), String> {
    let mut sizes = Sizes::default();
    let mut left = vec![schema];
    while let Some(part) = left.pop() {
        sizes.parts += 1;
        at_most("objects, lists and values", sizes.parts, MOST_PARTS)?;
        sizes.add(part)?;
        match part {
            Value::Object(fields) => left.extend(fields.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    Ok(())
}

/// Checks the size of a choice.
///
/// # Errors
/// When it exceeds a limit, which the error names.
pub(super) fn check_choice(texts: &[String]) -> Result<(), String> {
    at_most("texts to choose from", texts.len(), MOST_VALUES)?;
    at_most("bytes of texts", texts.iter().map(String::len).sum(), MOST_CHOICE_BYTES)
}

/// Checks the size of a regular expression.
///
/// # Errors
/// When it exceeds a limit, which the error names.
pub(super) fn check_expression(expression: &str) -> Result<(), String> {
    at_most("bytes", expression.len(), MOST_EXPRESSION_BYTES)
}

#[derive(Default)]
struct Sizes {
    parts: usize,
    properties: usize,
    pattern_bytes: usize,
}

impl Sizes {
    fn add(&mut self, part: &Value) -> Result<(), String> {
        for key in ["properties", "patternProperties", "required"] {
            at_most(&format!("entries in {key:?}"), n_entries(part, key), MOST_PROPERTIES)?;
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            at_most(&format!("schemas in {key:?}"), n_entries(part, key), MOST_ALTERNATIVES)?;
        }
        at_most("values in \"enum\"", n_entries(part, "enum"), MOST_VALUES)?;
        at_most("schemas in \"prefixItems\"", n_entries(part, "prefixItems"), MOST_FIRST_ITEMS)?;
        // The older form of `prefixItems`.
        at_most("schemas in \"items\"", n_entries(part, "items"), MOST_FIRST_ITEMS)?;
        self.properties += n_entries(part, "properties").max(n_entries(part, "required"));
        at_most("properties together", self.properties, MOST_PROPERTIES_TOGETHER)?;
        self.pattern_bytes += part.get("pattern").and_then(Value::as_str).map_or(0, str::len);
        at_most("bytes of patterns", self.pattern_bytes, MOST_EXPRESSION_BYTES)
    }
}

/// The entries of a list or an object under a key.
fn n_entries(part: &Value, key: &str) -> usize {
    match part.get(key) {
        Some(Value::Object(fields)) => fields.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    }
}

fn at_most(what: &str, n: usize, most: usize) -> Result<(), String> {
    match n <= most {
        true => Ok(()),
        false => Err(format!("it has {n} {what}: at most {most} are possible")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: &Value, limit: &str) {
        let error = check_schema(schema).unwrap_err();
        assert!(error.contains(limit), "{error}");
    }

    #[test]
    fn what_is_too_large_is_named() {
        let properties = |n: usize| -> Value { (0..n).map(|n| (format!("k{n}"), json!({"type": "null"}))).collect() };
        let schemas = |n: usize| vec![json!({"type": "null"}); n];
        assert_eq!(check_schema(&json!({"properties": properties(1000), "anyOf": schemas(500)})), Ok(()));
        refused(&json!({"properties": properties(1001)}), "entries in \"properties\"");
        for key in ["anyOf", "oneOf", "allOf"] {
            refused(&json!({"items": {key: schemas(501)}}), &format!("schemas in {key:?}"));
        }
        refused(&json!({"enum": (0..10_001).collect::<Vec<_>>()}), "values in \"enum\"");
        refused(&json!({"prefixItems": schemas(1001)}), "prefixItems");
        let nested = vec![json!({"properties": properties(999)}); 5];
        refused(&json!({"anyOf": nested}), "properties together");
        refused(&json!({"const": vec![0; 50_001]}), "objects, lists and values");
        refused(&json!({"pattern": "a".repeat(70_000)}), "bytes of patterns");
    }
}
