//! Critiques: the arguments against a text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::verdict::Judging;

/// The kind of text that is criticized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentType {
    /// Any text.
    #[default]
    General,
    /// An item to be done today.
    Intention,
    /// An answer from memory and files, with its sources.
    Research,
    /// A summary of memories.
    Consolidation,
}

impl ContentType {
    /// All of them.
    pub const ALL: [ContentType; 4] =
        [ContentType::General, ContentType::Intention, ContentType::Research, ContentType::Consolidation];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ContentType::General => "general",
            ContentType::Intention => "intention",
            ContentType::Research => "research",
            ContentType::Consolidation => "consolidation",
        }
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ContentType {
    type Err = String;

    fn from_str(name: &str) -> Result<ContentType, String> {
        let names = || ContentType::ALL.map(ContentType::name).join(", ");
        let named = ContentType::ALL.into_iter().find(|kind| kind.name() == name);
        named.ok_or_else(|| format!("{name:?} is no type of content: there are {}", names()))
    }
}

/// The severity of the arguments against a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CritiqueLevel {
    /// No concerns.
    Pass,
    /// Small concerns, to be noted.
    Minor,
    /// Significant concerns: the text should be revised.
    Major,
    /// A critical flaw: it should not be remembered.
    Block,
}

impl CritiqueLevel {
    /// All of them, the mildest first.
    pub const ALL: [CritiqueLevel; 4] =
        [CritiqueLevel::Pass, CritiqueLevel::Minor, CritiqueLevel::Major, CritiqueLevel::Block];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CritiqueLevel::Pass => "pass",
            CritiqueLevel::Minor => "minor",
            CritiqueLevel::Major => "major",
            CritiqueLevel::Block => "block",
        }
    }
}

impl fmt::Display for CritiqueLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A critic's opinion of a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CritiqueResult {
    /// The kind of text.
    pub content_type: ContentType,
    /// The severity of the arguments against it; `None` without a verdict.
    pub level: Option<CritiqueLevel>,
    /// How valid the text is, 0 to 1; `None` without a verdict.
    pub validity_score: Option<f64>,
    /// The problems found.
    pub challenges: Vec<String>,
    /// Suggested improvements.
    pub suggested_improvements: Vec<String>,
    /// The strongest argument for the opposite.
    pub strongest_counterargument: String,
    /// Whether it must not be remembered.
    pub should_block: bool,
    /// Why.
    pub reasoning: String,
    /// Why the verdict neither blocks nor passes, such as that the critic wrote the text; `None` if it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disregarded: Option<String>,
    /// Further remarks for the reader, such as about text that the critic was not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The cost, and whether the critic is the model that wrote the text.
    #[serde(flatten)]
    pub judging: Judging,
}

/// How much a critic's word counts at a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CriticMode {
    /// A text that it blocks, or about which it could not be asked, does not count as long-term memory.
    #[default]
    Hard,
    /// Its opinion is kept, and blocks nothing.
    Soft,
    /// It is not asked.
    Off,
}

impl CriticMode {
    /// All of them.
    pub const ALL: [CriticMode; 3] = [CriticMode::Hard, CriticMode::Soft, CriticMode::Off];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CriticMode::Hard => "hard",
            CriticMode::Soft => "soft",
            CriticMode::Off => "off",
        }
    }
}

impl fmt::Display for CriticMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether a memory counts as long-term memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VettingState {
    /// No critic has passed it yet.
    #[default]
    Unreviewed,
    /// A critic or a person has passed it.
    Reviewed,
    /// A critic has blocked it.
    Blocked,
}

impl VettingState {
    /// All of them.
    pub const ALL: [VettingState; 3] = [VettingState::Unreviewed, VettingState::Reviewed, VettingState::Blocked];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            VettingState::Unreviewed => "unreviewed",
            VettingState::Reviewed => "reviewed",
            VettingState::Blocked => "blocked",
        }
    }
}

impl fmt::Display for VettingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A gate's decision about a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriticDecision {
    /// The kind of text.
    pub content_type: ContentType,
    /// The severity of the arguments against it; `None` without a verdict.
    pub level: Option<CritiqueLevel>,
    /// How valid it is, 0 to 1; `None` without a verdict.
    pub validity_score: Option<f64>,
    /// Its state after the decision.
    pub state: VettingState,
    /// How much the critic's word counted.
    pub mode: CriticMode,
    /// The critic's reason, or why it could not be asked.
    pub reason: String,
}

/// A person's ruling on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRuling {
    /// Whether it was right to block.
    pub is_right: bool,
    /// The memory's state after the ruling.
    pub state: VettingState,
}

/// A person's setting for every gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticOverride {
    /// The mode of every gate; `None` keeps the configured modes.
    pub mode: Option<CriticMode>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for kind in ContentType::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        for level in CritiqueLevel::ALL {
            assert_eq!(serde_json::to_value(level).unwrap(), level.name());
        }
        for mode in CriticMode::ALL {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        for state in VettingState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        assert!("poem".parse::<ContentType>().unwrap_err().contains("general, intention, research"));
    }

    #[test]
    fn a_result_is_a_flat_object() {
        let result = CritiqueResult { judging: Judging::failed("late"), ..CritiqueResult::default() };
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!((&json["failure"], &json["level"]), (&"late".into(), &serde_json::Value::Null));
        assert_eq!(serde_json::from_value::<CritiqueResult>(json).unwrap(), result);
    }
}
