//! How models mark their reasoning.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

/// A pair of tags between which a model reasons before it answers. It is serialized as the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// Begins the reasoning.
    pub open: &'static str,
    /// Ends it.
    pub close: &'static str,
}

impl Serialize for ReasoningTags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.open)
    }
}

impl<'de> Deserialize<'de> for ReasoningTags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReasoningTags, D::Error> {
        let open = String::deserialize(deserializer)?;
        let known = ReasoningTags::ALL.into_iter().find(|tags| tags.open == open);
        known.ok_or_else(|| D::Error::custom(format!("no known model begins its reasoning with {open:?}")))
    }
}

impl ReasoningTags {
    /// Those of all known models: DeepSeek-R1, Qwen3 and many after them; Seed-OSS; Magistral and Ministral 3.
    pub const ALL: [ReasoningTags; 3] = [
        ReasoningTags { open: "<think>", close: "</think>" },
        ReasoningTags { open: "<seed:think>", close: "</seed:think>" },
        ReasoningTags { open: "[THINK]", close: "[/THINK]" },
    ];

    /// Whether a text is one of the tags. In some vocabularies they are control tokens, which are not shown otherwise.
    pub fn has(text: &str) -> bool {
        ReasoningTags::ALL.iter().any(|tags| text == tags.open || text == tags.close)
    }

    /// The tags that a prompt has opened at its end, so that the model goes on with its reasoning.
    pub fn opened_by(prompt: &str) -> Option<&'static ReasoningTags> {
        let prompt = prompt.trim_end();
        ReasoningTags::ALL.iter().find(|tags| prompt.ends_with(tags.open))
    }

    /// The tags that a chat template mentions.
    pub fn mentioned_in(template: &str) -> Option<&'static ReasoningTags> {
        ReasoningTags::ALL.iter().find(|tags| template.contains(tags.close))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tag_at_the_end_is_open() {
        let open = |prompt: &str| ReasoningTags::opened_by(prompt).map(|tags| tags.close);
        assert_eq!(open("<|im_start|>assistant\n<think>\n"), Some("</think>"));
        assert_eq!(open("<seed:think>"), Some("</seed:think>"));
        assert_eq!(open("[INST]Why?[/INST][THINK]"), Some("[/THINK]"));
        assert_eq!(open("<think>\n\n</think>\n\n"), None);
        assert_eq!(open("what does <think> mean?"), None);
    }
}
