//! The response format, as OpenAI clients specify it.

use hone_protocol::Constraint;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;

/// The response format. The schema may be in either of the two places that OpenAI's APIs use (in `json_schema` for
/// chats, next to the type for responses), as in llama.cpp.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiResponseFormat)]
pub(crate) struct AnswerFormat {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default)]
    schema: Option<Value>,
    #[serde(default)]
    json_schema: Option<NamedSchema>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OpenAiResponseFormatType)]
enum Kind {
    Text,
    JsonObject,
    JsonSchema,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenAiNamedSchema)]
struct NamedSchema {
    #[serde(default)]
    schema: Option<Value>,
}

impl AnswerFormat {
    /// The constraint that enforces the format.
    ///
    /// # Errors
    /// When the format needs a schema and has none; `field` names the format in its request.
    pub(crate) fn constraint(self, field: &str) -> Result<Option<Constraint>, ApiError> {
        let schema = self.json_schema.and_then(|named| named.schema).or(self.schema);
        match (self.kind, schema) {
            (Kind::Text, _) => Ok(None),
            (_, Some(schema)) => Ok(Some(Constraint::JsonSchema(schema))),
            (Kind::JsonObject, None) => Ok(Some(Constraint::JsonSchema(json!({"type": "object"})))),
            (Kind::JsonSchema, None) => {
                Err(ApiError::bad_request(format!("{field} is a json_schema without a schema")).about(field))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn a_schema_may_stand_in_either_place() {
        let read = |format: Value| from_value::<AnswerFormat>(format).unwrap().constraint("response_format");
        let schema = json!({"type": "array"});
        for format in [
            json!({"type": "json_object", "schema": schema}),
            json!({"type": "json_schema", "schema": schema}),
            json!({"type": "json_schema", "json_schema": {"name": "list", "schema": schema}}),
        ] {
            assert_eq!(read(format).unwrap(), Some(Constraint::JsonSchema(schema.clone())));
        }
        assert_eq!(read(json!({"type": "text"})).unwrap(), None);
        let object = Constraint::JsonSchema(json!({"type": "object"}));
        assert_eq!(read(json!({"type": "json_object"})).unwrap(), Some(object));
        let error = read(json!({"type": "json_schema"})).unwrap_err();
        assert_eq!(error.message, "response_format is a json_schema without a schema");
    }
}
