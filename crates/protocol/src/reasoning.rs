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
    /// The end of a prompt that begins the reasoning for the model: the first tag, and a line break if the model writes
    /// one.
    pub opening: &'static str,
    /// The marks of a model that writes its turn as several messages.
    pub messages: Option<&'static MessageMarks>,
}

/// The marks of a model that writes its turn as several messages, each with a header that says what it is:
/// `<|start|>assistant<|channel|>final<|message|>The sea.<|end|>`. The first header lacks the part that ends the
/// prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageMarks {
    /// Begins a message.
    pub start: &'static str,
    /// Names the channel in a header.
    pub channel: &'static str,
    /// Ends a header; the message's text follows.
    pub text: &'static str,
    /// Ends a message.
    pub end: &'static str,
    /// Announces the form of the text in a header.
    pub form: &'static str,
    /// The channel of reasoning.
    pub reasoning: &'static str,
    /// Begins the name of the recipient in a header: such a message is a call.
    pub recipient: &'static str,
    /// The beginning of the header of every message but the first.
    pub next: &'static str,
    /// The rest of the header of an answer.
    pub answer: &'static str,
}

/// The marks of gpt-oss, from OpenAI's description of the "harmony" format.
const HARMONY: MessageMarks = MessageMarks {
    start: "<|start|>",
    channel: "<|channel|>",
    text: "<|message|>",
    end: "<|end|>",
    form: "<|constrain|>",
    reasoning: "analysis",
    recipient: "to=",
    next: "<|start|>assistant",
    answer: "<|channel|>final<|message|>",
};

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
    /// The tags of all known models: DeepSeek-R1, Qwen3 and many after them; Seed-OSS; Magistral and Ministral 3; Gemma
    /// 4; gpt-oss.
    pub const ALL: [ReasoningTags; 5] = [
        ReasoningTags::pair("<think>", "</think>", "<think>\n"),
        ReasoningTags::pair("<seed:think>", "</seed:think>", "<seed:think>\n"),
        ReasoningTags::pair("[THINK]", "[/THINK]", "[THINK]\n"),
        ReasoningTags::pair("<|channel>thought", "<channel|>", "<|channel>thought\n"),
        ReasoningTags {
            messages: Some(&HARMONY),
            ..ReasoningTags::pair("<|channel|>analysis<|message|>", HARMONY.end, "<|channel|>analysis<|message|>")
        },
    ];

    /// The names of those parts of the tags that some vocabularies have as control tokens.
    const TOKENS: [&str; 13] = [
        "<think>",
        "</think>",
        "<seed:think>",
        "</seed:think>",
        "[THINK]",
        "[/THINK]",
        "<|channel>",
        "<channel|>",
        HARMONY.start,
        HARMONY.channel,
        HARMONY.text,
        HARMONY.end,
        HARMONY.form,
    ];

    const fn pair(open: &'static str, close: &'static str, opening: &'static str) -> ReasoningTags {
        ReasoningTags { open, close, opening, messages: None }
    }

    /// Whether a token of this name is a tag, or a part of one. In some vocabularies they are control tokens, which are
    /// otherwise not shown.
    pub fn has(name: &str) -> bool {
        ReasoningTags::TOKENS.contains(&name)
    }

    /// The tags that a prompt has opened at its end, so that the model continues with its reasoning.
    pub fn opened_by(prompt: &str) -> Option<&'static ReasoningTags> {
        let prompt = prompt.trim_end();
        ReasoningTags::ALL.iter().find(|tags| prompt.ends_with(tags.open))
    }

    /// The tags that a chat template mentions.
    pub fn mentioned_in(template: &str) -> Option<&'static ReasoningTags> {
        // The end of a message is no sign of reasoning, since other models end their turns the same way.
        let sign = |tags: &ReasoningTags| if tags.messages.is_some() { tags.open } else { tags.close };
        ReasoningTags::ALL.iter().find(|tags| template.contains(sign(tags)))
    }

    /// The text between the reasoning and an answer, including the second tag.
    pub fn before_answer(&self) -> String {
        let header = self.messages.map(|marks| [marks.next, marks.answer].concat());
        format!("{}{}", self.close, header.unwrap_or_default())
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
        assert_eq!(open("<|turn>model\n<|channel>thought\n"), Some("<channel|>"));
        assert_eq!(open("<|start|>assistant<|channel|>analysis<|message|>"), Some("<|end|>"));
        assert_eq!(open("<think>\n\n</think>\n\n"), None);
        assert_eq!(open("<|turn>model\n<|channel>thought\n<channel|>"), None);
        assert_eq!(open("<|start|>assistant<|channel|>final<|message|>"), None);
        assert_eq!(open("what does <think> mean?"), None);
    }

    #[test]
    fn a_template_is_known_by_the_tags_that_it_mentions() {
        let close = |template: &str| ReasoningTags::mentioned_in(template).map(|tags| tags.close);
        assert_eq!(close("{{ content.split('</think>')[-1] }}"), Some("</think>"));
        assert_eq!(close("{{ '<|channel>thought\\n<channel|>' }}"), Some("<channel|>"));
        assert_eq!(close("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}"), Some("<|end|>"));
        assert_eq!(close("{{ '<|assistant|>' + content + '<|end|>' }}"), None, "Phi-3");
    }

    #[test]
    fn every_tag_is_made_of_known_tokens() {
        for tags in ReasoningTags::ALL {
            for text in [tags.open, &tags.before_answer()] {
                let is_in = |token: &&str| text.contains(*token);
                assert!(ReasoningTags::TOKENS.iter().any(is_in), "{text}");
            }
            assert!(tags.opening.starts_with(tags.open));
        }
        assert_eq!(ReasoningTags::ALL[0].before_answer(), "</think>");
        let harmony = "<|end|><|start|>assistant<|channel|>final<|message|>";
        assert_eq!(ReasoningTags::ALL[4].before_answer(), harmony);
    }
}
