//! Response shapes, as JSON schemas.

use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, Schema};

/// Declares types that stand for the shapes of responses in the OpenAPI document. They have no values: responses are
/// written as JSON.
macro_rules! documented {
    ($($(#[doc = $text:literal])* $name:ident = $shape:expr;)*) => {$(
        $(#[doc = $text])*
        pub(crate) enum $name {}

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::shapes::schema($shape)
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

pub(crate) use documented;

documented! {
    /// An event of a stream.
    ServerSentEvent = open([("data", text())]);
    /// The contents are ignored.
    EmptyBody = map(anything());
}

/// A path in OpenAPI's notation, which has no parameters that may hold slashes.
pub(crate) fn template(path: &str) -> String {
    path.replace("{*", "{")
}

/// The schema of a shape.
pub(crate) fn schema(mut shape: Value) -> RefOr<Schema> {
    name_any(&mut shape);
    RefOr::T(serde_json::from_value(shape).unwrap_or_else(|_| Schema::Object(Object::default())))
}

/// Gives the shapes of any value the form in which utoipa reads them.
fn name_any(shape: &mut Value) {
    let Some(keys) = shape.as_object_mut() else { return };
    if keys.is_empty() {
        keys.insert("type".to_owned(), Value::Null);
    }
    for key in ["items", "additionalProperties"] {
        keys.get_mut(key).into_iter().for_each(name_any);
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        keys.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(name_any);
    }
    keys.get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
        .for_each(|(_, shape)| name_any(shape));
}

/// An object with these keys, and possibly some of the optional ones.
pub(crate) fn object<'a>(
    required: impl IntoIterator<Item = (&'a str, Value)>,
    optional: impl IntoIterator<Item = (&'a str, Value)>,
) -> Value {
    let mut shape = open(required);
    if let Some(properties) = shape["properties"].as_object_mut() {
        properties.extend(optional.into_iter().map(|(name, shape)| (name.to_owned(), shape)));
    }
    shape["additionalProperties"] = json!(false);
    shape
}

/// An object with these keys, and any others.
pub(crate) fn open<'a>(required: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let properties: Map<String, Value> = required.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect();
    let names: Vec<&String> = properties.keys().collect();
    json!({"type": "object", "properties": properties, "required": names})
}

/// A string.
pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// One of these strings.
pub(crate) fn one_of(texts: &[&str]) -> Value {
    json!({"type": "string", "enum": texts})
}

/// A number.
pub(crate) fn number() -> Value {
    json!({"type": "number"})
}

/// A whole number.
pub(crate) fn whole() -> Value {
    json!({"type": "integer"})
}

/// A boolean.
pub(crate) fn flag() -> Value {
    json!({"type": "boolean"})
}

/// Null.
pub(crate) fn nothing() -> Value {
    json!({"type": "null"})
}

/// Any value.
pub(crate) fn anything() -> Value {
    json!({})
}

/// A value or null.
pub(crate) fn nullable(shape: Value) -> Value {
    json!({"oneOf": [nothing(), shape]})
}

/// A list.
pub(crate) fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

/// An object with any keys.
pub(crate) fn map(of: Value) -> Value {
    json!({"type": "object", "additionalProperties": of})
}
