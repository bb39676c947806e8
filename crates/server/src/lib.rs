//! The HTTP server: the APIs that clients already speak, hone's own API, and the web page.
//!
//! A request becomes a question on the bus, like one from the terminal: it is asked through its own
//! [`Asker`](hone_agents::Asker) and folded by an [`Exchange`](hone_agents::Exchange). So the same agents answer,
//! remember and grade it. When a client disconnects, its asker is dropped, which ends the answer within one token.
//!
//! The server is safe on a machine that runs a browser: its guard refuses requests from foreign pages and for foreign
//! names.

mod answer_format;
mod answering;
mod anthropic;
mod bodies;
mod clients;
mod connections;
mod conversation;
mod counting;
mod decisions;
mod documents;
mod effort;
mod embedding;
mod error;
mod guard;
mod highlighting;
mod hone;
mod hub;
mod markup;
mod mcp;
mod metrics;
mod ollama;
mod openai;
mod openapi;
mod operators;
mod page;
mod pulls;
mod requests;
mod rerank;
mod sampling;
mod shapes;
mod streams;
mod systemone;
mod text;
mod threads;
mod tool_choice;
mod worker_metrics;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use hone_agents::Expected;
use hone_app::config::ServerSettings;
use hone_app::conversations::{Conversations, OwnedConversations};
use hone_app::judging::ServedJudges;
use hone_app::models::{ModelError, ModelKind, Models};
use hone_app::{App, ServedMemory};
use hone_bus::Bus;
use hone_judging::Decider;
use hone_protocol::{Generate, SamplingOptions};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

pub use answering::API_SENDER;
use answering::Durability;
use clients::{Client, ClientStreams};
use connections::Limits;
use documents::PdfTexts;
use error::ApiError;
pub use highlighting::{CodeHighlighter, WordKind};
use hone::Sessions;
use hub::Hub;
pub use mcp::{McpParts, serve_mcp};
use metrics::Metrics;
use openai::{KeptResponses, RunningResponses};
pub use openapi::openapi_document;
use pulls::Pulls;
use threads::apart;
pub use worker_metrics::serve_worker_metrics;

/// Retry delay for a client that found no room.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Time limit for telling clients that the server has ended their answers.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Polling interval for the end of the last answer during shutdown.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum number of text batches embedded concurrently.
const MOST_EMBEDDED_BATCHES: usize = 2;
/// Maximum number of threads that wait for files or a model.
const MOST_LOOKUPS: usize = 16;

/// The parts of a server.
pub struct ServerParts {
    /// The configuration, the data folder, and other facts about the program.
    pub app: App,
    /// The bus of the agents that answer.
    pub bus: Bus,
    /// The events that follow every question if nothing goes wrong.
    pub expected: Expected,
    /// The models.
    pub models: Arc<dyn Models>,
    /// The generator of the agents: it counts the tokens of prompts.
    pub generator: Arc<dyn Generate>,
    /// The folder for responses that clients may refer to later.
    pub responses: PathBuf,
    /// The memory, if answers are remembered.
    pub memory: Option<ServedMemory>,
    /// The saved conversations of each owner.
    pub conversations: OwnedConversations,
    /// The judges that grade and compare clients' answers.
    pub judges: Arc<ServedJudges>,
    /// The default sampling options of an answer.
    pub sampling: SamplingOptions,
    /// The default token limit of an answer.
    pub max_tokens: Option<usize>,
    /// Stop strings for the page's answers.
    pub stop: Vec<String>,
    /// The version of the program.
    pub version: &'static str,
}

/// The state shared by all requests.
struct Shared {
    parts: ServerParts,
    settings: ServerSettings,
    pulls: Arc<Pulls>,
    metrics: Metrics,
    /// Finished responses.
    responses: KeptResponses,
    /// The OpenAPI document.
    document: Value,
    /// Responses in progress.
    running: RunningResponses,
    /// Room for questions in progress.
    room: Arc<Semaphore>,
    /// The streams of each client.
    streams: Arc<ClientStreams>,
    /// Tracks whether memory stores answers.
    durability: Arc<Durability>,
    /// The decider, with its knowledge of the models.
    decider: Decider,
    /// The texts of PDFs that clients have sent.
    pdf_texts: Arc<PdfTexts>,
    /// Turns at the embedder.
    embedding: Arc<Semaphore>,
    /// The turn at the rerankers, each of which uses all processors.
    reranking: Arc<Semaphore>,
    /// Turns for lookups of models.
    lookups: Arc<Semaphore>,
    /// Whether new questions are refused.
    is_stopping: AtomicBool,
    /// Becomes true once the time for answers in progress is over.
    is_ending: watch::Sender<bool>,
    /// The bus messages for clients.
    hub: Hub,
    /// The sessions of the page's conversations.
    sessions: Arc<Sessions>,
}

impl Shared {
    /// The state of a server that has served nothing yet.
    fn new(settings: ServerSettings, parts: ServerParts) -> Shared {
        Shared {
            document: openapi_document(parts.version),
            room: Arc::new(Semaphore::new(settings.most_questions)),
            streams: Arc::new(ClientStreams::new(settings.most_streams)),
            durability: Arc::default(),
            decider: Decider::default(),
            pdf_texts: Arc::default(),
            embedding: Arc::new(Semaphore::new(MOST_EMBEDDED_BATCHES)),
            reranking: Arc::new(Semaphore::new(1)),
            lookups: Arc::new(Semaphore::new(MOST_LOOKUPS)),
            responses: KeptResponses::new(parts.responses.clone()),
            running: RunningResponses::default(),
            parts,
            settings,
            pulls: Arc::new(Pulls::new()),
            metrics: Metrics::new(),
            hub: Hub::new(),
            sessions: Arc::default(),
            is_stopping: AtomicBool::new(false),
            is_ending: watch::Sender::new(false),
        }
    }

    /// Takes a place among the questions in progress.
    ///
    /// # Errors
    /// When all are taken, or the server is stopping.
    fn take_room(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.check_serving()?;
        take_place(&self.room)
    }

    /// The number of questions in progress, including waiting ones.
    fn n_questions(&self) -> usize {
        self.settings.most_questions.saturating_sub(self.room.available_permits())
    }

    /// Waits for the next turn at the embedder.
    ///
    /// # Errors
    /// Never while the server exists.
    async fn embedding_turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        turn(&self.embedding).await
    }

    /// Waits for the next turn at the rerankers.
    ///
    /// # Errors
    /// Never while the server exists.
    async fn reranking_turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        turn(&self.reranking).await
    }

    /// Checks that the server still takes questions.
    ///
    /// # Errors
    /// When the server is stopping.
    fn check_serving(&self) -> Result<(), ApiError> {
        match self.is_stopping.load(Ordering::Relaxed) {
            true => Err(ApiError::overloaded("the server is stopping", RETRY_AFTER)),
            false => Ok(()),
        }
    }

    /// Refuses new questions, and waits until those in progress have ended.
    async fn stop_asking(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // Taking all places would be counted as that many questions.
        while self.n_questions() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the answers in progress: their clients are told, and the page's conversations keep the partial answers.
    fn end_answers(&self) {
        self.is_ending.send_replace(true);
        self.sessions.stop_all();
    }

    /// Waits until the server ends the answers in progress.
    fn end_of_answers(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let mut is_ending = self.is_ending.subscribe();
        async move {
            if is_ending.wait_for(|is_ending| *is_ending).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// The saved conversations of a client.
    fn conversations_of(&self, client: Client) -> Arc<Conversations> {
        self.parts.conversations.of(client.owner())
    }

    /// The model that a request names, or the default one if it names none.
    fn named_or_default(&self, name: String) -> String {
        if name.is_empty() { self.parts.models.default_name() } else { name }
    }

    /// Checks that a client may ask the model of this name.
    ///
    /// # Errors
    /// When it is not installed, or does not answer questions.
    fn check_model(&self, name: &str) -> Result<(), ApiError> {
        match self.parts.models.kind(name) {
            Some(ModelKind::Generator) => Ok(()),
            Some(ModelKind::Embedder) => {
                let reason = "turns texts into vectors and does not answer: send it to /v1/embeddings";
                Err(ApiError::bad_request(format!("the model {name:?} {reason}")).about("model"))
            }
            Some(ModelKind::Reranker) => {
                let reason = "scores texts and does not answer: send it to /v1/rerank";
                Err(ApiError::bad_request(format!("the model {name:?} {reason}")).about("model"))
            }
            None => Err(ApiError::no_such_model(format!("the model {name:?} is not installed"))),
        }
    }

    /// Works with the generator on a separate thread, which holds `n_places` places among the questions in progress.
    /// The work learns through its second argument that its client is gone or the server stops.
    ///
    /// # Errors
    /// When there is no room, or the work fails.
    async fn generated<T: Send + 'static>(
        &self,
        n_places: usize,
        work: impl FnOnce(&dyn Generate, &dyn Fn() -> bool) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        // A request that has more to ask than there are places takes all of them.
        let n_places = n_places.min(self.settings.most_questions);
        let room = (0..n_places).map(|_| self.take_room()).collect::<Result<Vec<_>, _>>()?;
        let (generator, is_ending) = (Arc::clone(&self.parts.generator), self.is_ending.subscribe());
        let waiting = Waiting::default();
        let is_gone = Arc::clone(&waiting.0);
        let work = move || {
            let _room = room;
            work(&*generator, &|| is_gone.load(Ordering::Relaxed) || *is_ending.borrow())
        };
        let done = apart(work).await?;
        drop(waiting);
        done
    }

    /// Looks something up on a thread that may block on files.
    ///
    /// # Errors
    /// When the lookup fails.
    async fn on_models<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Models) -> Result<T, ModelError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = turn(&self.lookups).await?;
        let models = Arc::clone(&self.parts.models);
        let work = move || {
            let _turn = turn;
            look(&*models)
        };
        apart(work).await?.map_err(ApiError::from)
    }
}

/// Sets its flag when it is dropped along with the future of a request whose work continues on another thread.
#[derive(Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes a place if one is free.
///
/// # Errors
/// When all are taken.
fn take_place(room: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    Arc::clone(room).try_acquire_owned().map_err(|_| ApiError::busy(RETRY_AFTER))
}

async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    Arc::clone(turns).acquire_owned().await.map_err(failed)
}

fn failed(error: impl std::error::Error) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// How many clients may wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4096;

/// A listening server.
pub struct Server {
    main: Port,
    /// The port for Ollama's clients.
    compat: Option<Port>,
    shared: Arc<Shared>,
}

/// A listening socket.
struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    fn bind(address: SocketAddr) -> std::io::Result<Port> {
        Port::of(listen(address)?)
    }

    /// A socket that is already listening.
    fn inherited(listener: std::net::TcpListener) -> std::io::Result<Port> {
        listener.set_nonblocking(true)?;
        Port::of(TcpListener::from_std(listener)?)
    }

    fn of(listener: TcpListener) -> std::io::Result<Port> {
        let address = listener.local_addr()?;
        Ok(Port { listener, address })
    }
}

/// Listens with a queue for many simultaneous clients: a client that finds it full waits a second before it tries
/// again.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows it would let another program take the address.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Server {
    /// Listens on the configured addresses; `inherited` is a socket that is already listening, in place of the main
    /// one.
    ///
    /// # Errors
    /// When an address cannot be used; the message names it.
    pub async fn bind(
        settings: ServerSettings,
        inherited: Option<std::net::TcpListener>,
        parts: ServerParts,
    ) -> std::io::Result<Server> {
        let named = |address: SocketAddr| {
            move |error: std::io::Error| {
                std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
            }
        };
        let main = inherited.map_or_else(|| Port::bind(settings.listen), Port::inherited);
        let main = main.map_err(named(settings.listen))?;
        let compat = match settings.compat_address() {
            Some(address) => Some(Port::bind(address).map_err(named(address))?),
            None => None,
        };
        Ok(Server { main, compat, shared: Arc::new(Shared::new(settings, parts)) })
    }

    /// The server's main address.
    pub fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// The additional address for Ollama's clients.
    pub fn compat_address(&self) -> Option<SocketAddr> {
        self.compat.as_ref().map(|port| port.address)
    }

    /// Serves until `stop` becomes true. Answers in progress then have [`ServerSettings::drain`] to end; new questions
    /// are refused, and connections as soon as the last answer has ended. Remaining answers then end with an error.
    pub async fn serve(self, stop: watch::Receiver<bool>) {
        let Server { main, compat, shared } = self;
        let drain = shared.settings.drain.unwrap_or_default();
        let _following = metrics::follow(&shared);
        let (hub, mailbox) = (Arc::clone(&shared), Hub::mailbox(&shared.parts.bus));
        let hub_stop = stop.clone();
        if let Some(memory) = &shared.parts.memory {
            Hub::follow_log(Arc::clone(&shared), memory.store.clone(), stop.clone());
        }
        let listening = tokio::spawn(async move { hub.hub.listen(mailbox, hub_stop).await });
        let routes = Router::from(openapi::routes());
        let main_routes = routes.clone().merge(page::routes());
        let main = serve_port(main, main_routes, Arc::clone(&shared), stop.clone());
        let compat = async {
            if let Some(port) = compat {
                let routes = routes.merge(operators::root_of_compat_port());
                serve_port(port, routes, Arc::clone(&shared), stop.clone()).await;
            }
        };
        let mut ports = pin!(async { tokio::join!(main, compat) });
        tokio::select! {
            _ = &mut ports => {}
            () = drained(stop.clone(), drain) => {
                shared.end_answers();
                let _ = timeout(LAST_WORDS, ports).await;
            }
        }
        listening.abort();
    }
}

/// Serves one socket until the server stops.
async fn serve_port(port: Port, routes: Router<Arc<Shared>>, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let router = layered(routes, &shared, port.address);
    let ServerSettings { most_connections, patience, .. } = shared.settings;
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
        shared.stop_asking().await;
    };
    connections::serve(port.listener, router, Limits { most_connections, patience }, stopped).await;
}

/// Completes when the time for answers in progress is over.
async fn drained(mut stop: watch::Receiver<bool>, drain: Duration) {
    let _ = stop.wait_for(|stop| *stop).await;
    tokio::time::sleep(drain).await;
}

/// The routes of a port, behind the layers that every request passes.
fn layered(routes: Router<Arc<Shared>>, shared: &Arc<Shared>, address: SocketAddr) -> Router {
    let guarded = guard::Guarded { shared: Arc::clone(shared), address };
    routes
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(shared), bodies::read))
        .layer(from_fn_with_state(guarded, guard::check))
        .layer(from_fn(error::in_the_apis_form))
        .layer(from_fn_with_state(Arc::clone(shared), metrics::count))
        .with_state(Arc::clone(shared))
}
