//! How memory is used: what is recalled, and the texts around it.

use hone_quality::has_place;
use serde::Deserialize;
use thiserror::Error;

/// Whether and how recollections reach the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryMode {
    /// As a tool if the model's chat template supports tools, and otherwise as context.
    Auto,
    /// As a tool only; models whose chat template does not support tools get none.
    Tool,
    /// Not at all. Answers are still remembered.
    Off,
}

/// How memory is used.
///
/// Templates name their contents in braces. Recollections are inserted line by line behind `> `, so that none of their
/// own lines can be mistaken for the text around them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySettings {
    /// Whether and how recollections reach the model.
    pub mode: MemoryMode,
    /// The minimum cosine similarity of a recollection to the question, -1 to 1.
    pub threshold: f32,
    /// The most recollections at a time.
    pub n_recalled: usize,
    /// The most characters of recollections at a time, without the text around them.
    pub recalled_characters: usize,
    /// One recollection; holds `{query}` and `{answer}`.
    pub memory_template: String,
    /// The paragraph before the conversation; holds `{memories}`.
    pub context_template: String,
    /// What the tool does and when to call it, for the model.
    pub tool_description: String,
    /// The description of the tool's argument.
    pub tool_query_description: String,
    /// The tool's result; holds `{memories}`.
    pub tool_template: String,
    /// The tool's result when nothing was found.
    pub tool_found_nothing: String,
    /// Whether intent and entities are extracted from remembered exchanges.
    pub extract: bool,
    /// The extraction prompt; holds `{query}` and `{answer}`.
    pub extract_template: String,
    /// The most characters of the question, and of the answer, that are inserted into it.
    pub extract_characters: usize,
    /// The most tokens that the model may generate for an extraction.
    pub extract_tokens: usize,
}

impl MemorySettings {
    /// Checks every setting.
    ///
    /// # Errors
    /// For the first setting that is out of range, or lacks a required place.
    pub fn check(&self) -> Result<(), InvalidMemorySettings> {
        let check = |setting, is_sound: bool, expected| match is_sound {
            true => Ok(()),
            false => Err(InvalidMemorySettings { setting, expected }),
        };
        check("threshold", (-1.0..=1.0).contains(&self.threshold), "must be -1 to 1")?;
        check("n_recalled", self.n_recalled > 0, "must be 1 or more; mode \"off\" recalls nothing")?;
        check("recalled_characters", self.recalled_characters > 0, "must be 1 or more; mode \"off\" recalls nothing")?;
        check("extract_characters", self.extract_characters > 0, "must be 1 or more")?;
        check("extract_tokens", self.extract_tokens > 0, "must be 1 or more")?;
        let holds = |template: &str, names: &[&str]| names.iter().all(|name| has_place(template, name));
        let exchange = ["query", "answer"];
        check("memory_template", holds(&self.memory_template, &exchange), "must hold {query} and {answer}")?;
        check("extract_template", holds(&self.extract_template, &exchange), "must hold {query} and {answer}")?;
        check("context_template", holds(&self.context_template, &["memories"]), "must hold {memories}")?;
        check("tool_template", holds(&self.tool_template, &["memories"]), "must hold {memories}")
    }
}

/// An invalid setting of memory.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{setting} {expected}")]
pub struct InvalidMemorySettings {
    /// The setting.
    pub setting: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

/// The beginning of a text, at most `n_characters` long; if it is truncated, it ends with an ellipsis.
pub(crate) fn shortened(text: &str, n_characters: usize) -> String {
    if text.chars().count() <= n_characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(n_characters.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
pub(crate) fn settings_for_tests() -> MemorySettings {
    MemorySettings {
        mode: MemoryMode::Auto,
        threshold: 0.3,
        n_recalled: 3,
        recalled_characters: 200,
        memory_template: "Asked: {query}\nAnswered: {answer}".to_owned(),
        context_template: "Earlier, as data:\n{memories}".to_owned(),
        tool_description: "Searches earlier conversations.".to_owned(),
        tool_query_description: "What to look for.".to_owned(),
        tool_template: "Found:\n{memories}".to_owned(),
        tool_found_nothing: "Nothing was found.".to_owned(),
        extract: false,
        extract_template: "Q: {query} A: {answer}".to_owned(),
        extract_characters: 100,
        extract_tokens: 50,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut MemorySettings), expected: &str) {
        let mut settings = settings_for_tests();
        change(&mut settings);
        assert_eq!(settings.check().err().map_or(String::new(), |error| error.to_string()), expected);
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        check(|_| (), "");
        check(|settings| settings.threshold = 1.5, "threshold must be -1 to 1");
        check(|settings| settings.threshold = f32::NAN, "threshold must be -1 to 1");
        check(|settings| settings.n_recalled = 0, "n_recalled must be 1 or more; mode \"off\" recalls nothing");
        check(|settings| settings.extract_tokens = 0, "extract_tokens must be 1 or more");
        check(|settings| settings.memory_template = "{query}".into(), "memory_template must hold {query} and {answer}");
        check(|settings| settings.context_template = "memories".into(), "context_template must hold {memories}");
        check(|settings| settings.tool_template.clear(), "tool_template must hold {memories}");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö…");
        assert_eq!(shortened("a b c", 3), "a…");
    }
}
