//! `hone serve`: the same agents as those of the terminal, over HTTP.

mod devices;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hone_agents::{Expected, Load};
use hone_app::config::{KeyHash, ServerSettings};
use hone_app::estimates::Limits;
use hone_app::judging::{ServedJudges, background_critic};
use hone_app::machine::Machine;
use hone_app::models::ServedModels;
use hone_app::running::VisibleEngine;
use hone_app::{App, ServedMemory, Stack, StackOptions};
use hone_protocol::hexadecimal;
use hone_server::{Server, ServerParts};
use listenfd::ListenFd;
use tokio::sync::watch;

use crate::arguments::ServeArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Time limit for unneeded threads to end.
const LAST_CHANCE: Duration = Duration::from_secs(1);
/// Time limit for the engine to save its computed state.
const SAVING: Duration = Duration::from_secs(20);
/// The exit code of a process that a second Ctrl-C ends.
const INTERRUPTED: i32 = 130;

/// Serves until SIGTERM or Ctrl-C.
///
/// # Errors
/// When the address cannot be used, or the agents cannot be started.
pub(crate) fn run(app: &Invocation, arguments: &ServeArguments) -> anyhow::Result<Outcome> {
    if arguments.new_key {
        return new_key(app);
    }
    let app = &app.with_model_of_fleet()?;
    app.report_to_fleet()?;
    let inherited = inherited()?;
    let mut settings = app.config.server.clone();
    if let Some(listener) = &inherited {
        settings.listen = listener.local_addr().context("the service manager's socket has no address")?;
    }
    settings.check().map_err(|invalid| usage(invalid.to_string()))?;
    app.obtain(&app.config.engine.model)?;
    // Measured now, while nothing is computed, for the page's list of models.
    Limits::here(app, &Machine::look());
    let (stack, engine) = app.stack_with_engine(StackOptions {
        grades: app.config.chat.grade && !arguments.no_grade,
        respondent_b: Some(respondent_b(app, &settings)?),
        memory: None,
        grades_due: app.config.chat.grade && !arguments.no_grade,
        works_off_backlog: app.config.chat.grade_due && !arguments.no_grade,
        critic: (!arguments.no_grade).then_some(background_critic),
        keeps_prefix: app.config.chat.save,
        load: Load { most_answers: settings.most_answers, most_questions: settings.most_questions },
    })?;
    let lending = engine.lend(app.data_folder(), app.engine_settings(), Arc::clone(app.shared_embedder()));
    let parts = parts(app, &stack, &engine)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the server's threads")?;
    runtime.block_on(async {
        let server = Server::bind(settings, inherited, parts).await?;
        app.output.print_line(&format!("hone serves on http://{}", server.address()))?;
        if let Some(address) = server.compat_address() {
            app.output.print_line(&format!("and for clients of Ollama on http://{address}"))?;
        }
        if let Some(address) = devices::reachable(server.address()) {
            let link = format!("http://{address}");
            app.output.print_line(&format!("and for other devices, with a key, on {link}"))?;
            app.output.print_black_on_white(&devices::qr_code(&link)?)?;
        }
        if arguments.open {
            open_page(app, server.address());
        }
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(stop_on_signals(stop));
        server.serve(stopped).await;
        anyhow::Ok(())
    })?;
    // A download, or a batch that is being embedded, does not delay the end.
    runtime.shutdown_timeout(LAST_CHANCE);
    // The work of the agents is cancelled, so that the engine can save its computed state.
    drop((lending, stack));
    engine.close(SAVING);
    Ok(Outcome::Done)
}

/// The parts of the server.
fn parts(app: &Invocation, stack: &Stack, engine: &Arc<VisibleEngine>) -> anyhow::Result<ServerParts> {
    Ok(ServerParts {
        app: App::with_config(app, app.config.clone()),
        bus: stack.bus().clone(),
        // A second answer is asked for with the question.
        expected: Expected { respondent_b: false, ..stack.expected() },
        models: Arc::new(ServedModels::new(app, Arc::clone(engine))?),
        generator: Arc::clone(stack.generator()),
        responses: app.data_folder().join("responses"),
        memory: stack.store().cloned().map(|store| ServedMemory { store, recaller: stack.recaller().cloned() }),
        conversations: app.conversations(),
        judges: Arc::new(ServedJudges::configured(app, Arc::clone(stack.generator()))),
        sampling: app.config.sampling.options(),
        max_tokens: app.config.sampling.max_tokens,
        stop: app.config.sampling.stop.clone(),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// The socket on which a service manager has listened until now and started this process for (systemd's socket
/// activation).
fn inherited() -> anyhow::Result<Option<TcpListener>> {
    ListenFd::from_env().take_tcp_listener(0).context("the service manager's socket is not one of TCP")
}

/// Opens the page in the browser. Failing to do so does not stop the server.
fn open_page(app: &Invocation, address: SocketAddr) {
    if let Err(error) = open::that_detached(format!("http://{address}")) {
        app.output.note(&format!("the page cannot be opened in a browser: {error}"));
    }
}

/// The model and the temperature of the second respondent.
fn respondent_b(app: &Invocation, settings: &ServerSettings) -> anyhow::Result<(Option<String>, f32)> {
    let model = Some(settings.model_b.clone()).filter(|model| !model.is_empty());
    if let Some(model) = &model {
        app.obtain(model)?;
    }
    Ok((model, settings.temperature_b))
}

/// The first signal lets answers in progress end, the second ends the process.
async fn stop_on_signals(stop: watch::Sender<bool>) {
    signal().await;
    let _ = stop.send(true);
    signal().await;
    std::process::exit(INTERRUPTED);
}

/// Waits for Ctrl-C or SIGTERM.
pub(super) async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}

fn new_key(app: &Invocation) -> anyhow::Result<Outcome> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system provides no random numbers: {error}"))?;
    let key = format!("hone-{}", hexadecimal(bytes));
    let hash = KeyHash::of(&key).to_hexadecimal();
    app.output.print_line(&key)?;
    app.output.note(&format!(
        "this is the only time that it is shown; add its hash to the server's configuration (server.toml):\n  \
         key_hashes = [\"{hash}\"]"
    ));
    let address = devices::reachable(app.config.server.listen).filter(|_| app.output.colors_stdout());
    if let Some(address) = address {
        app.output.note("once the server knows the hash, a phone that scans this opens the page with the key:");
        app.output.print_black_on_white(&devices::qr_code(&format!("http://{address}/#key={key}"))?)?;
    }
    Ok(Outcome::Done)
}
