//! What a long operation says while it runs. The crate reports facts (bytes, phases, failures); how they are drawn, how
//! often, and what a rate or a remaining time is made of, is the caller's.

use std::time::Duration;

/// Receives the events of a pull or of a bundle; called often, from the thread that works.
pub type ProgressSink<'a> = &'a mut dyn FnMut(&Event);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A source is tried now.
    Source {
        /// Where the model comes from, as a person reads it.
        source: String,
    },
    /// Another process is pulling the same model; this one waits for it.
    Waiting,
    /// A phase went on.
    Progress {
        /// What is being done.
        phase: Phase,
        /// The file it is done to.
        file: String,
        /// Bytes done in this phase, including what an earlier run had already done.
        done: u64,
        /// Bytes there are in all, where that is known.
        total: Option<u64>,
    },
    /// The connection failed and is tried again.
    Retrying {
        /// What went wrong.
        reason: String,
        /// How long it waits first.
        after: Duration,
    },
    /// A file has arrived that could not be checked: neither the catalog nor the server gives a hash of it.
    Unchecked {
        /// Where it came from.
        from: String,
    },
    /// The installed model is damaged and is fetched again.
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
    /// A source failed for good; the next one is tried, or the pull fails.
    SourceFailed {
        /// The source.
        source: String,
        /// What went wrong.
        reason: String,
    },
}

/// What is being done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Bytes come in over the network.
    Downloading,
    /// Bytes that are already here are read to check them.
    Verifying,
    /// Bytes are taken out of a wheel.
    Unpacking,
    /// Bytes are copied from one file to another.
    Copying,
}
