//! Progress of long operations. This crate reports facts (bytes, phases, failures); the caller decides how often and in
//! what form they are shown, and computes rates and remaining times.

use std::time::Duration;

/// Receives the events of a pull or a bundling; called often, on the working thread.
pub type ProgressSink<'a> = &'a mut dyn FnMut(&Event);

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A source is being tried.
    Source {
        /// The source, as users see it.
        source: String,
    },
    /// One of the models of a repository was chosen.
    Chosen {
        /// Its file, as users see it.
        file: String,
        /// Its size in bytes, if the hub reports it.
        size: Option<u64>,
        /// Why it was chosen.
        choice: Choice,
        /// The quantizations of the others, the smallest first.
        others: Vec<String>,
    },
    /// Another process is pulling the same model; this one waits for it.
    Waiting,
    /// A phase has advanced.
    Progress {
        /// The phase.
        phase: Phase,
        /// The file.
        file: String,
        /// Bytes done in this phase, including those of an earlier run.
        done: u64,
        /// The total bytes, if known.
        total: Option<u64>,
    },
    /// The connection failed and will be retried.
    Retrying {
        /// The error.
        reason: String,
        /// The wait before the retry.
        after: Duration,
    },
    /// A downloaded file could not be verified: neither the catalog nor the server provides a hash.
    Unchecked {
        /// Its source.
        from: String,
    },
    /// The installed model is damaged and is downloaded again.
    Damaged {
        /// The kind of damage.
        reason: String,
    },
    /// A source failed for good; the next one is tried, or the pull fails.
    SourceFailed {
        /// The source.
        source: String,
        /// The error.
        reason: String,
    },
}

/// The current step for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It is being downloaded.
    Downloading,
    /// Existing bytes are being read and verified.
    Verifying,
    /// It is being extracted from a wheel.
    Unpacking,
    /// It is being copied.
    Copying,
}

/// The reason why one quantization of a model was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The user requested it.
    Asked,
    /// It is the most widely used one, and fits this machine as far as is known.
    Usual,
    /// It is the largest that fits this machine; the usual one does not.
    LargestThatFits,
    /// None fits this machine, so it is the usual one.
    TooLarge,
}
