//! The connection to the NATS server, and the streams and bucket that must exist there.

use std::error::Error;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::context::Context;
use async_nats::jetstream::kv;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, Event};
use hone_protocol::with_causes;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

use crate::error::FleetError;
use crate::settings::BusSettings;

pub(crate) const WORK: &str = "HONE_WORK";
/// The subjects of all work: `hone.work.ROLE` or `hone.work.ROLE.MODEL`, and the urgency.
pub(crate) const ALL_WORK: &str = "hone.work.>";
pub(crate) const RESULTS: &str = "HONE_RESULTS";
pub(crate) const DEAD: &str = "HONE_DEAD";
pub(crate) const WORKERS: &str = "HONE_WORKERS";

/// How long the server remembers the ids of messages.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(3600);
/// How long a worker's report of its state is valid.
pub(crate) const WORKER_LIFETIME: Duration = Duration::from_secs(15);
/// The timeout for the server's replies.
const PATIENCE: Duration = Duration::from_secs(5);
/// The delay after a failed attempt to connect: longer after each, up to the longest.
const SHORTEST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// The number of messages that one process reads ahead.
const READ_AHEAD: usize = 1024;

/// A connection to a fleet. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Fleet {
    /// Dropped first: its tasks must end before the connection does, or they would report a lost connection.
    threads: Arc<Threads>,
    pub(crate) server: Server,
}

/// The server, for tasks on the connection's own threads.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) settings: Arc<BusSettings>,
    pub(crate) jetstream: Context,
    connection: Arc<watch::Sender<bool>>,
}

/// The threads of a connection, which may be dropped anywhere.
struct Threads {
    runtime: Option<Runtime>,
    connection: Arc<watch::Sender<bool>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A connection that is closed on purpose is not lost.
        self.connection.send_replace(false);
        // Blocking is not allowed on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Fleet {
    /// Connects; if the server is unreachable, keeps trying in the background. `name` is this process's name at the
    /// server.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn begin(settings: &BusSettings, name: &str) -> Result<Fleet, FleetError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fleet")
            .enable_all()
            .build()
            .map_err(|error| FleetError::Threads(error.to_string()))?;
        let connection = Arc::new(watch::Sender::new(false));
        let connecting = async {
            let client = connect(settings, name, Arc::clone(&connection)).await?;
            Ok(async_nats::jetstream::ContextBuilder::new().timeout(PATIENCE).ack_timeout(PATIENCE).build(client))
        };
        let jetstream = runtime.block_on(connecting)?;
        let threads = Threads { runtime: Some(runtime), connection: Arc::clone(&connection) };
        let server = Server { settings: Arc::new(settings.clone()), jetstream, connection };
        Ok(Fleet { server, threads: Arc::new(threads) })
    }

    /// Connects, and creates missing streams on the server.
    ///
    /// # Errors
    /// When the server cannot be reached, or has no JetStream.
    pub fn connect(settings: &BusSettings, name: &str) -> Result<Fleet, FleetError> {
        let fleet = Fleet::begin(settings, name)?;
        let reached = async { tokio::time::timeout(PATIENCE, fleet.server.connected()).await };
        if fleet.block_on(reached).is_err() {
            return Err(fleet.block_on(connection_error(settings, name)));
        }
        fleet.block_on(fleet.server.prepare())?;
        Ok(fleet)
    }

    /// Whether the server is connected now.
    pub fn is_connected(&self) -> bool {
        self.server.is_connected()
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.threads.runtime.as_ref().expect("only dropping takes the threads").handle()
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.handle().block_on(work)
    }
}

impl Server {
    pub(crate) fn is_connected(&self) -> bool {
        *self.connection.borrow()
    }

    /// Waits until the server is connected.
    pub(crate) async fn connected(&self) {
        self.is(true).await;
    }

    /// Waits until the server is disconnected.
    pub(crate) async fn disconnected(&self) {
        self.is(false).await;
    }

    async fn is(&self, connected: bool) {
        // The sender outlives this.
        let _ = self.connection.subscribe().wait_for(|now| *now == connected).await;
    }

    /// Creates missing streams and the missing bucket. Existing ones stay as they are, whatever the settings say: an
    /// administrator may have changed them, and other homes may have other settings.
    pub(crate) async fn prepare(&self) -> Result<(), FleetError> {
        let stream = |name: &str, subjects: &str, retention, discard| Config {
            name: name.to_owned(),
            subjects: vec![subjects.to_owned()],
            retention,
            discard,
            max_age: Duration::from_secs_f64(self.settings.keep_hours * 3600.0),
            max_bytes: i64::try_from(self.settings.keep_mib << 20).unwrap_or(i64::MAX),
            duplicate_window: DUPLICATE_WINDOW.min(Duration::from_secs_f64(self.settings.keep_hours * 3600.0)),
            num_replicas: self.settings.replicas,
            ..Config::default()
        };
        let streams = [
            // Work that does not fit is refused, and stays due at its origin.
            (WORK, stream(WORK, ALL_WORK, RetentionPolicy::WorkQueue, DiscardPolicy::New)),
            (RESULTS, stream(RESULTS, "hone.results.>", RetentionPolicy::Limits, DiscardPolicy::Old)),
            (DEAD, stream(DEAD, "hone.dead.>", RetentionPolicy::Limits, DiscardPolicy::Old)),
        ];
        for (name, config) in streams {
            self.jetstream.get_or_create_stream(config).await.map_err(|error| unusable(name, &error))?;
        }
        if self.jetstream.get_key_value(WORKERS).await.is_err() {
            let bucket = kv::Config {
                bucket: WORKERS.to_owned(),
                max_age: WORKER_LIFETIME,
                num_replicas: self.settings.replicas,
                ..kv::Config::default()
            };
            self.jetstream.create_key_value(bucket).await.map_err(|error| unusable(WORKERS, &error))?;
        }
        Ok(())
    }
}

pub(crate) fn unusable(name: &'static str, error: &dyn Error) -> FleetError {
    FleetError::JetStream { name, reason: error.to_string() }
}

async fn connect(
    settings: &BusSettings,
    name: &str,
    connection: Arc<watch::Sender<bool>>,
) -> Result<async_nats::Client, FleetError> {
    let listener = Mutex::new(Listener { connection, was_connected: false, trouble: None });
    let options = options(settings, name).await?.retry_on_initial_connect().event_callback(move |event| {
        listener.lock().unwrap_or_else(PoisonError::into_inner).hear(&event);
        async {}
    });
    let servers: Vec<&str> = settings.servers().collect();
    let failed = |reason: String| FleetError::Connection { url: settings.url.clone(), reason };
    options.connect(&servers[..]).await.map_err(|error| failed(error.to_string()))
}

/// The error of one more attempt to connect, since the background attempts do not report causes.
async fn connection_error(settings: &BusSettings, name: &str) -> FleetError {
    let servers: Vec<&str> = settings.servers().collect();
    let options = match options(settings, name).await {
        Ok(options) => options,
        Err(error) => return error,
    };
    let url = settings.url.clone();
    match tokio::time::timeout(PATIENCE, options.connect(&servers[..])).await {
        Ok(Err(error)) => {
            let reason = with_causes(&error);
            match is_away(&error) {
                true => FleetError::Unreachable { url, reason },
                false => FleetError::Connection { url, reason },
            }
        }
        Ok(Ok(_)) | Err(_) => FleetError::Unreachable { url, reason: "no answer".to_owned() },
    }
}

/// Whether no server has answered. A server that is not trusted, or speaks another protocol, has.
fn is_away(error: &ConnectError) -> bool {
    let io = || error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    match error.kind() {
        ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => true,
        ConnectErrorKind::Io => io().is_some_and(|kind| {
            matches!(
                kind,
                ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::NetworkDown
                    | ErrorKind::TimedOut
                    | ErrorKind::BrokenPipe
                    | ErrorKind::UnexpectedEof
            )
        }),
        _ => false,
    }
}

/// The options of this process's connection.
async fn options(settings: &BusSettings, name: &str) -> Result<ConnectOptions, FleetError> {
    let mut options = ConnectOptions::new()
        .name(name)
        .subscription_capacity(READ_AHEAD)
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        .reconnect_delay_callback(|attempts| {
            LONGEST_DELAY.min(SHORTEST_DELAY * u32::try_from(attempts).unwrap_or(u32::MAX))
        })
        .require_tls(settings.needs_tls());
    if !settings.credentials.as_os_str().is_empty() {
        let unreadable = |error: io::Error| FleetError::Credentials {
            path: settings.credentials.display().to_string(),
            reason: error.to_string(),
        };
        options = options.credentials_file(&settings.credentials).await.map_err(unreadable)?;
    }
    if !settings.authority.as_os_str().is_empty() {
        options = options.add_root_certificates(settings.authority.clone());
    }
    Ok(options)
}

/// Records events of the connection. The log says when it is lost and when it is back.
struct Listener {
    connection: Arc<watch::Sender<bool>>,
    was_connected: bool,
    /// The last error reported.
    trouble: Option<String>,
}

impl Listener {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Connected if !self.connection.send_replace(true) => {
                (self.was_connected, self.trouble) = (true, None);
                tracing::info!("the NATS server is connected");
            }
            Event::Disconnected | Event::Closed if self.connection.send_replace(false) => {
                tracing::warn!("the NATS server is away: what other machines do for this one waits until it is back");
            }
            Event::ServerError(_) | Event::ClientError(_) => self.tell(event.to_string()),
            other => tracing::info!("the connection to the NATS server: {other}"),
        }
    }

    /// Logs an error, unless it repeats the last one. Before the first connection it is not a warning, since the caller
    /// reports it.
    fn tell(&mut self, text: String) {
        if self.trouble.as_ref() == Some(&text) {
            return;
        }
        match self.was_connected {
            true => tracing::warn!("the NATS server: {text}"),
            false => tracing::info!("the NATS server: {text}"),
        }
        self.trouble = Some(text);
    }
}
