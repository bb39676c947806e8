//! The file that names MCP servers, in the form that other programs share: an object `mcpServers`. Its other contents
//! are for other programs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use crate::usage;

/// The location of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// It is started as a process, and speaks over its stdin and stdout.
    Process {
        command: String,
        args: Vec<String>,
        /// Variables of its environment, in addition to those of this process.
        env: BTreeMap<String, String>,
    },
    /// It runs at an address, and speaks over HTTP.
    Address {
        url: String,
        /// Headers that it expects with every message, such as a key.
        headers: BTreeMap<String, String>,
    },
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
struct WrittenFile {
    #[serde(rename = "mcpServers")]
    servers: BTreeMap<String, WrittenServer>,
}

#[derive(Debug, Deserialize)]
struct WrittenServer {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// A server with its name, or the reason why it cannot be used.
pub(super) type NamedServer = (String, Result<Server, &'static str>);

/// Reads the servers of a file.
///
/// # Errors
/// When the file cannot be read, or does not have this form.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<NamedServer>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file: WrittenFile = serde_json::from_str(&text).map_err(|error| {
        let form = r#"{"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}}}"#;
        usage(format!("{} does not name MCP servers as {form} does: {error}", path.display()))
    })?;
    Ok(file.servers.into_iter().map(|(name, server)| (name, server.place())).collect())
}

impl WrittenServer {
    fn place(self) -> Result<Server, &'static str> {
        let WrittenServer { command, args, env, url, headers } = self;
        match (command, url) {
            (Some(command), None) => Ok(Server::Process { command, args, env }),
            (None, Some(url)) => Ok(Server::Address { url, headers }),
            (Some(_), Some(_)) => Err("it has a command and a url: give it one of them"),
            (None, None) => Err("it has neither a command nor a url"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The servers of a file, or the error without its path.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        std::fs::write(&path, text).unwrap();
        let read = match read(&path) {
            Ok(servers) => format!("{servers:?}"),
            Err(error) => format!("{error:#}").replace(path.to_str().unwrap(), "FILE"),
        };
        assert!(read.contains(expected), "{read}");
    }

    #[test]
    fn servers_are_named_as_in_other_programs() {
        check(r#"{"mcpServers": {}}"#, "[]");
        check(
            r#"{"theme": "dark", "mcpServers": {"a": {"type": "stdio", "command": "x", "args": ["-y"], "env": {"K": "v"}}}}"#,
            r#"[("a", Ok(Process { command: "x", args: ["-y"], env: {"K": "v"} }))]"#,
        );
        check(r#"{"mcpServers": {"a": {}}}"#, "[(\"a\", Err(\"it has neither a command nor a url\"))]");
        check(r#"{"mcpServers": {"a": {"command": "x", "url": "y"}}}"#, "has a command and a url");
        check(
            r#"{"mcpServers": {"a": {"type": "http", "url": "y", "headers": {"K": "v"}}}}"#,
            r#"[("a", Ok(Address { url: "y", headers: {"K": "v"} }))]"#,
        );
        check(r#"{"servers": {}}"#, "FILE does not name MCP servers as {\"mcpServers\": ");
        check("", "EOF while parsing");
    }
}
