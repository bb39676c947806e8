//! The source of a template, and the input that every renderer needs.

/// A template, with its tokens from the vocabulary.
#[derive(Clone, Debug)]
pub(super) struct TemplateSource {
    pub(super) text: String,
    pub(super) bos: String,
    pub(super) eos: String,
}

/// Returns whether the answer is no longer wanted.
pub(super) type IsCancelled<'a> = &'a dyn Fn() -> bool;
