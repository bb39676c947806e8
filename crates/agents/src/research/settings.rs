//! Research settings: `research.toml`.

use std::time::Duration;

use hone_judging::has_place;
use hone_protocol::SamplingOptions;
use serde::Deserialize;

use super::passages::PassageSize;

/// The treatment of claims without support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unsupported {
    /// They are left out of the answer.
    Remove,
    /// They are kept and marked.
    Mark,
}

/// Research settings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResearchSettings {
    /// The model that checks the claims against their passages; empty for the judge of answers.
    pub judge: String,
    /// The most passages that the model is shown, including those from memory.
    pub n_passages: usize,
    /// The most of them that are recalled from memory.
    pub n_recalled: usize,
    /// The most characters of a passage.
    pub passage_characters: usize,
    /// The most characters that a passage repeats from the passage before it, in whole lines.
    pub overlap_characters: usize,
    /// The most files.
    pub most_files: usize,
    /// The largest file, in MiB.
    pub largest_file_mib: u64,
    /// The most text of all files, in MiB.
    pub most_text_mib: usize,
    /// The treatment of claims without support.
    pub unsupported: Unsupported,
    /// The share of a claim's words that its passages must contain, 0 to 1.
    pub least_words: f64,
    /// The most claims of an answer.
    pub most_claims: usize,
    /// The most tokens of an answer.
    pub max_tokens: usize,
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// The most tokens of a verdict on a claim.
    pub claim_tokens: usize,
    /// The time limit for a verdict, in seconds, not counting time spent waiting.
    pub claim_timeout: f64,
    /// The answering model's prompt, with placeholders for the question and the passages.
    pub answer_prompt: String,
    /// The judge's prompt, with placeholders for the claim and its passages.
    pub claim_prompt: String,
}

impl ResearchSettings {
    /// The settings that hone ships with.
    ///
    /// # Panics
    /// When `config/research.toml` is invalid, which a test would have detected.
    #[cfg(test)]
    pub(crate) fn shipped() -> ResearchSettings {
        toml::from_str(include_str!("../../../../config/research.toml")).expect("it is checked by this test")
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The error in the first invalid one.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("n_passages", self.n_passages),
            ("most_files", self.most_files),
            ("most_text_mib", self.most_text_mib),
            ("most_claims", self.most_claims),
            ("max_tokens", self.max_tokens),
            ("claim_tokens", self.claim_tokens),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{key} is 0: it must be 1 or more"));
        }
        if self.largest_file_mib == 0 || self.largest_file_mib > 1024 {
            return Err(format!("largest_file_mib is {}: it must be 1 to 1024", self.largest_file_mib));
        }
        if self.passage_characters < 100 {
            return Err(format!("passage_characters is {}: it must be 100 or more", self.passage_characters));
        }
        if !(0.0..=1.0).contains(&self.least_words) {
            return Err(format!("least_words is {}: it must be 0 to 1", self.least_words));
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(format!("temperature is {}: it must be 0 or more", self.temperature));
        }
        if self.claim_timeout <= 0.0 || Duration::try_from_secs_f64(self.claim_timeout).is_err() {
            return Err(format!("claim_timeout is {}: it must be above 0 (seconds)", self.claim_timeout));
        }
        let places = [
            ("answer_prompt", &self.answer_prompt, "question"),
            ("answer_prompt", &self.answer_prompt, "passages"),
            ("claim_prompt", &self.claim_prompt, "content"),
            ("claim_prompt", &self.claim_prompt, "context"),
        ];
        match places.iter().find(|(_, prompt, place)| !has_place(prompt, place)) {
            Some((key, _, place)) => {
                Err(format!("{key} has no place for the {place}: write {{{place}}} where it belongs"))
            }
            None => Ok(()),
        }
    }

    /// The sampling options of the answering model: the same passages give the same answer.
    pub fn sampling(&self) -> SamplingOptions {
        SamplingOptions { temperature: self.temperature, seed: Some(0), ..SamplingOptions::default() }
    }

    /// The size of passages.
    pub(super) fn passage_size(&self) -> PassageSize {
        PassageSize { most: self.passage_characters, overlap: self.overlap_characters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut ResearchSettings), expected: &str) {
        let mut settings = ResearchSettings::shipped();
        change(&mut settings);
        assert_eq!(settings.check().err().unwrap_or_default(), expected);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        check(|_| (), "");
        check(|settings| settings.n_passages = 0, "n_passages is 0: it must be 1 or more");
        check(|settings| settings.least_words = 1.5, "least_words is 1.5: it must be 0 to 1");
        check(|settings| settings.passage_characters = 9, "passage_characters is 9: it must be 100 or more");
        check(|settings| settings.claim_timeout = 0.0, "claim_timeout is 0: it must be above 0 (seconds)");
        let expected = "answer_prompt has no place for the passages: write {passages} where it belongs";
        check(|settings| settings.answer_prompt = "{question}".to_owned(), expected);
    }
}
