//! Work that would hold up the threads on which requests are read and answered.

use std::sync::LazyLock;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::failed;

/// Turns at the processor: half of its cores, and at least one.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from).div_ceil(2)));

/// Does what may wait for the disk on another thread.
///
/// # Errors
/// When it panics.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    spawn_blocking(work).await.map_err(failed)
}

/// Does what takes the processor for milliseconds or more on another thread, few such at a time. A client that leaves
/// gives up its turn.
///
/// # Errors
/// When it panics.
pub(crate) async fn computed<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let turn = TURNS.acquire().await.map_err(failed)?;
    apart(move || {
        let _turn = turn;
        work()
    })
    .await
}
