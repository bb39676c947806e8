//! What a template is made from, and what every renderer needs.

/// A template, with what it needs to know about the vocabulary.
#[derive(Clone, Debug)]
pub(super) struct TemplateSource {
    pub(super) text: String,
    pub(super) bos: String,
    pub(super) eos: String,
}

/// Says whether the answer is no longer wanted.
pub(super) type IsCancelled<'a> = &'a dyn Fn() -> bool;
