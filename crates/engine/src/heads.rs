//! The end of a model, which determines its purpose: a decoder that answers has logits, others have a head or nothing.

mod norm;
mod reward;
mod scores;

use crate::encoder::EncoderRow;
use crate::gguf::Gguf;

pub(crate) use norm::OutputNorm;
pub(crate) use reward::RewardHead;
pub(crate) use scores::Head;

/// The last product of a head.
const HEAD: &str = "cls.output";

/// The form in which a reranker reads a query and a text.
pub(crate) const PAIR_TEMPLATE: &str = "tokenizer.chat_template.rerank";
/// The form of conversations.
pub(crate) const CHAT_TEMPLATES: [&str; 2] = ["tokenizer.chat_template", "tokenizer.chat_template.default"];

/// Whether a model ends in a head that scores texts.
pub(crate) fn has_head(gguf: &Gguf) -> bool {
    gguf.tensor(&format!("{HEAD}.weight")).is_some()
}

/// Whether a model is a reward model: its head gives one number for a conversation, which is higher for better answers.
pub(crate) fn is_reward_model(gguf: &Gguf) -> bool {
    let text = |key: &str| gguf.string(key).ok().flatten();
    let is_decoder = text("general.architecture").is_some_and(|name| EncoderRow::named(name).is_none());
    let has_chat = CHAT_TEMPLATES.iter().any(|key| text(key).is_some()) && text(PAIR_TEMPLATE).is_none();
    has_head(gguf) && is_decoder && has_chat && scores::labels(gguf).is_ok_and(|labels| labels.len() <= 1)
}

/// The type of a model made for decisions; the layouts of such models are not publicly described.
pub(crate) fn decision_type(gguf: &Gguf) -> Option<String> {
    let architecture = gguf.string("general.architecture").ok().flatten()?;
    gguf.string(&format!("{architecture}.decision.type")).ok().flatten().map(str::to_owned)
}
