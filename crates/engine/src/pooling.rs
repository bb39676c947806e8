//! The tokens whose states stand for a whole text (`pooling_type`:
//! <https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h>, `llama_pooling_type`).

/// The tokens whose states count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pooling {
    /// All of them, as their mean.
    Mean,
    /// The first, which is not part of the text itself.
    First,
    /// The last.
    Last,
}

impl Pooling {
    /// The pooling with this number, if there is one.
    pub(crate) fn numbered(number: u64) -> Option<Pooling> {
        match number {
            1 => Some(Pooling::Mean),
            2 => Some(Pooling::First),
            3 => Some(Pooling::Last),
            _ => None,
        }
    }
}
