//! An engine that is lent to other processes of the same user, so that a model is in memory only once.
//!
//! Every request has its own connection. Both sides state their version, and the lender its engine's settings; then the
//! borrower sends its request, and the events of the answer come back as they arise. The end of a connection ends its
//! request.

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, select};
use hone_engine::EngineHandle;
use hone_files::frames::{receive, send};
use hone_protocol::{GenerateError, GenerateRequest, Generation, GenerationEvent, GenerationSender};
use serde::{Deserialize, Serialize};

use super::Lent;
use super::embed_request::{EmbedRequest, Embedded};
use super::listener::{Listener, addresses, connect};

/// The folder of the sockets.
const FOLDER: &str = "engines";

/// Both sides must have the same version, because requests and events are serialized types and not a stable protocol.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/2");

/// How long either side waits for the other's next message before the answer begins.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a lender waits for a borrower that does not read its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a borrower waits for vectors before it computes them itself.
const EMBED_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which a borrower checks whether its answer is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// The first message of either side.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: String,
    /// The settings of the engine that is lent; empty from a borrower.
    settings: String,
    process: u32,
}

impl Hello {
    fn new(settings: &str) -> Hello {
        Hello { version: VERSION.to_owned(), settings: settings.to_owned(), process: process::id() }
    }
}

/// A borrower's request.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Generate(Box<GenerateRequest>),
    Embed(EmbedRequest),
}

/// Lends an engine until it is dropped. Answers in progress then continue until the process ends.
pub struct Lending {
    _listener: Listener,
}

impl Lending {
    /// Starts lending.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub(super) fn open(data_folder: &Path, lent: Lent) -> io::Result<Lending> {
        let lent = Arc::new(lent);
        let listener = Listener::open(data_folder, FOLDER, move |borrower| {
            let lent = Arc::clone(&lent);
            let lend = move || {
                if let Err(error) = lend(&borrower, &lent) {
                    tracing::debug!(%error, "a borrower of the engine went away");
                }
                // Also ends the thread that waits for the borrower's departure.
                let _ = borrower.shutdown(Shutdown::Both);
            };
            if let Err(error) = thread::Builder::new().name("hone-lending".to_owned()).spawn(lend) {
                tracing::warn!(%error, "the engine cannot be lent");
            }
        })?;
        Ok(Lending { _listener: listener })
    }
}

fn lend(borrower: &UnixStream, lent: &Lent) -> io::Result<()> {
    borrower.set_read_timeout(Some(PATIENCE))?;
    borrower.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let hello: Hello = receive(borrower)?;
    send(borrower, &Hello::new(&lent.settings))?;
    if hello.version != VERSION {
        return Ok(());
    }
    match receive(borrower)? {
        Request::Generate(request) => generate(borrower, &lent.engine, *request),
        Request::Embed(request) => send(borrower, &request.answered_by(&lent.embedder)),
    }
}

fn generate(borrower: &UnixStream, engine: &EngineHandle, request: GenerateRequest) -> io::Result<()> {
    borrower.set_read_timeout(None)?;
    let gone = departure(borrower.try_clone()?)?;
    let generation = Generation::start(engine, request);
    loop {
        select! {
            recv(generation.events()) -> event => {
                let event = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
                send(borrower, &event)?;
                if matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_)) {
                    return Ok(());
                }
            }
            recv(gone) -> _ => return Ok(()),
        }
    }
}

/// A channel that is disconnected when the borrower has closed its connection.
fn departure(mut borrower: UnixStream) -> io::Result<Receiver<()>> {
    let (here, gone) = bounded(0);
    let wait = move || {
        // A borrower says nothing after its request.
        let _ = borrower.read(&mut [0]);
        drop(here);
    };
    thread::Builder::new().name("hone-borrower".to_owned()).spawn(wait)?;
    Ok(gone)
}

/// A process that lends its engine.
pub struct Lender {
    address: PathBuf,
    /// Its process id.
    pub(super) process: u32,
    /// Its engine's settings.
    pub(super) settings: String,
}

/// All processes of this version that lend an engine.
pub(super) fn lenders(data_folder: &Path) -> Vec<Lender> {
    let greet = |address: PathBuf| {
        let (_, Hello { process, settings, .. }) = greeted(&address).ok()?;
        Some(Lender { address, process, settings })
    };
    addresses(data_folder, FOLDER).into_iter().filter_map(greet).collect()
}

/// A process's answer to a request about texts.
///
/// # Errors
/// When it is gone, or does not answer in time.
pub(super) fn embedded(lender: &Lender, request: EmbedRequest) -> io::Result<Embedded> {
    let (stream, _) = greeted(&lender.address)?;
    send(&stream, &Request::Embed(request))?;
    stream.set_read_timeout(Some(EMBED_TIMEOUT))?;
    receive(&stream)
}

/// A connection to a process of this version.
fn greeted(address: &Path) -> io::Result<(UnixStream, Hello)> {
    let stream = connect(address, PATIENCE).ok_or(ErrorKind::ConnectionRefused)?;
    send(&stream, &Hello::new(""))?;
    let hello: Hello = receive(&stream)?;
    match hello.version == VERSION {
        true => Ok((stream, hello)),
        false => Err(io::Error::other(format!("it is another version of hone ({})", hello.version))),
    }
}

impl Lender {
    /// Sends a request.
    ///
    /// # Errors
    /// When the process is gone.
    pub(super) fn begin(&self, request: &GenerateRequest) -> io::Result<Generation> {
        let (stream, _) = greeted(&self.address)?;
        send(&stream, &Request::Generate(Box::new(request.clone())))?;
        stream.set_read_timeout(Some(LOOK))?;
        let (sender, generation) = Generation::channel();
        let process = self.process;
        let relay = move || {
            if let Err(error) = relay(&stream, &sender) {
                tracing::debug!(%error, "the lender of the engine is gone");
                let reason = format!("the process whose engine answered ({process}) has ended: ask again");
                sender.send(GenerationEvent::Failed(GenerateError::Failed(reason)));
            }
        };
        thread::Builder::new().name("hone-borrowing".to_owned()).spawn(relay)?;
        Ok(generation)
    }
}

/// Passes the events on until the last, or until they are no longer wanted.
fn relay(stream: &UnixStream, sender: &GenerationSender) -> io::Result<()> {
    while !sender.is_cancelled() {
        let Some(first) = first_byte(stream)? else { continue };
        stream.set_read_timeout(Some(PATIENCE))?;
        let event: GenerationEvent = receive([first].as_slice().chain(stream))?;
        stream.set_read_timeout(Some(LOOK))?;
        let is_last = matches!(event, GenerationEvent::Finished { .. } | GenerationEvent::Failed(_));
        sender.send(event);
        if is_last {
            break;
        }
    }
    Ok(())
}

/// The first byte of the next event; `None` if it has not come yet.
fn first_byte(mut stream: &UnixStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(Some(byte[0])),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
