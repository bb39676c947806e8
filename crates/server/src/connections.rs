//! Connections: limits on their number, and on how long a client may stall.

mod idle;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

use self::idle::{IdleConnections, Seat};
use crate::clients::Peer;

/// The size limit of a request head, in bytes.
const MOST_HEAD: usize = 64 << 10;
/// The pause after a connection could not be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a connection may be idle before it gives way to another one.
const GRACE: Duration = Duration::from_secs(1);

/// The limits for connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Concurrent connections. A further one replaces the connection that has been idle longest; if none is idle, it
    /// waits.
    pub(crate) most_connections: usize,
    /// How long a request head may take, and how long a client may leave a response unread.
    pub(crate) patience: Option<Duration>,
}

/// Serves connections until `stop` completes, and then until the last request in progress is answered.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits.most_connections));
    let idle = Arc::new(IdleConnections::new(GRACE));
    loop {
        tokio::select! {
            (stream, peer, permit) = accept(&listener, &room, &idle) => {
                let connection = Connection { stream, peer, router: router.clone(), limits, seat: Seat::new(&idle) };
                tokio::spawn(connection.serve(graceful.watcher(), permit));
            }
            () = &mut stop => break,
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    idle: &IdleConnections,
) -> (TcpStream, Peer, Option<OwnedSemaphorePermit>) {
    let (stream, address) = loop {
        match listener.accept().await {
            Ok(accepted) => break accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    let permit = match Arc::clone(room).try_acquire_owned() {
        Ok(permit) => Some(permit),
        Err(_) => {
            let mut room = pin!(Arc::clone(room).acquire_owned());
            loop {
                if let Ok(permit) = timeout(idle.dismiss_one(), room.as_mut()).await {
                    break permit.ok();
                }
            }
        }
    };
    (stream, Peer(address.ip()), permit)
}

/// A connection to a client.
struct Connection {
    stream: TcpStream,
    peer: Peer,
    router: Router,
    limits: Limits,
    seat: Seat,
}

impl Connection {
    async fn serve(self, watcher: Watcher, permit: Option<OwnedSemaphorePermit>) {
        let _ = self.stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(self.stream);
        stream.set_write_timeout(self.limits.patience);
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.limits.patience).max_buf_size(MOST_HEAD);
        let (peer, router) = (self.peer, TowerToHyperService::new(self.router));
        let seat = &self.seat;
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            let (busy, answer) = (seat.busy(), router.call(request));
            async move { answer.await.map(|answer| answer.map(|body| busy.until_sent(body))) }
        });
        let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
        tokio::select! {
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            },
            () = seat.dismissed() => tracing::debug!(?peer, "an idle connection gives way to another one"),
        }
        drop(permit);
    }
}
