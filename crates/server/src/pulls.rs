//! Model downloads: clients that pull the same model share one download, which ends when the last of them leaves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hone_app::models::{ModelError, Models, PullStep};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::error::ApiError;

/// Maximum number of concurrent downloads.
const MOST_PULLS: usize = 4;
/// Retry delay for a client that found no room.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The state of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PullState {
    /// The download continues.
    Step(PullStep),
    /// The download has ended.
    Ended(Result<(), ModelError>),
}

/// The downloads in progress, by reference.
pub(crate) struct Pulls {
    running: Mutex<HashMap<String, watch::Sender<PullState>>>,
    room: Arc<Semaphore>,
}

impl Pulls {
    /// No downloads yet.
    pub(crate) fn new() -> Pulls {
        Pulls { running: Mutex::default(), room: Arc::new(Semaphore::new(MOST_PULLS)) }
    }

    /// Joins the download of a model, or starts it. It ends when every receiver is dropped.
    ///
    /// # Errors
    /// When the limit on concurrent downloads is reached.
    pub(crate) fn join(
        self: &Arc<Self>,
        models: &Arc<dyn Models>,
        reference: &str,
    ) -> Result<watch::Receiver<PullState>, ApiError> {
        let mut running = self.lock();
        // A download without receivers is about to end.
        if let Some(sender) = running.get(reference).filter(|sender| sender.receiver_count() > 0) {
            return Ok(sender.subscribe());
        }
        let full = |_| ApiError::overloaded("too many models are being pulled: try again later", RETRY_AFTER);
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(full)?;
        let (sender, receiver) = watch::channel(PullState::Step(PullStep::Remark("pulling manifest".to_owned())));
        running.insert(reference.to_owned(), sender.clone());
        let (pulls, models, reference) = (Arc::clone(self), Arc::clone(models), reference.to_owned());
        let pull = Pull { pulls, models, reference, sender, _room: room };
        let is_cancelled = Arc::new(AtomicBool::new(false));
        tokio::spawn(cancel_when_alone(pull.sender.clone(), Arc::clone(&is_cancelled)));
        tokio::task::spawn_blocking(move || pull.run(is_cancelled));
        Ok(receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<PullState>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the flag when the last client has left.
async fn cancel_when_alone(sender: watch::Sender<PullState>, is_cancelled: Arc<AtomicBool>) {
    sender.closed().await;
    is_cancelled.store(true, Ordering::Relaxed);
}

/// A download in progress.
struct Pull {
    pulls: Arc<Pulls>,
    models: Arc<dyn Models>,
    reference: String,
    sender: watch::Sender<PullState>,
    _room: OwnedSemaphorePermit,
}

impl Pull {
    fn run(self, is_cancelled: Arc<AtomicBool>) {
        let mut report = |step| drop(self.sender.send(PullState::Step(step)));
        let ended = self.models.pull(&self.reference, is_cancelled, &mut report);
        let _ = self.sender.send(PullState::Ended(ended));
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.sender.send_if_modified(|state| {
            let panicked = matches!(state, PullState::Step(_));
            if panicked {
                *state = PullState::Ended(Err(ModelError::Failed("the download stopped unexpectedly".to_owned())));
            }
            panicked
        });
        let mut running = self.pulls.lock();
        // A client that came after the last one had left may have restarted the download.
        if running.get(&self.reference).is_some_and(|sender| sender.same_channel(&self.sender)) {
            running.remove(&self.reference);
        }
    }
}
