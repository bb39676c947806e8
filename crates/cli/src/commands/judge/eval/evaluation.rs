//! The figures of one judge, and the agreement of several.

use hone_app::judging::JudgeSession;
use hone_app::judging::dataset::{DataSet, DecidedPair, ScoredAnswer};
use hone_judging::{
    ComparedPair, Figure, FigureUnit, GradedAnswer, MeasurementLevel, PAIR_MEASURES, RatedUnit, ReliabilityBin,
    SCORE_MEASURES, ScoreDistribution, krippendorff_alpha, reliability,
};
use hone_protocol::prospect::NO_VERDICT;
use hone_protocol::{Grade, Judging, JudgingMethod, Preference, RespondentId};
use serde::{Serialize, Serializer};

/// A judge's verdicts on a set, in the order of the set.
pub(super) struct Verdicts {
    pub(super) grades: Vec<Grade>,
    pub(super) preferences: Vec<Preference>,
}

/// A figure with its names.
pub(super) struct NamedFigure {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) unit: FigureUnit,
    pub(super) figure: Figure,
}

/// How well one judge agrees with a set.
#[derive(Serialize)]
pub(super) struct Evaluation {
    pub(super) judge: String,
    pub(super) profile: String,
    pub(super) rubric: String,
    /// Answers with a grade.
    pub(super) graded: usize,
    /// Pairs with a verdict.
    pub(super) compared: usize,
    /// Verdicts that could not be read.
    pub(super) unparsed: usize,
    /// Verdicts that are missing for another reason.
    pub(super) failed: usize,
    /// The reason for the last missing verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// How often each score was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) distribution: Option<ScoreDistribution>,
    #[serde(serialize_with = "by_key")]
    pub(super) figures: Vec<NamedFigure>,
    /// The share of good answers in each part of the scale.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reliability: Vec<ReliabilityBin>,
    #[serde(skip)]
    verdicts: Verdicts,
}

impl Evaluation {
    pub(super) fn new(judge: &str, session: &JudgeSession, set: &DataSet, verdicts: Verdicts) -> Evaluation {
        let answers: Vec<GradedAnswer> =
            set.answers.iter().zip(&verdicts.grades).filter_map(|(answer, grade)| graded(answer, grade)).collect();
        let pairs: Vec<ComparedPair> =
            set.pairs.iter().zip(&verdicts.preferences).filter_map(|(pair, said)| compared(pair, said)).collect();
        let failures = failures(&verdicts);
        let unparsed = failures.iter().filter(|failure| failure.starts_with(NO_VERDICT)).count();
        Evaluation {
            judge: judge.to_owned(),
            profile: session.judge().profile().name.clone(),
            rubric: session.judge().rubric().name.clone(),
            graded: answers.len(),
            compared: pairs.len(),
            unparsed,
            failed: failures.len() - unparsed,
            failure: failures.last().map(|failure| (*failure).to_owned()),
            distribution: (!set.answers.is_empty()).then(|| ScoreDistribution::of(&answers)),
            figures: figures(set, &answers, &pairs),
            reliability: reliability(&answers),
            verdicts,
        }
    }
}

/// The figures for which the set has data.
fn figures(set: &DataSet, answers: &[GradedAnswer], pairs: &[ComparedPair]) -> Vec<NamedFigure> {
    let mut figures = Vec::new();
    if !set.answers.is_empty() {
        figures.extend(SCORE_MEASURES.iter().map(|measure| NamedFigure {
            key: measure.key,
            label: measure.label,
            unit: measure.unit,
            figure: measure.figure(answers),
        }));
    }
    if !set.pairs.is_empty() {
        figures.extend(PAIR_MEASURES.iter().map(|measure| NamedFigure {
            key: measure.key,
            label: measure.label,
            unit: measure.unit,
            figure: measure.figure(pairs),
        }));
    }
    figures
}

fn failures(verdicts: &Verdicts) -> Vec<&str> {
    let grades = verdicts.grades.iter().map(|grade| &grade.judging);
    let preferences = verdicts.preferences.iter().map(|preference| &preference.judging);
    grades.chain(preferences).filter_map(|judging| judging.failure.as_deref()).collect()
}

fn graded(answer: &ScoredAnswer, grade: &Grade) -> Option<GradedAnswer> {
    Some(GradedAnswer {
        question: answer.question,
        reference: answer.reference,
        score: rounded(grade)?,
        expected_score: grade.on_scale(),
        characters: answer.task.task.answer.chars().count(),
        seconds: own_seconds(&grade.judging),
    })
}

/// The score, or the likelihood judge's probability on the scale of scores.
fn rounded(grade: &Grade) -> Option<u8> {
    grade.score.or_else(|| Some(grade.on_scale()?.round() as u8))
}

fn compared(pair: &DecidedPair, said: &Preference) -> Option<ComparedPair> {
    let task = &pair.task.task;
    let [a, b] = [&task.answer_a, &task.answer_b].map(|answer| answer.chars().count());
    let sees_order = said.judging.method == JudgingMethod::Prompted;
    said.judging.failure.is_none().then(|| ComparedPair {
        question: pair.question,
        reference: pair.reference,
        winner: said.winner,
        is_consistent: sees_order.then_some(said.consistent),
        longer: (a != b).then_some(if a > b { RespondentId::A } else { RespondentId::B }),
        seconds: own_seconds(&said.judging),
    })
}

/// The seconds spent judging, without waiting.
fn own_seconds(judging: &Judging) -> f64 {
    (judging.seconds - judging.queue_seconds).max(0.0)
}

fn by_key<S: Serializer>(figures: &[NamedFigure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|named| (named.key, &named.figure)))
}

/// How far judges agree with each other.
#[derive(Serialize)]
pub(super) struct JudgesAgreement {
    pub(super) judges: Vec<String>,
    /// Agreement of their scores, which are ordinal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scores: Option<Figure>,
    /// Agreement of their choices between two answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) choices: Option<Figure>,
}

impl JudgesAgreement {
    /// The agreement of each pair of judges, and of all.
    pub(super) fn of_all(set: &DataSet, evaluations: &[Evaluation]) -> Vec<JudgesAgreement> {
        let everybody: Vec<&Evaluation> = evaluations.iter().collect();
        let mut groups: Vec<Vec<&Evaluation>> = Vec::new();
        for (place, first) in everybody.iter().enumerate() {
            groups.extend(everybody[place + 1..].iter().map(|second| vec![*first, *second]));
        }
        if everybody.len() > 2 {
            groups.push(everybody);
        }
        groups.iter().map(|group| JudgesAgreement::of(set, group)).collect()
    }

    fn of(set: &DataSet, group: &[&Evaluation]) -> JudgesAgreement {
        let score = |evaluation: &Evaluation, place: usize| {
            rounded(&evaluation.verdicts.grades[place]).map(|score| usize::from(score.saturating_sub(1)))
        };
        let answers = set.answers.iter().map(|answer| answer.question);
        let pairs = set.pairs.iter().map(|pair| pair.question);
        JudgesAgreement {
            judges: group.iter().map(|evaluation| evaluation.judge.clone()).collect(),
            scores: (!set.answers.is_empty())
                .then(|| krippendorff_alpha(&units(group, answers, score), MeasurementLevel::Ordinal)),
            choices: (!set.pairs.is_empty())
                .then(|| krippendorff_alpha(&units(group, pairs, choice), MeasurementLevel::Nominal)),
        }
    }
}

fn units(
    group: &[&Evaluation],
    questions: impl Iterator<Item = usize>,
    value: impl Fn(&Evaluation, usize) -> Option<usize>,
) -> Vec<RatedUnit> {
    let unit = |(place, question)| RatedUnit {
        question,
        values: group.iter().filter_map(|evaluation| value(evaluation, place)).collect(),
    };
    questions.enumerate().map(unit).collect()
}

fn choice(evaluation: &Evaluation, place: usize) -> Option<usize> {
    let said = &evaluation.verdicts.preferences[place];
    let value = match said.winner {
        Some(RespondentId::A) => 0,
        Some(_) => 1,
        None => 2,
    };
    said.judging.failure.is_none().then_some(value)
}
