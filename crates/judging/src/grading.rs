//! Grading: gives an answer a score from 1 to 5 and the reasons for it.

use hone_protocol::{Completion, Grade};
use serde::{Deserialize, Serialize};

use crate::form::VerdictForm;
use crate::judge::{Judge, VerdictOptions};
use crate::likelihood::Opinion;
use crate::probabilities::LabelProbabilities;
use crate::prompt::JudgePrompt;
use crate::reward::about;
use crate::shorten::with_remark;
use crate::suspicion::ExaminedAnswer;
use crate::task::{JudgeTask, ShownTexts, no_verdict, without_label, without_verdict};

/// An answer to grade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradeTask {
    /// The question.
    pub query: String,
    /// The answer.
    pub answer: String,
    /// An answer that deserves a 5, if there is one.
    #[serde(default)]
    pub reference: Option<String>,
}

impl JudgeTask for GradeTask {
    type Verdict = Grade;

    fn query(&self) -> &str {
        &self.query
    }

    fn answers(&self) -> Vec<&str> {
        vec![&self.answer]
    }

    /// One request, repeated as often as the settings say.
    fn requests(&self, judge: &Judge, shown: &ShownTexts) -> Vec<(JudgePrompt, VerdictOptions)> {
        let reference = self.reference.as_deref().map(|reference| judge.neutralized(reference));
        let prompt = prompt(judge, shown, reference.as_deref());
        let form = judge.profile().score_form(judge.feedback());
        (0..judge.settings().samples as u64).map(|seed| (prompt.clone(), judge.form(&form, seed))).collect()
    }

    fn unjudged(judge: &Judge, examined: &[ExaminedAnswer]) -> Grade {
        let suspicious = examined.iter().find_map(|examined| examined.suspicion.clone());
        Grade { rubric: judge.rubric().name.clone(), suspicious, ..Grade::default() }
    }

    fn conclude(judge: &Judge, said: &[Option<&Completion>], shown: &ShownTexts, unjudged: Grade) -> Option<Grade> {
        let said: Vec<&Completion> = said.iter().copied().collect::<Option<_>>()?;
        let form = judge.profile().score_form(judge.feedback());
        let feedback = |text: &str| match without_label(text.trim()) {
            // Without reasons, a remark must not be mistaken for one.
            "" if form.alone.is_some() => String::new(),
            reasons => with_remark(reasons, shown.left_out, "answer"),
        };
        let read: Vec<Result<Sample, String>> = said.iter().map(|completion| sample_of(&form, completion)).collect();
        let samples: Vec<&Sample> = read.iter().flatten().collect();
        let distributions: Vec<LabelProbabilities> =
            samples.iter().filter_map(|sample| sample.distribution.clone()).collect();
        let Some(chosen) = most_frequent(&samples) else {
            let feedback = said.first().map_or_else(String::new, |first| feedback(&first.text));
            let expected = read.into_iter().find_map(Result::err).unwrap_or_default();
            return Some(without_verdict(Grade { feedback, ..unjudged }, &no_verdict(&expected)));
        };
        let labels = &form.labels;
        let distribution = LabelProbabilities::mean(&distributions);
        let expected_score = distribution.as_ref().map(|distribution| distribution.expected_score(labels));
        let label = match expected_score {
            Some(expected) if form.alone.is_some() => labels.nearest(expected),
            _ => chosen.label,
        };
        Some(Grade {
            score: Some(labels.score(label).round() as u8),
            raw_score: labels.names().get(label).cloned(),
            feedback: feedback(&chosen.reasons),
            expected_score,
            entropy: distribution.as_ref().map(LabelProbabilities::entropy),
            ..unjudged
        })
    }

    fn weigh(_: &Judge, opinions: &[Opinion], unjudged: Grade) -> Grade {
        let Some(opinion) = opinions.first() else { return unjudged };
        Grade {
            probability: Some(opinion.probability()),
            likely: opinion.likely,
            feedback: opinion.reason(),
            ..unjudged
        }
    }

    /// The score of its own is the reward.
    fn rate(judge: &Judge, rewards: &[f64], unjudged: Grade) -> Grade {
        let Some(&reward) = rewards.first() else { return unjudged };
        let scale = judge.standings().reward_scale;
        Grade {
            raw_score: Some((reward as f32).to_string()),
            probability: scale.as_ref().map(|scale| scale.probability(reward)),
            likely: scale.as_ref().and_then(|scale| scale.likely(reward)),
            feedback: about(reward, scale.as_deref(), &judge.settings().model),
            ..unjudged
        }
    }
}

fn prompt(judge: &Judge, shown: &ShownTexts, reference: Option<&str>) -> JudgePrompt {
    let profile = judge.profile();
    let template = profile.absolute(reference.is_some(), judge.feedback());
    let mut texts = vec![("query", shown.query.as_str()), ("answer", shown.answers[0].as_str())];
    texts.extend(reference.map(|reference| ("reference", reference)));
    judge.prompt(&profile.absolute_system, &template, &texts)
}

/// The judge's response to one request.
struct Sample {
    /// The index of the score among those of the judge's profile.
    label: usize,
    reasons: String,
    distribution: Option<LabelProbabilities>,
}

/// The sample, or the expected output where the judge gave no verdict.
fn sample_of(form: &VerdictForm, completion: &Completion) -> Result<Sample, String> {
    let reading = form.read(&completion.text)?;
    let distribution = LabelProbabilities::of(form, &completion.logprobs, reading.label);
    Ok(Sample { label: reading.label, reasons: reading.reasons.into_owned(), distribution })
}

/// The first sample with the most frequent score; ties go to the score nearest to the mean.
fn most_frequent<'a>(samples: &[&'a Sample]) -> Option<&'a Sample> {
    let mean = samples.iter().map(|sample| sample.label as f64).sum::<f64>() / samples.len() as f64;
    let n_votes = |label: usize| samples.iter().filter(|sample| sample.label == label).count();
    let is_better = |best: &Sample, other: &Sample| {
        let distance = |sample: &Sample| (sample.label as f64 - mean).abs();
        let votes = n_votes(other.label).cmp(&n_votes(best.label));
        votes.is_gt() || votes.is_eq() && distance(other) < distance(best)
    };
    samples.iter().copied().reduce(|best, other| if is_better(best, other) { other } else { best })
}
