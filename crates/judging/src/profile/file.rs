//! Profiles as stored in `judges.toml`: tables of keys, some of which list only their differences from another profile.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use toml::Table;

use super::{ENDING, Ending, FeedbackMode, InvalidProfile, JudgeProfile, JudgeProfiles, PLAIN, RubricForm};
use crate::form::{FormKind, Labels, ThinkingForm, VerdictForm};
use crate::prompt::has_place;

/// The key that names the profile to inherit missing keys from.
const LIKE: &str = "like";
/// Maximum number of labels of a verdict.
const MOST_LABELS: usize = 100;
/// The longest timeout, in seconds: a week.
const LONGEST_TIMEOUT: f64 = 604_800.0;
/// Minimum context in tokens; a smaller one cannot hold a prompt.
const LEAST_CONTEXT: i64 = 256;

impl TryFrom<BTreeMap<String, Table>> for JudgeProfiles {
    type Error = InvalidProfile;

    fn try_from(tables: BTreeMap<String, Table>) -> Result<Self, Self::Error> {
        let profile = |name: &String| {
            let invalid = |reason: String| InvalidProfile { name: name.clone(), reason };
            let table = whole(&tables, name).map_err(invalid)?;
            let file: ProfileFile =
                table.try_into().map_err(|error: toml::de::Error| invalid(error.message().to_owned()))?;
            Ok((name.clone(), file.check(name).map_err(invalid)?))
        };
        let profiles = tables.keys().map(profile).collect::<Result<BTreeMap<_, _>, _>>()?;
        match profiles.contains_key(PLAIN) {
            true => Ok(JudgeProfiles(profiles)),
            false => Err(InvalidProfile { name: PLAIN.to_owned(), reason: "it is missing".to_owned() }),
        }
    }
}

/// A profile with its inherited keys.
fn whole(tables: &BTreeMap<String, Table>, name: &str) -> Result<Table, String> {
    let mut table = Table::new();
    let mut names = vec![name.to_owned()];
    while let Some(current) = names.last() {
        let own = tables.get(current).ok_or_else(|| format!("{LIKE} is {current:?}, and no profile has this name"))?;
        if current == PLAIN && asks_for_reasons(&table) {
            table.entry("feedback").or_insert_with(|| "always".into());
        }
        own.iter().filter(|(key, _)| *key != LIKE).for_each(|(key, value)| {
            table.entry(key.clone()).or_insert_with(|| value.clone());
        });
        let next = match own.get(LIKE) {
            Some(toml::Value::String(like)) => like.clone(),
            Some(other) => return Err(format!("{LIKE} is {other}: it must be the name of a profile")),
            None if current == PLAIN => break,
            None => PLAIN.to_owned(),
        };
        if names.contains(&next) {
            return Err(format!("{LIKE} leads in a circle: {} and {next}", names.join(", ")));
        }
        names.push(next);
    }
    Ok(table)
}

/// Whether a profile has its own prompt without a place for the instructions about the judge's output.
fn asks_for_reasons(own: &Table) -> bool {
    own.get("absolute_prompt").and_then(toml::Value::as_str).is_some_and(|prompt| !has_place(prompt, ENDING))
}

/// A profile as stored in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    about: String,
    models: Vec<String>,
    temperature: f64,
    context: i64,
    grade_timeout: f64,
    feedback: FeedbackMode,
    system_message: bool,
    thinking_tokens: i64,
    thinking_end: String,
    rubric_criterion: String,
    rubric_score: String,
    scores: Vec<String>,
    score_form: FormKind,
    score_place: String,
    score_reasons: String,
    score_ending: String,
    score_ending_alone: String,
    choices: Vec<String>,
    choice_form: FormKind,
    choice_place: String,
    choice_reasons: String,
    choice_ending: String,
    choice_ending_alone: String,
    absolute_system: String,
    absolute_prompt: String,
    absolute_reference_prompt: String,
    pairwise_system: String,
    pairwise_prompt: String,
}

impl ProfileFile {
    fn check(self, name: &str) -> Result<JudgeProfile, String> {
        if !is_name(name) {
            return Err("its name may hold letters, digits and underscores only".to_owned());
        }
        self.check_templates()?;
        let (temperature, context, grade_timeout) = (self.temperature()?, self.context()?, self.grade_timeout()?);
        let thinking = self.thinking()?;
        let score =
            FormKeys { form: "score", kind: self.score_form, place: self.score_place, reasons: self.score_reasons };
        let choice =
            FormKeys { form: "choice", kind: self.choice_form, place: self.choice_place, reasons: self.choice_reasons };
        Ok(JudgeProfile {
            name: name.to_owned(),
            about: self.about,
            models: self.models.iter().map(|part| part.to_lowercase()).filter(|part| !part.is_empty()).collect(),
            temperature,
            context,
            grade_timeout,
            feedback: self.feedback,
            system_message: self.system_message,
            rubric: RubricForm { criterion: self.rubric_criterion, score: self.rubric_score },
            absolute_system: self.absolute_system,
            absolute_prompt: self.absolute_prompt,
            absolute_reference_prompt: self.absolute_reference_prompt,
            pairwise_system: self.pairwise_system,
            pairwise_prompt: self.pairwise_prompt,
            score_ending: Ending { with_reasons: self.score_ending, alone: self.score_ending_alone },
            choice_ending: Ending { with_reasons: self.choice_ending, alone: self.choice_ending_alone },
            score: score.check(labels("scores", self.scores)?, thinking.clone())?,
            choice: choice.check(pair(labels("choices", self.choices)?)?, thinking)?,
        })
    }

    fn check_templates(&self) -> Result<(), String> {
        places("rubric_criterion", &self.rubric_criterion, &["criterion"])?;
        places("rubric_score", &self.rubric_score, &["score", "meaning"])?;
        places("absolute_prompt", &self.absolute_prompt, &["query", "answer"])?;
        places("absolute_reference_prompt", &self.absolute_reference_prompt, &["query", "answer", "reference"])?;
        places("pairwise_prompt", &self.pairwise_prompt, &["query", "answer_a", "answer_b"])?;
        let prompts = [&self.absolute_prompt, &self.absolute_reference_prompt];
        for (key, prompt) in ["absolute_prompt", "absolute_reference_prompt"].into_iter().zip(prompts) {
            let shows = |place| has_place(prompt, place) || has_place(&self.absolute_system, place);
            if !(shows("rubric") || shows("criterion") && shows("scores")) {
                places(key, prompt, &["rubric"])?;
            }
        }
        let judged = ["query", "answer", "reference", "answer_a", "answer_b"];
        for (key, system) in [("absolute_system", &self.absolute_system), ("pairwise_system", &self.pairwise_system)] {
            if let Some(place) = judged.iter().find(|place| has_place(system, place)) {
                return Err(format!("{key} has a place for the {place}, which belongs in the prompt"));
            }
        }
        Ok(())
    }

    fn temperature(&self) -> Result<f32, String> {
        match (0.0..=f64::from(f32::MAX)).contains(&self.temperature) {
            true => Ok(self.temperature as f32),
            false => Err(format!("temperature is {}: it must be 0 or more", self.temperature)),
        }
    }

    fn context(&self) -> Result<usize, String> {
        let context = usize::try_from(self.context).ok().filter(|_| self.context >= LEAST_CONTEXT);
        context.ok_or_else(|| format!("context is {}: it must be 256 or more", self.context))
    }

    fn grade_timeout(&self) -> Result<Duration, String> {
        match self.grade_timeout > 0.0 && self.grade_timeout <= LONGEST_TIMEOUT {
            true => Ok(Duration::from_secs_f64(self.grade_timeout)),
            false => {
                Err(format!("grade_timeout is {}: it must be above 0 and at most 604800 (seconds)", self.grade_timeout))
            }
        }
    }

    fn thinking(&self) -> Result<ThinkingForm, String> {
        let invalid = |_| format!("thinking_tokens is {}: it must be 0 or more", self.thinking_tokens);
        let tokens = usize::try_from(self.thinking_tokens).map_err(invalid)?;
        match tokens > 0 && self.thinking_end.is_empty() {
            true => Err("thinking_end is empty: it must be the text that ends the judge's thoughts".to_owned()),
            false => Ok(ThinkingForm { tokens, end: self.thinking_end.clone() }),
        }
    }
}

/// The keys of a form, which begin with its name.
struct FormKeys {
    form: &'static str,
    kind: FormKind,
    place: String,
    reasons: String,
}

impl FormKeys {
    fn check(self, labels: Labels, thinking: ThinkingForm) -> Result<VerdictForm, String> {
        self.check_place()?;
        self.check_reasons()?;
        let FormKeys { kind, place, reasons, .. } = self;
        Ok(VerdictForm {
            kind,
            place: if kind == FormKind::First { String::new() } else { place },
            reason_place: if matches!(kind, FormKind::Tag | FormKind::Json) { reasons } else { String::new() },
            labels,
            thinking,
            alone: None,
        })
    }

    fn check_place(&self) -> Result<(), String> {
        let FormKeys { form, place, .. } = self;
        let expected = match self.kind {
            FormKind::Marker if place.trim().is_empty() => "a text such as [RESULT]",
            FormKind::Tag if !is_name(place) => "the name of a tag, of letters, digits and underscores",
            FormKind::Json if !is_path(place) => "a key, or keys with points between them",
            _ => return Ok(()),
        };
        Err(format!("{form}_place is {place:?}: it must be {expected}"))
    }

    fn check_reasons(&self) -> Result<(), String> {
        let FormKeys { form, place, reasons, .. } = self;
        let is_sound = match self.kind {
            FormKind::Marker | FormKind::First => true,
            _ if reasons.is_empty() => true,
            FormKind::Tag => is_name(reasons) && reasons != place,
            FormKind::Json => is_path(reasons) && !is_inside(reasons, place) && !is_inside(place, reasons),
        };
        match is_sound {
            true => Ok(()),
            false => {
                Err(format!("{form}_reasons is {reasons:?}: it must be another place like {form}_place, or empty"))
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn is_path(text: &str) -> bool {
    text.split('.').all(is_name)
}

/// Whether a path equals another one or extends it.
fn is_inside(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn labels(key: &str, names: Vec<String>) -> Result<Labels, String> {
    let is_repeated = |index: usize, name: &String| names[..index].contains(name);
    if !(2..=MOST_LABELS).contains(&names.len()) {
        return Err(format!(
            "{key} has {} texts, expected 2 to {MOST_LABELS}, from the worst to the best",
            names.len()
        ));
    }
    if let Some((_, name)) = names.iter().enumerate().find(|(index, name)| is_repeated(*index, name)) {
        return Err(format!("{key} has {name:?} twice"));
    }
    match names.iter().find(|name| name.trim() != name.as_str() || name.is_empty()) {
        Some(name) => Err(format!("{key} has {name:?}, which is empty or has white space around it")),
        None => Ok(Labels::new(names)),
    }
}

/// The labels of two answers.
fn pair(labels: Labels) -> Result<Labels, String> {
    match labels.len() {
        2 => Ok(labels),
        n => Err(format!("choices has {n} texts, expected 2: for the first answer and for the second")),
    }
}

fn places(key: &str, template: &str, places: &[&str]) -> Result<(), String> {
    match places.iter().find(|place| !has_place(template, place)) {
        Some(place) => Err(format!("{key} has no place for the {place}: write {{{place}}} where it belongs")),
        None => Ok(()),
    }
}
