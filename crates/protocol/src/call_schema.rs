//! The JSON schema of a call.

use serde_json::{Map, Value, json};

use crate::chat::Tool;

/// The schema of a call of one of these tools: an object of `name` and `arguments`.
pub fn call_schema(tools: &[Tool]) -> Value {
    let call = |tool: &Tool, place: String| {
        let arguments = moved(closed(&tool.parameters), &format!("{place}/properties/arguments"));
        json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    };
    match tools {
        [one] => call(one, "#".to_owned()),
        several => {
            let calls = several.iter().enumerate().map(|(index, tool)| call(tool, format!("#/anyOf/{index}")));
            json!({"anyOf": calls.collect::<Vec<_>>()})
        }
    }
}

/// A schema that has become a part of another one at `place`, with its references to itself adjusted.
fn moved(schema: Value, place: &str) -> Value {
    match schema {
        Value::Object(fields) => fields.into_iter().map(|(key, value)| moved_field(key, value, place)).collect(),
        Value::Array(items) => items.into_iter().map(|item| moved(item, place)).collect(),
        other => other,
    }
}

fn moved_field(key: String, value: Value, place: &str) -> (String, Value) {
    let within = value.as_str().filter(|_| key == "$ref").and_then(|reference| reference.strip_prefix('#'));
    let moved_to = within.map(|rest| json!(format!("{place}{rest}")));
    (key, moved_to.unwrap_or_else(|| moved(value, place)))
}

/// The schema of an object that allows no further keys, so that the generated answer ends.
fn closed(schema: &Value) -> Value {
    let fields = schema.as_object().cloned().unwrap_or_default();
    let mut closed: Map<String, Value> = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
    closed.entry("type").or_insert_with(|| json!("object"));
    closed.entry("additionalProperties").or_insert(Value::Bool(false));
    Value::Object(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_whose_keys_are_known() {
        let check = |schema: Value, expected: Value| assert_eq!(closed(&schema), expected);
        check(json!({}), json!({"type": "object", "additionalProperties": false}));
        check(json!({"type": "object", "properties": null}), json!({"type": "object", "additionalProperties": false}));
        check(
            json!({"type": "object", "additionalProperties": {}}),
            json!({"type": "object", "additionalProperties": {}}),
        );
    }

    #[test]
    fn the_references_of_a_tools_schema_lead_to_their_parts() {
        let parameters = json!({
            "$defs": {"city": {"type": "string"}},
            "type": "object",
            "properties": {"$ref": {"$ref": "#/$defs/city"}, "next": {"anyOf": [{"$ref": "#"}, {"$ref": "x#y"}]}},
        });
        let tool =
            |name: &str| Tool { name: name.to_owned(), description: String::new(), parameters: parameters.clone() };
        let check = |schema: &Value, place: &str| {
            let arguments = schema.pointer(&format!("{}/properties/arguments", &place[1..])).unwrap();
            let properties = &arguments["properties"];
            let city = properties["$ref"]["$ref"].as_str().unwrap();
            assert_eq!(schema.pointer(&city[1..]), Some(&json!({"type": "string"})), "{city}");
            let next = properties["next"]["anyOf"][0]["$ref"].as_str().unwrap();
            assert_eq!(schema.pointer(&next[1..]), Some(arguments), "{next}");
            assert_eq!(properties["next"]["anyOf"][1]["$ref"], "x#y");
        };
        check(&call_schema(&[tool("one")]), "#");
        let both = call_schema(&[tool("one"), tool("two")]);
        check(&both, "#/anyOf/0");
        check(&both, "#/anyOf/1");
    }
}
