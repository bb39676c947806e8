//! How a command ends, and the exit code of the process.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage, 3 below the requested threshold, 130 interrupted (128 plus the
//! number of SIGINT, as in shells). A closed output pipe is not a failure.

use std::io::ErrorKind;

use hone_app::UsageError;
use hone_engine::PerplexityError;
use hone_models::PullError;
use hone_protocol::GenerateError;

pub(crate) use hone_app::usage;

/// The outcome of a command that returned no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It succeeded.
    Done,
    /// It has reported a problem.
    Failed,
    /// It succeeded, but the result is below the requested threshold.
    BelowThreshold,
    /// The user stopped it.
    Interrupted,
}

impl Outcome {
    /// The exit code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::BelowThreshold => 3,
            Outcome::Interrupted => 130,
        }
    }
}

/// The exit code after `error`; 0 if the only problem is a closed output pipe.
pub(crate) fn exit_code_of(error: &anyhow::Error) -> u8 {
    if error.is::<UsageError>() || error.chain().any(is_wrong_use) {
        2
    } else if is_broken_pipe(error) {
        0
    } else {
        1
    }
}

/// Whether an error that was found after parsing the arguments means that the request was invalid.
fn is_wrong_use(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(GenerateError::Request(_)))
        || matches!(cause.downcast_ref(), Some(PullError::Malformed(_)))
        || matches!(cause.downcast_ref(), Some(PerplexityError::Context { .. }))
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: anyhow::Error, expected: u8) {
        assert_eq!(exit_code_of(&error), expected, "{error:#}");
    }

    #[test]
    fn every_failure_has_its_exit_code() {
        check(anyhow::anyhow!("the disk is full"), 1);
        check(usage("no such flag"), 2);
        check(usage("no such flag").context("while parsing"), 2);
        check(GenerateError::Request("top_p is 2".to_string()).into(), 2);
        check(anyhow::Error::new(PullError::Malformed("`hf:x` is malformed".to_string())).context("pulling"), 2);
        check(PerplexityError::Context { context: 9, limit: 8 }.into(), 2);
        check(GenerateError::ContextOverflow { prompt_tokens: 9, context_tokens: 8 }.into(), 1);
        check(PullError::Unknown("there is no model `x`".to_string()).into(), 1);
        check(PerplexityError::TooShort { n_tokens: 1, context: 8 }.into(), 1);
        let pipe = std::io::Error::from(ErrorKind::BrokenPipe);
        check(anyhow::Error::new(pipe).context("cannot write"), 0);
        check(anyhow::Error::new(std::io::Error::from(ErrorKind::NotFound)), 1);
    }
}
