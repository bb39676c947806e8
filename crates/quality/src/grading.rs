//! Grading: gives an answer a score from 1 to 5 and the reasons for it.

use hone_protocol::{Completion, Constraint, Grade};
use serde::{Deserialize, Serialize};

use crate::judge::{Form, Judge};
use crate::likelihood::Opinion;
use crate::neutralize::neutralized;
use crate::probabilities::{ScoreDistribution, score_distribution, spellings};
use crate::prompt::JudgePrompt;
use crate::shorten::with_remark;
use crate::suspicion::Examined;
use crate::task::{Shown, Task, without_verdict};
use crate::verdict::score_at_end;

/// Precedes the score.
const MARKER: &str = "[RESULT]";
/// Tokens of the marker and the score, even for a tokenizer with one token per byte.
const TAIL_TOKENS: usize = 16;

/// An answer to grade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradeTask {
    /// What was asked.
    pub query: String,
    /// What was answered.
    pub answer: String,
    /// An answer that deserves a 5, if there is one.
    #[serde(default)]
    pub reference: Option<String>,
}

impl Task for GradeTask {
    type Verdict = Grade;

    fn query(&self) -> &str {
        &self.query
    }

    fn answers(&self) -> Vec<&str> {
        vec![&self.answer]
    }

    /// The same question, repeated as often as the settings say.
    fn requests(&self, judge: &Judge, shown: &Shown) -> Vec<(JudgePrompt, Form)> {
        let prompt = prompt(judge, shown, self.reference.as_deref().map(neutralized).as_deref());
        let feedback_tokens = judge.settings().feedback_tokens;
        let form = |seed| Form {
            seed,
            constraint: Constraint::FreeThenRegex {
                free_tokens: feedback_tokens,
                marker: MARKER.to_owned(),
                regex: " ?[1-5]".to_owned(),
            },
            max_tokens: feedback_tokens + TAIL_TOKENS,
            named: spellings(&["1", "2", "3", "4", "5"]),
        };
        let seeds = 0..judge.settings().samples as u64;
        seeds.map(|seed| (prompt.clone(), form(seed))).collect()
    }

    fn unjudged(judge: &Judge, examined: &[Examined]) -> Grade {
        let suspicious = examined.iter().find_map(|examined| examined.suspicion.clone());
        Grade { rubric: judge.rubric().name.clone(), suspicious, ..Grade::default() }
    }

    fn conclude(_: &Judge, said: &[Option<&Completion>], shown: &Shown, unjudged: Grade) -> Option<Grade> {
        let said: Vec<&Completion> = said.iter().copied().collect::<Option<_>>()?;
        let feedback = |text: &str| with_remark(without_label(text.trim()), shown.left_out, "answer");
        let samples: Vec<Sample<'_>> = said.iter().filter_map(|completion| sample_of(completion)).collect();
        let distributions: Vec<ScoreDistribution> = samples.iter().filter_map(|sample| sample.distribution).collect();
        let distribution = ScoreDistribution::mean(&distributions);
        let Some(chosen) = most_frequent(&samples) else {
            let feedback = said.first().map_or_else(String::new, |first| feedback(&first.text));
            return Some(without_verdict(Grade { feedback, ..unjudged }, "the judge wrote no verdict"));
        };
        Some(Grade {
            score: Some(chosen.score),
            feedback: feedback(chosen.feedback),
            expected_score: distribution.map(|distribution| distribution.expected_score()),
            entropy: distribution.map(|distribution| distribution.entropy()),
            ..unjudged
        })
    }

    fn weigh(_: &Judge, opinions: &[Opinion], unjudged: Grade) -> Grade {
        let Some(opinion) = opinions.first() else { return unjudged };
        let expected_score = 1.0 + 4.0 * opinion.probability();
        Grade {
            score: Some(expected_score.round() as u8),
            feedback: opinion.reason(),
            expected_score: Some(expected_score),
            ..unjudged
        }
    }
}

fn prompt(judge: &Judge, shown: &Shown, reference: Option<&str>) -> JudgePrompt {
    let templates = &judge.settings().templates;
    let template = match reference {
        Some(_) => &templates.absolute_reference_prompt,
        None => &templates.absolute_prompt,
    };
    let mut texts = vec![("query", shown.query.as_str()), ("answer", shown.answers[0].as_str())];
    texts.extend(reference.map(|reference| ("reference", reference)));
    judge.prompt(&templates.absolute_system, template, &texts)
}

/// The judge's response to one request.
struct Sample<'a> {
    score: u8,
    feedback: &'a str,
    distribution: Option<ScoreDistribution>,
}

fn sample_of(completion: &Completion) -> Option<Sample<'_>> {
    let found = score_at_end(&completion.text)?;
    let distribution = score_distribution(&completion.logprobs, found.verdict);
    Some(Sample { score: found.verdict, feedback: &completion.text[..found.place.start], distribution })
}

/// The first sample with the most frequent score; among equally frequent scores, the one nearest to the mean.
fn most_frequent<'a>(samples: &'a [Sample<'a>]) -> Option<&'a Sample<'a>> {
    let mean = samples.iter().map(|sample| f64::from(sample.score)).sum::<f64>() / samples.len() as f64;
    let n_votes = |score: u8| samples.iter().filter(|sample| sample.score == score).count();
    let is_better = |best: &Sample<'_>, other: &Sample<'_>| {
        let distance = |sample: &Sample<'_>| (f64::from(sample.score) - mean).abs();
        let votes = n_votes(other.score).cmp(&n_votes(best.score));
        votes.is_gt() || votes.is_eq() && distance(other) < distance(best)
    };
    samples.iter().reduce(|best, other| if is_better(best, other) { other } else { best })
}

/// The feedback without the label that the prompt ends with, in case the judge repeats it.
fn without_label(text: &str) -> &str {
    const LABEL: &str = "feedback:";
    let bare = text.trim_start_matches(['#', '*', ' ']);
    match bare.get(..LABEL.len()) {
        Some(start) if start.eq_ignore_ascii_case(LABEL) => bare[LABEL.len()..].trim_start_matches('*').trim_start(),
        _ => text,
    }
}
