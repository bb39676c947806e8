//! The JSON schema that a tool's arguments have to fit.

use std::error::Error;
use std::fmt;

use boon::{CompileError, Compiler, SchemaIndex, Schemas, UrlLoader};
use serde_json::Value;

/// The name by which the schema refers to itself.
const NAME: &str = "tool:///parameters";

/// A compiled schema. Its patterns take time linear in the text.
pub(super) struct ArgumentsSchema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl ArgumentsSchema {
    /// # Errors
    /// If the schema is not valid, or refers to another document.
    pub(super) fn new(schema: &Value) -> Result<ArgumentsSchema, Box<CompileError>> {
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(NoDocuments));
        compiler.add_resource(NAME, schema.clone())?;
        let mut schemas = Schemas::new();
        let root = compiler.compile(NAME, &mut schemas)?;
        Ok(ArgumentsSchema { schemas, root })
    }

    pub(super) fn allows(&self, arguments: &Value) -> bool {
        self.schemas.validate(arguments, self.root).is_ok()
    }
}

impl fmt::Debug for ArgumentsSchema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ArgumentsSchema").finish_non_exhaustive()
    }
}

/// Loads no documents: a schema comes from an untrusted client and must not read files.
struct NoDocuments;

impl UrlLoader for NoDocuments {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        Err(format!("a tool's schema may not refer to {url}").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_fit_or_do_not() {
        let name = json!({"type": "string", "pattern": "^[a-z]+$"});
        let schema = json!({"type": "object", "properties": {"name": {"$ref": "#/$defs/name"}}, "required": ["name"],
            "$defs": {"name": name}});
        let schema = ArgumentsSchema::new(&schema).unwrap();
        assert!(schema.allows(&json!({"name": "ada"})));
        assert!(!schema.allows(&json!({"name": "7"})));
        assert!(!schema.allows(&json!({})));
    }

    #[test]
    fn a_schema_reads_no_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{}").unwrap();
        let url = format!("file://{}", file.path().display());
        let error = ArgumentsSchema::new(&json!({"$ref": url})).unwrap_err();
        assert!(error.to_string().contains("file://"), "{error}");
    }
}
