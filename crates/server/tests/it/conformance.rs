//! Responses match the OpenAPI document: every response that a test waits for is checked.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use boon::{Compiler, SchemaIndex, Schemas};
use hone_server::openapi_document;
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi_document("1.2.3"));

/// The compiled schemas, by operation and status.
static SCHEMAS: LazyLock<Mutex<HashMap<String, Arc<Schema>>>> = LazyLock::new(Mutex::default);

/// A JSON schema that values are checked with.
pub(crate) struct Schema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl Schema {
    pub(crate) fn new(schema: Value) -> Schema {
        let (name, mut compiler, mut schemas) = ("test:///schema", Compiler::new(), Schemas::new());
        compiler.add_resource(name, schema).unwrap();
        let root = compiler.compile(name, &mut schemas).unwrap();
        Schema { schemas, root }
    }

    #[track_caller]
    fn check(&self, place: &str, value: &Value) {
        if let Err(error) = self.schemas.validate(value, self.root) {
            panic!("{place}: {error:#} of {value}");
        }
    }
}

/// Checks a response to a request. A method that the document does not know may only be refused.
#[track_caller]
pub(crate) fn check(request: &str, status: u16, kind: &str, body: &str) {
    let mut words = request.split([' ', '?']);
    let (method, path) = (words.next().unwrap().to_lowercase(), words.next().unwrap());
    let Some(template) = template_of(path) else { return };
    let Some(operation) = DOCUMENT["paths"][&template].get(&method) else {
        return assert_eq!(status, 405, "{method} {path} is not documented");
    };
    let place = format!("{method} {path} {status}");
    let response = operation["responses"].get(status.to_string());
    let response = response.unwrap_or_else(|| panic!("{place} is not documented: {body}"));
    let kind = kind.split(';').next().unwrap();
    let Some(content) = response.get("content") else { return assert_eq!(body, "", "{place} has a body") };
    let shape = content.get(kind).unwrap_or_else(|| panic!("{place} with {kind:?} is not documented"));
    if kind == "application/json" {
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{place}: {error} in {body}"));
        schema(format!("{method} {template} {status}"), &shape["schema"]).check(&place, &body);
    }
}

/// The path template in the document for a path.
fn template_of(path: &str) -> Option<String> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let matches = |template: &&String| {
        // A model's name may hold slashes.
        let n_parts = if template.as_str() == "/v1/models/{name}" { 4 } else { usize::MAX };
        let (parts, asked) = (template.split('/'), path.splitn(n_parts, '/'));
        parts.clone().count() == asked.clone().count()
            && parts.zip(asked).all(|(part, asked)| part == asked || part.starts_with('{') && !asked.is_empty())
    };
    // A path without parameters comes first.
    paths.keys().filter(matches).min_by_key(|template| template.matches('{').count()).cloned()
}

fn schema(place: String, schema: &Value) -> Arc<Schema> {
    let mut schemas = SCHEMAS.lock().unwrap();
    let compile = || Arc::new(Schema::new(json!({"allOf": [schema], "components": DOCUMENT["components"]})));
    Arc::clone(schemas.entry(place).or_insert_with(compile))
}
