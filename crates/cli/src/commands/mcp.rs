//! `hone mcp`: hone's abilities as tools of another program's model, over stdin and stdout.
//!
//! The program that starts it speaks the Model Context Protocol. Only that is written to stdout; everything else goes
//! to stderr. It ends when its stdin does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hone_app::App;
use hone_app::judging::ServedJudges;
use hone_server::{McpParts, serve_mcp};

use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Time limit for unneeded threads to end.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// Serves until stdin ends.
///
/// # Errors
/// When the engine cannot be started, or the program does not speak the protocol.
pub(crate) fn run(app: &Invocation) -> anyhow::Result<Outcome> {
    let generator = app.generator()?;
    let judges = Arc::new(ServedJudges::configured(app, Arc::clone(&generator)));
    let app_of_server = App::with_config(app, app.config.clone());
    let parts = McpParts {
        app: app_of_server,
        generator,
        judges,
        memory: app.served_memory(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the threads of the server")?;
    let served = runtime.block_on(serve_mcp(parts, tokio::io::stdin(), tokio::io::stdout()));
    // A verdict without a waiting client does not delay the end.
    runtime.shutdown_timeout(LAST_CHANCE);
    served.map(|()| Outcome::Done).map_err(anyhow::Error::msg)
}
