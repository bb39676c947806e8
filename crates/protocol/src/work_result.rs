//! Work that another machine was asked for.

use crate::envelope::Envelope;
use crate::ids::EnvelopeId;

/// The end of a piece of work that another machine was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkResult {
    /// The message that asked for it.
    pub request: EnvelopeId,
    /// The answer to that message, or the reason why the work was given up.
    pub outcome: Result<Box<Envelope>, String>,
}
