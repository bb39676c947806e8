//! The end of a model, which determines its purpose: a decoder that answers has logits, others have a head or nothing.

use crate::gguf::Gguf;

/// The last product of a head.
pub(crate) const HEAD: &str = "cls.output";

/// Whether a model ends in a head that scores texts.
pub(crate) fn has_head(gguf: &Gguf) -> bool {
    gguf.tensor(&format!("{HEAD}.weight")).is_some()
}

/// The type of a model made for decisions; the layouts of such models are not publicly described.
pub(crate) fn decision_type(gguf: &Gguf) -> Option<String> {
    let architecture = gguf.string("general.architecture").ok().flatten()?;
    gguf.string(&format!("{architecture}.decision.type")).ok().flatten().map(str::to_owned)
}
