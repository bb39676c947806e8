//! Memory settings: which engrams are recalled, and the texts around them.

use hone_judging::has_place;
use hone_memory::Matching;
use serde::Deserialize;
use thiserror::Error;

use crate::statements::is_personal;

/// The scope of questions that programs ask on their own behalf.
pub(crate) const SCOPE_OF_CLIENTS: &str = "client";

/// Whether and how recollections reach the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryMode {
    /// As a tool if the model's chat template supports tools, and otherwise as context.
    Auto,
    /// As a tool only; models whose chat template does not support tools get no recollections.
    Tool,
    /// Never.
    Off,
}

/// The engrams that may be recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecallPolicy {
    /// Only long-term memory: engrams that a critic or a person has passed, and facts that the user stated.
    Reviewed,
    /// Also engrams that no critic has passed yet, marked as such.
    UnreviewedMarked,
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
    /// The engrams that may be recalled and consolidated.
    pub recall: RecallPolicy,
    /// The minimum cosine similarity of a recollection to the question, -1 to 1.
    pub threshold: f32,
    /// The minimum similarity for a question about its asker.
    pub personal_threshold: f32,
    /// The minimum similarity of a recollection as a share of the most similar one's, 0 to 1.
    pub nearness: f32,
    /// The share of the question's words, each weighted by its rarity, that compensates for a lower similarity.
    pub words_threshold: f32,
    /// The minimum share of the words if the question is not about its asker.
    pub impersonal_words: f32,
    /// The weight of the ranking by words relative to the ranking by meaning.
    pub words_weight: f32,
    /// How much more relevant a fact is than an exchange, if the question is about its asker.
    pub facts_weight: f32,
    /// The minimum similarity of two duplicate recollections; the newer one is kept.
    pub duplicate: f32,
    /// The minimum similarity of two facts about the same thing; the newer one comes first.
    pub same_statement: f32,
    /// The minimum similarity of two such facts if the newer one states a change.
    pub changed_statement: f32,
    /// Answers whose first words contain one of these are not recalled: a statement that nothing was known does not
    /// help.
    pub unhelpful: Vec<String>,
    /// The most recollections at a time.
    pub n_recalled: usize,
    /// The most searches per answer, if the model searches through the tool.
    pub n_searches: usize,
    /// The most characters of recollections at a time, without the text around them.
    pub recalled_characters: usize,
    /// Whether facts that the user states are remembered separately.
    pub facts: bool,
    /// One recalled exchange; holds `{query}` and `{answer}`.
    pub memory_template: String,
    /// One recalled fact; holds `{statement}`.
    pub fact_template: String,
    /// The mark before an exchange that no critic has passed yet.
    pub unreviewed_mark: String,
    /// A question with recalled facts; holds `{facts}` and `{question}`.
    pub facts_template: String,
    /// The paragraph before a question with recalled exchanges; holds `{memories}`.
    pub context_template: String,
    /// The tool's description for the model: its purpose, and when to call it.
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
    /// For the first setting that is out of range, or lacks a required placeholder.
    pub fn check(&self) -> Result<(), InvalidMemorySettings> {
        let check = |setting, is_sound: bool, expected| match is_sound {
            true => Ok(()),
            false => Err(InvalidMemorySettings { setting, expected }),
        };
        for (setting, cosine) in [
            ("threshold", self.threshold),
            ("personal_threshold", self.personal_threshold),
            ("duplicate", self.duplicate),
            ("same_statement", self.same_statement),
            ("changed_statement", self.changed_statement),
        ] {
            check(setting, (-1.0..=1.0).contains(&cosine), "must be -1 to 1")?;
        }
        check("nearness", (0.0..=1.0).contains(&self.nearness), "must be 0 to 1")?;
        check("words_threshold", self.words_threshold > 0.0, "must be more than 0; above 1 it admits nothing")?;
        check("impersonal_words", (0.0..=1.0).contains(&self.impersonal_words), "must be 0 to 1")?;
        for (setting, weight) in [("words_weight", self.words_weight), ("facts_weight", self.facts_weight)] {
            check(setting, (0.0..=10.0).contains(&weight), "must be 0 to 10")?;
        }
        check("n_recalled", self.n_recalled > 0, "must be 1 or more; mode \"off\" recalls nothing")?;
        check("n_searches", self.n_searches > 0, "must be 1 or more; mode \"off\" recalls nothing")?;
        check("recalled_characters", self.recalled_characters > 0, "must be 1 or more; mode \"off\" recalls nothing")?;
        check("extract_characters", self.extract_characters > 0, "must be 1 or more")?;
        check("extract_tokens", self.extract_tokens > 0, "must be 1 or more")?;
        let holds = |template: &str, names: &[&str]| names.iter().all(|name| has_place(template, name));
        let exchange = ["query", "answer"];
        check("memory_template", holds(&self.memory_template, &exchange), "must hold {query} and {answer}")?;
        check("fact_template", holds(&self.fact_template, &["statement"]), "must hold {statement}")?;
        check(
            "facts_template",
            holds(&self.facts_template, &["facts", "question"]),
            "must hold {facts} and {question}",
        )?;
        check("extract_template", holds(&self.extract_template, &exchange), "must hold {query} and {answer}")?;
        check("context_template", holds(&self.context_template, &["memories"]), "must hold {memories}")?;
        check("tool_template", holds(&self.tool_template, &["memories"]), "must hold {memories}")
    }
}

impl MemorySettings {
    /// The similarity bounds for this question.
    pub fn matching(&self, question: &str) -> Matching {
        let is_personal = is_personal(question);
        Matching {
            threshold: if is_personal { self.personal_threshold } else { self.threshold },
            nearness: self.nearness,
            words_threshold: self.words_threshold,
            least_words: if is_personal { 0.0 } else { self.impersonal_words },
            words_weight: self.words_weight,
            facts_weight: if is_personal { self.facts_weight } else { 0.0 },
            duplicate: self.duplicate,
            same_statement: self.same_statement,
            changed_statement: self.changed_statement,
        }
    }
}

/// An invalid setting of memory.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{setting} {expected}")]
pub struct InvalidMemorySettings {
    /// The setting.
    pub setting: &'static str,
    /// The allowed values.
    pub expected: &'static str,
}

/// A text with single spaces between its words.
pub(crate) fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        recall: RecallPolicy::UnreviewedMarked,
        unreviewed_mark: "(unchecked)".to_owned(),
        threshold: 0.3,
        personal_threshold: 0.3,
        nearness: 0.5,
        words_threshold: 0.9,
        impersonal_words: 0.0,
        words_weight: 0.25,
        facts_weight: 0.0,
        duplicate: 0.95,
        same_statement: 0.6,
        changed_statement: 0.4,
        unhelpful: Vec::new(),
        facts: false,
        fact_template: "Said: {statement}".to_owned(),
        facts_template: "{facts}\n\n{question}".to_owned(),
        n_recalled: 3,
        n_searches: 3,
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
        check(|settings| settings.same_statement = -1.5, "same_statement must be -1 to 1");
        check(|settings| settings.nearness = 2.0, "nearness must be 0 to 1");
        check(|settings| settings.fact_template.clear(), "fact_template must hold {statement}");
        check(|settings| settings.facts_template.clear(), "facts_template must hold {facts} and {question}");
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
