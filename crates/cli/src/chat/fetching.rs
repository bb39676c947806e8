//! A model that is downloaded while another one answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use hone_app::describe::bytes;
use hone_app::describe::remark;
use hone_models::{Cancellation, Event, Phase, PullError, PullOptions, Store};

use crate::terminal::lines::Lines;
use crate::terminal::{Line, Output};

/// Percentage points between progress reports.
const STEP: u64 = 25;

/// A download in the background. Dropping it ends the download; the part received stays for `hone pull`.
pub(crate) struct Fetching {
    name: String,
    /// The model that answers in the meantime.
    instead: String,
    state: Arc<FetchState>,
    cancellation: Cancellation,
}

#[derive(Default)]
struct FetchState {
    percent: AtomicU64,
    /// Whether the download has ended, successfully or not.
    has_ended: AtomicBool,
    /// The name of the model that has arrived, until it is taken.
    arrived: Mutex<Option<String>>,
}

/// The parameters of a download.
pub(crate) struct Fetch {
    /// The name of the model.
    pub(crate) name: String,
    /// The model that answers in the meantime.
    pub(crate) instead: String,
    /// Download options.
    pub(crate) options: PullOptions,
    /// The lines that report progress.
    pub(crate) lines: Lines,
    /// Runs once the model has arrived; returns the message for the user.
    pub(crate) arrived: Box<dyn FnOnce() -> String + Send>,
}

impl Fetching {
    /// Starts downloading a model into the store.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(store: Arc<Store>, fetch: Fetch) -> anyhow::Result<Fetching> {
        let (state, cancellation) = (Arc::<FetchState>::default(), Cancellation::default());
        let options = PullOptions { cancellation: cancellation.clone(), ..fetch.options };
        let (name, instead) = (fetch.name.clone(), fetch.instead.clone());
        let shared = Arc::clone(&state);
        let work = move || {
            let line = work(&store, &options, fetch.name, &fetch.lines, &shared);
            shared.has_ended.store(true, Ordering::SeqCst);
            if let Some(line) = line.or_else(|| shared.is_here().then(fetch.arrived)) {
                fetch.lines.announce(Line::plain(line));
            }
        };
        let thread = std::thread::Builder::new().name("fetching".to_owned());
        thread.spawn(work).context("cannot start the thread that downloads")?;
        Ok(Fetching { name, instead, state, cancellation })
    }

    /// The downloaded model, once, unless the answering model is no longer the one that it replaces.
    pub(crate) fn take_arrived(&self, answers: &str) -> Option<String> {
        let arrived = self.state.arrived.lock().unwrap_or_else(PoisonError::into_inner).take();
        arrived.filter(|_| answers == self.instead)
    }

    /// Tells the user how to resume an unfinished download.
    pub(crate) fn tell_unfinished(&self, output: Output) {
        if self.state.has_ended.load(Ordering::SeqCst) {
            return;
        }
        let (name, percent) = (&self.name, self.state.percent.load(Ordering::SeqCst));
        output.note(&format!("{percent} % of {name} are downloaded: `hone pull {name}` continues"));
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        // Its thread may wait for the server for a minute, but not longer than the process lives.
        self.cancellation.cancel();
    }
}

impl FetchState {
    fn is_here(&self) -> bool {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The percentage to report, if a report is due.
    fn advance(&self, done: u64, total: u64) -> Option<u64> {
        let percent = (100 * done).checked_div(total)?.min(100);
        let before = self.percent.swap(percent, Ordering::SeqCst);
        (percent / STEP > before / STEP && percent < 100).then_some(percent / STEP * STEP)
    }
}

/// Downloads the model; returns the message for the user if that fails.
fn work(store: &Store, options: &PullOptions, name: String, lines: &Lines, state: &FetchState) -> Option<String> {
    let pulled = store.pull(&name, options, &mut |event| match event {
        Event::Progress { phase: Phase::Downloading, done, total: Some(total), .. } => {
            if let Some(percent) = state.advance(*done, *total) {
                lines.announce(Line::plain(format!("{name}: {percent} % of {} are downloaded", bytes(*total))));
            }
        }
        Event::Progress { .. } | Event::Source { .. } => {}
        other => lines.announce(Line::plain(format!("{name}: {}", remark(other)))),
    });
    match pulled {
        Ok(_) => {
            *state.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
            None
        }
        Err(PullError::Cancelled(_)) => None,
        Err(error) => Some(format!("{error}; `hone pull {name}` tries again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_at_every_quarter() {
        let state = FetchState::default();
        let told = (0..=1000).filter_map(|done| state.advance(done, 1000)).collect::<Vec<_>>();
        assert_eq!(told, [25, 50, 75]);
        let resumed = FetchState::default();
        assert_eq!(resumed.advance(600, 1000), Some(50), "an earlier run had downloaded more than half");
        assert_eq!(resumed.advance(0, 0), None);
    }
}
