//! Extracts from exchanges, and the form in which the model writes them.

use serde::Deserialize;
use serde_json::json;

use crate::settings::shortened;

/// Limits on extracted texts.
const LONGEST_INTENT: usize = 80;
const LONGEST_ENTITY: usize = 60;
const MOST_ENTITIES: usize = 8;

/// The intent of an exchange, and the entities in it.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Extract {
    pub(crate) intent: String,
    pub(crate) entities: Vec<String>,
}

/// The schema that constrains the model.
pub(crate) fn schema() -> serde_json::Value {
    let text = |longest| json!({"type": "string", "maxLength": longest});
    json!({
        "type": "object",
        "properties": {
            "intent": text(LONGEST_INTENT),
            "entities": {"type": "array", "items": text(LONGEST_ENTITY), "maxItems": MOST_ENTITIES},
        },
        "required": ["intent", "entities"],
        "additionalProperties": false,
    })
}

/// The model's output, cleaned up and truncated.
///
/// # Errors
/// When it does not have the requested form.
pub(crate) fn parse(text: &str) -> Result<Extract, String> {
    let extract: Extract = serde_json::from_str(text).map_err(|error| format!("{error} in {text:?}"))?;
    let mut entities: Vec<String> = Vec::new();
    for entity in extract.entities {
        let entity = shortened(entity.trim(), LONGEST_ENTITY);
        if !entity.is_empty() && !entities.contains(&entity) && entities.len() < MOST_ENTITIES {
            entities.push(entity);
        }
    }
    Ok(Extract { intent: shortened(extract.intent.trim(), LONGEST_INTENT), entities })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &[&str])>) {
        let seen = parse(text).ok();
        let expected = expected.map(|(intent, entities)| Extract {
            intent: intent.to_owned(),
            entities: entities.iter().map(|entity| (*entity).to_owned()).collect(),
        });
        assert_eq!(seen, expected, "{text:?}");
    }

    #[test]
    fn extracts_are_read() {
        check(
            r#"{"intent": " learn ", "entities": ["Paris", "", "Paris ", "Rome"]}"#,
            Some(("learn", &["Paris", "Rome"])),
        );
        check(r#"{"intent": "", "entities": []}"#, Some(("", &[])));
        check(r#"{"intent": "cut o"#, None);
        check("", None);
    }
}
