//! Limits on JSON schemas whose parts refer to each other.
//!
//! A schema may refer to itself, like the schema of a tree. If each of its values has to hold another one, a text of
//! that form never ends, and a model would write it until it is cut off. Each level of a schema, including those
//! reached through references, takes stack while it is compiled, so their number is limited to keep it from
//! overflowing.

use std::collections::BTreeSet;

use serde_json::Value;

/// Maximum number of levels of a schema. One takes up to 5 KiB of stack.
const MOST_LEVELS: usize = 2000;
/// Maximum stack for compiling a schema. It is reserved, and taken only as far as it is used.
pub(crate) const STACK_BYTES: usize = 256 << 20;
/// Maximum number of schemas visited to see whether they end.
const MOST_STEPS: usize = 100_000;

/// Checks that a schema can be compiled, and that a text can have its form and end. A schema that is too complex to
/// tell counts as ending.
///
/// # Errors
/// When it has too many levels, or no text of its form can end; the error gives the reason.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let n_levels = n_levels(schema);
    if n_levels > MOST_LEVELS {
        return Err(format!("its references lead through {n_levels} levels: at most {MOST_LEVELS} are possible"));
    }
    let mut search = Search { root: schema, open: Vec::new(), steps: 0 };
    match search.ends(schema) {
        true => Ok(()),
        false => Err("it refers to itself so that no text of its form ever ends".to_owned()),
    }
}

/// Maximum nesting of levels, however references are followed: each target is entered once.
fn n_levels(schema: &Value) -> usize {
    let mut references = BTreeSet::new();
    collect_references(schema, &mut references);
    let all = depth(schema);
    all + references.iter().map(|reference| target(schema, reference).map_or(all, depth)).sum::<usize>()
}

fn collect_references<'a>(schema: &'a Value, references: &mut BTreeSet<&'a str>) {
    references.extend(schema.get("$ref").and_then(Value::as_str));
    children(schema).for_each(|child| collect_references(child, references));
}

fn depth(value: &Value) -> usize {
    1 + children(value).map(depth).max().unwrap_or(0)
}

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(|fields| fields.values()).chain(value.as_array().into_iter().flatten())
}

/// The target of a reference within the schema; other forms of references are not looked up.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

struct Search<'a> {
    root: &'a Value,
    /// The references that are being followed.
    open: Vec<&'a str>,
    steps: usize,
}

impl<'a> Search<'a> {
    /// Whether a value of this schema can end.
    fn ends(&mut self, schema: &'a Value) -> bool {
        self.steps += 1;
        if self.steps > MOST_STEPS || schema.get("const").is_some() || schema.get("enum").is_some() {
            return true;
        }
        let is = |kind: &str| schema.get("type").and_then(Value::as_str) == Some(kind);
        self.reference_ends(schema)
            && list(schema, "allOf").iter().all(|part| self.ends(part))
            && self.one_ends(list(schema, "anyOf"))
            && self.one_ends(list(schema, "oneOf"))
            && (!is("object") || self.properties_end(schema))
            && (!is("array") || self.items_end(schema))
    }

    fn reference_ends(&mut self, schema: &'a Value) -> bool {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return true };
        let Some(target) = target(self.root, reference) else { return true };
        if self.open.contains(&reference) {
            return false;
        }
        self.open.push(reference);
        let ends = self.ends(target);
        self.open.pop();
        ends
    }

    fn one_ends(&mut self, choices: &'a [Value]) -> bool {
        choices.is_empty() || choices.iter().any(|choice| self.ends(choice))
    }

    /// Whether all properties that an object must have can end.
    fn properties_end(&mut self, schema: &'a Value) -> bool {
        let mut required = list(schema, "required").iter().filter_map(Value::as_str);
        required.all(|name| schema["properties"].get(name).is_none_or(|property| self.ends(property)))
    }

    /// Whether all items that a list must have can end.
    fn items_end(&mut self, schema: &'a Value) -> bool {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let first = list(schema, "prefixItems");
        let n_first = usize::try_from(least).unwrap_or(usize::MAX).min(first.len());
        let has_others = least > first.len() as u64;
        first[..n_first].iter().all(|item| self.ends(item))
            && (!has_others || schema.get("items").is_none_or(|items| self.ends(items)))
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_demands_itself_never_ends() {
        let node = |next: Value, required: &[&str]| {
            let node = json!({"type": "object", "properties": {"next": next}, "required": required});
            json!({"$defs": {"node": node}, "$ref": "#/$defs/node"})
        };
        let again = json!({"$ref": "#/$defs/node"});
        let or_null = json!({"anyOf": [again, {"type": "null"}]});
        let items = |least: u64| json!({"type": "array", "items": again, "minItems": least});
        let first = json!({"type": "array", "prefixItems": [again], "minItems": 1});
        for ending in [
            node(again.clone(), &[]),
            node(or_null.clone(), &["next"]),
            node(items(0), &["next"]),
            node(json!({"allOf": [or_null]}), &["next"]),
            node(json!({"enum": [1], "$ref": "#"}), &["next"]),
            json!({"$ref": "#/$defs/elsewhere"}),
            json!({"type": "object", "required": ["other"]}),
            json!({"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            json!(true),
        ] {
            assert_eq!(check(&ending), Ok(()), "{ending}");
        }
        for endless in [
            json!({"$ref": "#"}),
            node(again.clone(), &["next"]),
            node(items(1), &["next"]),
            node(first, &["next"]),
            node(json!({"allOf": [or_null, again]}), &["next"]),
            node(json!({"oneOf": [again, {"$ref": "#"}]}), &["next"]),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        ] {
            assert!(check(&endless).is_err(), "{endless}");
        }
    }

    /// Objects that hold each other, `n` deep.
    fn chain(n: usize) -> Value {
        let link = |next: usize| json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/{next}")}}});
        let mut definitions: serde_json::Map<String, Value> =
            (0..n).map(|number| (number.to_string(), link(number + 1))).collect();
        definitions.insert(n.to_string(), json!({"type": "integer"}));
        json!({"$defs": definitions, "$ref": "#/$defs/0"})
    }

    #[test]
    fn references_lead_through_a_bounded_number_of_levels() {
        assert_eq!(n_levels(&json!({"type": "object", "properties": {"a": {"type": "string"}}})), 4);
        assert_eq!(n_levels(&json!({"$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"})), 4 + 2);
        assert_eq!(n_levels(&json!({"$ref": "elsewhere#name"})), 2 + 2, "what is not looked up counts whole");
        assert_eq!(check(&chain(400)), Ok(()));
        assert!(check(&chain(600)).unwrap_err().starts_with("its references lead through"));
    }

    #[test]
    fn the_search_ends_however_the_schema_branches() {
        let doubled =
            |next: usize| json!({"allOf": [{"$ref": format!("#/$defs/{next}")}, {"$ref": format!("#/$defs/{next}")}]});
        let definitions: serde_json::Map<String, Value> =
            (0..60).map(|number| (number.to_string(), doubled(number + 1))).collect();
        let schema = json!({"$defs": definitions, "$ref": "#/$defs/0"});
        assert_eq!(check(&schema), Ok(()));
    }
}
