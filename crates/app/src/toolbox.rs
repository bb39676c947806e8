//! The tools of MCP servers, for the model of a chat.
//!
//! The user has named the servers in a file: programs, which run as long as the chat does, or addresses. A server's
//! errors are reported to the model, which can try something else, and to the user; they never end the chat.

mod configuration;
mod connection;
mod over_http;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use crossbeam_channel::{Receiver, bounded, select_biased};
use hone_protocol::{Tool, ToolCall};
use serde_json::Value;
use tokio::runtime::Runtime;

use self::connection::Connection;
use crate::progress::Progress;
use crate::tools::{Called, Permit, Tools};

/// Servers with their tools.
pub struct Toolbox {
    runtime: Runtime,
    servers: Vec<Arc<Connection>>,
    /// The tools, as the model knows them.
    offered: Vec<Tool>,
    /// The server of each tool, and its name there.
    origins: Vec<(usize, String)>,
    permission: Permission,
}

/// Decides whether a call may be carried out; the user may be asked.
pub type Permission = Box<dyn Fn(&ToolCall) -> anyhow::Result<Permit>>;

impl Toolbox {
    /// Starts the servers that a file names. A server that cannot be started is left out, and the user is told.
    ///
    /// # Errors
    /// When the file is not valid, or no thread can be started.
    pub fn open(file: &Path, permission: Permission, progress: &dyn Progress) -> anyhow::Result<Toolbox> {
        let named = configuration::read(file)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tools")
            .enable_all()
            .build()
            .context("cannot start the thread of the MCP servers")?;
        let (servers, offered, origins) = (Vec::new(), Vec::new(), Vec::new());
        let mut toolbox = Toolbox { runtime, servers, offered, origins, permission };
        for (name, server) in named {
            let opened = server
                .map_err(str::to_owned)
                .and_then(|server| toolbox.runtime.block_on(Connection::open(&name, server)));
            match opened {
                Ok((connection, tools)) => toolbox.add(&name, connection, tools),
                Err(reason) => progress.note(&format!("the MCP server {name:?} is left out: {reason}")),
            }
        }
        progress.note(&match toolbox.offered.len() {
            0 => "the MCP servers have no tools".to_owned(),
            1 => "the model may call 1 tool".to_owned(),
            n_tools => format!("the model may call {n_tools} tools"),
        });
        Ok(toolbox)
    }

    fn add(&mut self, server: &str, connection: Connection, tools: Vec<rmcp::model::Tool>) {
        for tool in tools {
            self.origins.push((self.servers.len(), tool.name.to_string()));
            self.offered.push(Tool {
                name: name_for_model(server, &tool.name),
                description: tool.description.unwrap_or_default().into_owned(),
                parameters: Value::Object(tool.input_schema.as_ref().clone()),
            });
        }
        self.servers.push(Arc::new(connection));
    }

    /// The server of a tool, and the tool's name there.
    fn origin(&self, name: &str) -> Option<(Arc<Connection>, String)> {
        let place = self.offered.iter().position(|tool| tool.name == name)?;
        let (server, tool) = &self.origins[place];
        Some((Arc::clone(&self.servers[*server]), tool.clone()))
    }
}

impl Tools for Toolbox {
    fn offered(&self) -> &[Tool] {
        &self.offered
    }

    fn permit(&self, call: &ToolCall) -> anyhow::Result<Permit> {
        (self.permission)(call)
    }

    fn call(&self, call: &ToolCall, pressed: &Receiver<()>) -> Called {
        let Some((server, tool)) = self.origin(&call.name) else {
            return Called::Failed(format!("there is no tool {:?}", call.name));
        };
        let arguments = call.arguments.as_object().cloned().unwrap_or_default();
        let (done, result) = bounded(1);
        let calling = self.runtime.spawn(async move {
            // After an interrupt, the result has no receiver.
            let _ = done.send(server.call(tool, arguments).await);
        });
        select_biased! {
            recv(pressed) -> _ => {
                // The server is told that the result is no longer wanted.
                calling.abort();
                Called::Interrupted
            }
            recv(result) -> result => match result {
                Ok(Ok(text)) => Called::Said(text),
                Ok(Err(reason)) => Called::Failed(reason),
                Err(_) => Called::Failed("the call ended without a result".to_owned()),
            },
        }
    }
}

impl Drop for Toolbox {
    /// Ends the servers concurrently.
    fn drop(&mut self) {
        let closing: Vec<_> = std::mem::take(&mut self.servers)
            .into_iter()
            .filter_map(Arc::into_inner)
            .map(|server| self.runtime.spawn(server.close()))
            .collect();
        self.runtime.block_on(async {
            for closed in closing {
                // A task that panicked has already said so.
                let _ = closed.await;
            }
        });
    }
}

/// The name of a tool for the model: distinct from other servers' tools and hone's own, in letters that all models'
/// templates accept.
fn name_for_model(server: &str, tool: &str) -> String {
    let known = |letter: char| if letter.is_ascii_alphanumeric() || "_-".contains(letter) { letter } else { '_' };
    format!("{server}_{tool}").chars().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_server_is_meant() {
        assert_eq!(name_for_model("hone", "grade"), "hone_grade");
        assert_eq!(name_for_model("my files", "fs/read.é"), "my_files_fs_read__");
    }
}
