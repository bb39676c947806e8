//! Progress that may interest the user; a front end decides how, and whether, it is shown.

use hone_models::Event;
use hone_protocol::GenerationEvent;

/// Receives the events of transfers.
pub type TransferListener = Box<dyn FnMut(&Event)>;

/// Receives the number of bytes loaded and their total.
pub type LoadListener = Box<dyn Fn(u64, u64) + Send + Sync>;

/// A front end's display.
pub trait Progress: Send + Sync {
    /// A remark in addition to the result.
    fn note(&self, text: &str);

    /// Something went wrong that does not end the work.
    fn error(&self, text: &str);

    /// A download or a copy begins; it has ended when the listener is dropped.
    fn transfers(&self) -> TransferListener;

    /// A model begins to be loaded; it is loaded when the listener is dropped.
    fn loading(&self) -> LoadListener;
}

/// The display of one piece of work.
pub trait Activity {
    /// Reports how much of it is done, with a remark, which may be empty.
    fn advance(&self, done: usize, total: usize, remark: &str);

    /// Reports an event from a model that works on it.
    fn hear(&self, event: &GenerationEvent);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn note(&self, _: &str) {}

    fn error(&self, _: &str) {}

    fn transfers(&self) -> TransferListener {
        Box::new(|_| ())
    }

    fn loading(&self) -> LoadListener {
        Box::new(|_, _| ())
    }
}

impl Activity for Silent {
    fn advance(&self, _: usize, _: usize, _: &str) {}

    fn hear(&self, _: &GenerationEvent) {}
}
