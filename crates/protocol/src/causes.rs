//! An error as one line, for places that store its text instead of the error itself.
//!
//! An error's own text never repeats its cause: errors are shown with the chain of their causes, as `anyhow` does with
//! `{:#}`.

use std::error::Error;

/// The text of `error` and of all its causes, outermost first.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x")]
    struct Unreadable(#[source] std::io::Error);

    #[test]
    fn every_cause_is_told_once() {
        let error = Unreadable(std::io::Error::other("the disk is gone"));
        assert_eq!(with_causes(&error), "cannot read x: the disk is gone");
        assert_eq!(with_causes(&std::io::Error::other("the disk is gone")), "the disk is gone");
    }
}
