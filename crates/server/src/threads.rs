//! Work that would block the threads that read and answer requests.

use std::sync::LazyLock;
use std::thread::available_parallelism;

use axum::http::StatusCode;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::failed;

/// Runs work that may wait for the disk on another thread.
///
/// # Errors
/// When the work panics.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    spawn_blocking(work).await.map_err(|error| {
        tracing::error!("a request failed: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed")
    })
}

/// Turns at the processor, for work that occupies it for milliseconds or more: half of its cores, and at least one.
pub(crate) struct Turns(LazyLock<Semaphore>);

/// Turns for parsing request bodies.
pub(crate) static BODIES: Turns = Turns::new();
/// Turns for rendering answers as HTML.
pub(crate) static DRAWING: Turns = Turns::new();
/// Turns for reading PDFs and other files.
pub(crate) static DOCUMENTS: Turns = Turns::new();

impl Turns {
    const fn new() -> Turns {
        Turns(LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from).div_ceil(2))))
    }

    /// Runs work on another thread in its turn. A client that leaves while it waits gives up the turn.
    ///
    /// # Errors
    /// When the work panics.
    pub(crate) async fn computed<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        within(self.0.acquire().await.map_err(failed)?, work).await
    }

    /// Runs work on another thread if a turn is free.
    ///
    /// # Errors
    /// When the work panics.
    pub(crate) async fn computed_now<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, ApiError> {
        match self.0.try_acquire() {
            Ok(turn) => within(turn, work).await.map(Some),
            Err(_) => Ok(None),
        }
    }
}

async fn within<T: Send + 'static>(
    turn: SemaphorePermit<'static>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    apart(move || {
        let _turn = turn;
        work()
    })
    .await
}
