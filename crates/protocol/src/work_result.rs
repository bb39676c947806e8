//! Work requested from another machine.

use crate::envelope::Envelope;
use crate::ids::EnvelopeId;

/// The end of a piece of work requested from another machine.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkResult {
    /// The requesting message.
    pub request: EnvelopeId,
    /// The answer to that message, or the reason why the work was given up.
    pub outcome: Result<Box<Envelope>, String>,
}
