//! Critiques of texts: challenge, steelman, verify.

use std::time::Duration;

use hone_protocol::prospect::NO_VERDICT;
use hone_protocol::{ContentType, CriticMode, CritiqueLevel, CritiqueResult, Judging};
use serde::Deserialize;

use crate::prompt::has_place;
use crate::review::{Review, ReviewForm, ReviewLimits, ReviewTask, Reviewed};
use crate::task::Verdict;

/// Settings of critiques: `critique.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CritiqueSettings {
    /// The model that criticizes; empty for the judge of answers.
    pub model: String,
    /// `GENERATOR -> CRITIC`: the model that criticizes the texts of each generator.
    pub pairs: Vec<String>,
    /// Whether a model may criticize its own texts; such critiques do not block.
    pub self_critique: bool,
    /// Whether a critic blocks only if it has passed its examination.
    pub examination: bool,
    /// Minimum precision of a critic's blocks to pass the examination.
    pub least_precision: f64,
    /// Critic mode for exchanges.
    pub exchange_mode: CriticMode,
    /// Critic mode for intentions.
    pub intention_mode: CriticMode,
    /// Critic mode for research.
    pub research_mode: CriticMode,
    /// Critic mode for consolidations.
    pub consolidation_mode: CriticMode,
    /// Maximum critiques of one type per hour.
    pub per_hour: usize,
    /// Maximum critiques of one type per hour when no caller waits for them.
    pub per_hour_in_batch: usize,
    /// Consecutive blocks of one type that start a cooldown, during which no critiques are requested.
    pub blocks_before_cooldown: usize,
    /// Length of the cooldown in minutes.
    pub cooldown_minutes: f64,
    /// Maximum tokens of a critique.
    pub max_tokens: usize,
    /// Time limit of a critique in seconds, not counting time spent waiting.
    pub timeout: f64,
    /// The prompt for a text of any kind, with places for the text and its context.
    pub general_prompt: String,
    /// The prompt for an intention.
    pub intention_prompt: String,
    /// The prompt for research.
    pub research_prompt: String,
    /// The prompt for a consolidation.
    pub consolidation_prompt: String,
}

/// Minimum validity of a text with no flaw or a minor one.
const LEAST_VALIDITY: f64 = 0.5;

/// Separates the models of a pair.
const ARROW: &str = "->";

impl CritiqueSettings {
    /// Checks every value.
    ///
    /// # Errors
    /// Describes the first invalid value.
    pub fn check(&self) -> Result<(), String> {
        ReviewLimits::check(self.max_tokens, self.timeout)?;
        if self.per_hour == 0 || self.per_hour_in_batch == 0 {
            return Err("per_hour and per_hour_in_batch must be 1 or more; mode \"off\" asks no critic".to_owned());
        }
        if self.blocks_before_cooldown == 0 {
            return Err("blocks_before_cooldown must be 1 or more".to_owned());
        }
        if !(0.0..=1.0).contains(&self.least_precision) {
            return Err(format!("least_precision is {}: it must be 0 to 1", self.least_precision));
        }
        if self.cooldown_minutes < 0.0 || Duration::try_from_secs_f64(self.cooldown_minutes * 60.0).is_err() {
            return Err(format!("cooldown_minutes is {}: it must be 0 or more", self.cooldown_minutes));
        }
        if let Some(pair) = self.pairs.iter().find(|pair| read_pair(pair).is_none()) {
            return Err(format!("pairs has {pair:?}: write \"GENERATOR {ARROW} CRITIC\""));
        }
        for kind in ContentType::ALL {
            if !has_place(self.prompt(kind), "content") {
                return Err(format!("{kind}_prompt has no place for the text: write {{content}} where it belongs"));
            }
        }
        Ok(())
    }

    /// The model that criticizes the texts of `generator`; `None` for the judge of answers.
    pub fn critic_of(&self, generator: &str) -> Option<&str> {
        let pairs = self.pairs.iter().filter_map(|pair| read_pair(pair));
        let of_pair = pairs.filter(|(of, _)| *of == generator).map(|(_, critic)| critic).next();
        of_pair.or(Some(self.model.as_str()).filter(|name| !name.is_empty()))
    }

    /// A critique of a text that arose from `context`.
    pub fn task(&self, kind: ContentType, content: &str, context: &str) -> ReviewTask {
        let limits = ReviewLimits { max_tokens: self.max_tokens, timeout: Duration::from_secs_f64(self.timeout) };
        let texts = Reviewed { goal: context, requirements: "", work: content };
        ReviewTask::new(ReviewForm::Critique, self.prompt(kind), texts, limits)
    }

    /// The critic mode for texts of this type, unless a person has set another one.
    pub fn mode(&self, kind: ContentType) -> CriticMode {
        match kind {
            ContentType::General => self.exchange_mode,
            ContentType::Intention => self.intention_mode,
            ContentType::Research => self.research_mode,
            ContentType::Consolidation => self.consolidation_mode,
        }
    }

    fn prompt(&self, kind: ContentType) -> &str {
        match kind {
            ContentType::General => &self.general_prompt,
            ContentType::Intention => &self.intention_prompt,
            ContentType::Research => &self.research_prompt,
            ContentType::Consolidation => &self.consolidation_prompt,
        }
    }
}

fn read_pair(pair: &str) -> Option<(&str, &str)> {
    let (generator, critic) = pair.split_once(ARROW)?;
    let (generator, critic) = (generator.trim(), critic.trim());
    (!generator.is_empty() && !critic.is_empty()).then_some((generator, critic))
}

/// A critic's response.
#[derive(Deserialize)]
struct CritiqueSaid {
    reasoning: String,
    strongest_counterargument: String,
    challenges: Vec<String>,
    suggested_improvements: Vec<String>,
    validity_score: f64,
    level: CritiqueLevel,
}

/// Whether a text with this critique level is kept out of long-term memory. A summary that distorts is worse than its
/// sources, so a major flaw is enough to keep out a consolidation.
pub fn keeps_out(kind: ContentType, level: CritiqueLevel) -> bool {
    let is_major = kind == ContentType::Consolidation && level == CritiqueLevel::Major;
    is_major || level == CritiqueLevel::Block
}

/// The result of a critique. The verdict of a critic that is disregarded for the given reason blocks nothing.
pub fn critique_result(kind: ContentType, review: &Review, disregarded: Option<&str>) -> CritiqueResult {
    let judging = review.judging().clone();
    let said: CritiqueSaid = match review.read() {
        Ok(said) => said,
        Err(reason) => {
            let judging = Judging { failure: Some(reason), ..judging };
            return CritiqueResult { content_type: kind, judging, ..CritiqueResult::default() };
        }
    };
    let validity = said.validity_score.clamp(0.0, 1.0);
    let contradiction = (said.level <= CritiqueLevel::Minor && validity < LEAST_VALIDITY)
        .then(|| format!("{NO_VERDICT} that counts: {} with a validity of {validity:.2}", said.level));
    let disregarded = disregarded.map(str::to_owned).or(contradiction);
    CritiqueResult {
        content_type: kind,
        level: Some(said.level),
        validity_score: Some(validity),
        challenges: said.challenges,
        suggested_improvements: said.suggested_improvements,
        strongest_counterargument: said.strongest_counterargument,
        should_block: said.level == CritiqueLevel::Block && disregarded.is_none(),
        reasoning: said.reasoning,
        disregarded,
        remarks: review.remarks("text").collect(),
        judging,
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::scripted::Script;

    use super::*;
    use crate::scripted;
    use crate::settings::JudgeSettings;

    fn settings() -> CritiqueSettings {
        toml::from_str(include_str!("../../../config/critique.toml")).unwrap()
    }

    fn said(level: &str) -> String {
        format!(
            r#"{{"reasoning": "R", "strongest_counterargument": "C", "challenges": ["x"], "suggested_improvements": [],
            "validity_score": 0.75, "level": "{level}"}}"#
        )
    }

    /// The result for a text when the critic responds with `says`.
    fn criticized(says: &str, kind: ContentType, may_not_block: Option<&str>) -> CritiqueResult {
        let says = says.to_owned();
        let (judge, _) = scripted::judge(JudgeSettings::shipped(), move |_| Script::saying(&[&says]));
        let task = settings().task(kind, "Buy milk.", "Yesterday: bread.");
        critique_result(kind, &judge.judge(task, ""), may_not_block)
    }

    #[test]
    fn only_a_block_blocks_and_only_by_one_who_may() {
        for level in CritiqueLevel::ALL {
            let result = criticized(&said(level.name()), ContentType::Intention, None);
            assert_eq!((result.level, result.validity_score), (Some(level), Some(0.75)));
            assert_eq!(result.should_block, level == CritiqueLevel::Block);
            assert_eq!((result.challenges.as_slice(), result.reasoning.as_str()), (&["x".to_owned()][..], "R"));
        }
        let result = criticized(&said("block"), ContentType::Research, Some("it wrote the text"));
        assert!(!result.should_block && result.level == Some(CritiqueLevel::Block));
        assert_eq!(result.disregarded.as_deref(), Some("it wrote the text"));
    }

    #[test]
    fn a_verdict_that_contradicts_itself_does_not_count() {
        let says = |level: &str| said(level).replace("0.75", "0.02");
        let counts = |level: &str| criticized(&says(level), ContentType::General, None).disregarded.is_none();
        assert_eq!(["pass", "minor", "major", "block"].map(counts), [false, false, true, true]);
    }

    #[test]
    fn without_the_form_there_is_no_verdict() {
        for says in ["I would block it.", "{}", r#"{"level": "block"}"#] {
            let result = criticized(says, ContentType::General, None);
            assert_eq!((result.level, result.should_block), (None, false), "{says}");
            assert!(result.judging.failure.is_some(), "{says}");
        }
    }

    #[test]
    fn the_critic_sees_text_and_context_in_the_prompt_of_the_type() {
        let (judge, model) = scripted::judge(JudgeSettings::shipped(), |_| Script::saying(&[&said("pass")]));
        for (kind, part) in ContentType::ALL.into_iter().zip(["SUPPORT", "NOVELTY", "BIAS", "CONTAMINATION"]) {
            let task = settings().task(kind, "Buy milk.", "Yesterday: bread.");
            judge.judge(task, "");
            let requests = model.requests();
            let turn = scripted::turn(requests.last().unwrap());
            assert!([part, "Buy milk.", "Yesterday: bread."].iter().all(|text| turn.contains(text)), "{turn}");
        }
    }

    #[test]
    fn a_pair_comes_before_the_model() {
        let pairs = vec!["small -> large".to_owned(), "large->larger".to_owned()];
        let settings = CritiqueSettings { pairs, model: "any".to_owned(), ..settings() };
        let critics = ["small", "large", "other"].map(|name| settings.critic_of(name));
        assert_eq!(critics, [Some("large"), Some("larger"), Some("any")]);
        assert_eq!(CritiqueSettings { model: String::new(), ..settings.clone() }.critic_of("other"), None);
        for wrong in ["small", "-> large", "small ->", ""] {
            let settings = CritiqueSettings { pairs: vec![wrong.to_owned()], ..settings.clone() };
            assert!(settings.check().unwrap_err().starts_with("pairs has "), "{wrong}");
        }
        for settings in [
            CritiqueSettings { per_hour: 0, ..settings.clone() },
            CritiqueSettings { blocks_before_cooldown: 0, ..settings.clone() },
            CritiqueSettings { cooldown_minutes: f64::NAN, ..settings.clone() },
            CritiqueSettings { least_precision: f64::NAN, ..settings.clone() },
        ] {
            assert!(settings.check().is_err(), "{settings:?}");
        }
        let settings = CritiqueSettings { research_prompt: "Check {context}.".to_owned(), ..settings };
        assert!(settings.check().unwrap_err().starts_with("research_prompt has no place"));
    }
}
