//! Quality of agents and models: statistics over scores, kept apart by scale.
//!
//! A judge's scores, the outcomes of tasks, and a model's self-assessment are on different scales and never share a
//! mean. Rows without a score count in no mean, and are counted separately.

mod pairs;
mod regression;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hone_protocol::{Likely, RespondentId};
use serde::Serialize;

pub use self::pairs::{Contender, PairReport, PairRow, Share};
pub use self::regression::{Conclusion, PairOutcome, Regression, sample};

/// The number of equal parts of a scale's range in a distribution.
const PARTS: usize = 5;
/// Two-sided 95 % of the normal distribution.
const Z: f64 = 1.96;
const DAY: u64 = 86_400_000;

/// An item that was scored, or should have been.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportRow {
    /// The model that produced it.
    pub agent: String,
    /// Its respondent; `None` for a task.
    pub respondent: Option<RespondentId>,
    /// The temperature, if it is known.
    pub temperature: Option<f32>,
    /// Whether the model reasoned first.
    pub thinking: bool,
    /// The kind of task or question.
    pub kind: Cow<'static, str>,
    /// The scores that it is comparable with: outcomes of tasks, or a judge and its rubric.
    pub scale: Arc<str>,
    /// The worst and the best score of the scale.
    pub range: [f64; 2],
    /// The score.
    pub score: Option<f64>,
    /// The mark of a judge that gives no scores.
    pub likely: Option<Likely>,
    /// Time in milliseconds since 1970.
    pub at: u64,
    /// Suggestions for improvement.
    pub suggestions: Vec<String>,
}

/// The range of a judge's grades.
pub const GRADES: [f64; 2] = [1.0, 5.0];
/// The range of outcomes of tasks.
pub const OUTCOMES: [f64; 2] = [0.0, 1.0];

/// A period of a trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A day (UTC).
    Day,
    /// Seven days, counted from 1970-01-01.
    Week,
}

impl Period {
    /// The beginning of the period that contains a time, both in milliseconds since 1970.
    pub fn begin_of(self, at: u64) -> u64 {
        let length = match self {
            Period::Day => DAY,
            Period::Week => 7 * DAY,
        };
        at / length * length
    }
}

/// Figures over scores of one scale.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScoreFigures {
    /// Rows with a score.
    pub scored: usize,
    /// Rows without one.
    pub unscored: usize,
    /// Rows that a judge without scores marked as likely right.
    pub likely_right: usize,
    /// Rows that such a judge marked as likely wrong.
    pub likely_wrong: usize,
    /// The mean; `None` without scores.
    pub mean: Option<f64>,
    /// The 95 % confidence interval of the mean; `None` with fewer than two scores.
    pub interval: Option<[f64; 2]>,
    /// The standard deviation; `None` with fewer than two scores.
    pub spread: Option<f64>,
    /// The number of scores in each fifth of the range.
    pub distribution: [usize; PARTS],
}

/// The figures of a scale.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScaleReport {
    /// The scores that it is comparable with.
    pub scale: String,
    /// The worst and the best score.
    pub range: [f64; 2],
    /// Figures over all rows.
    pub all: ScoreFigures,
    /// Figures by agent.
    pub agents: BTreeMap<String, ScoreFigures>,
    /// Figures by respondent.
    pub respondents: BTreeMap<String, ScoreFigures>,
    /// Figures by kind of task.
    pub kinds: BTreeMap<String, ScoreFigures>,
    /// Figures by configuration and kind; empty for a single configuration. A configuration is a model
    /// (each quantization has its own name), a temperature, and whether it reasons.
    pub configurations: Vec<ConfigurationFigures>,
    /// Figures by period, keyed by the day on which it begins, in milliseconds since 1970; empty unless requested.
    pub trend: BTreeMap<u64, ScoreFigures>,
}

/// The figures of a configuration for one kind of question or task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigurationFigures {
    /// The model.
    pub model: String,
    /// Its temperature, if it is known.
    pub temperature: Option<f32>,
    /// Whether it reasoned first.
    pub thinking: bool,
    /// The kind of question or task.
    pub kind: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: ScoreFigures,
}

/// Quality figures by scale.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QualityReport {
    /// The scales, in alphabetical order.
    pub scales: Vec<ScaleReport>,
}

impl QualityReport {
    /// The figures over these rows.
    pub fn of(rows: &[ReportRow], period: Option<Period>) -> QualityReport {
        let mut by_scale: BTreeMap<&str, Vec<&ReportRow>> = BTreeMap::new();
        for row in rows {
            by_scale.entry(&row.scale).or_default().push(row);
        }
        let scales = by_scale.into_iter().map(|(scale, rows)| {
            let answers: Vec<&ReportRow> = rows.iter().copied().filter(|row| row.respondent.is_some()).collect();
            ScaleReport {
                scale: scale.to_owned(),
                range: rows.first().map_or(OUTCOMES, |row| row.range),
                all: figures(&rows),
                agents: named(grouped(&rows, |row| row.agent.as_str())),
                respondents: named(grouped(&answers, |row| row.respondent.as_ref().map_or("", RespondentId::name))),
                kinds: named(grouped(&rows, |row| row.kind.as_ref())),
                configurations: configurations(&rows),
                trend: period.map(|period| grouped(&rows, |row| period.begin_of(row.at))).unwrap_or_default(),
            }
        });
        QualityReport { scales: scales.collect() }
    }

    /// The lowest mean of the scales with this range; `None` without scores.
    pub fn lowest_mean(&self, range: [f64; 2]) -> Option<f64> {
        let scales = self.scales.iter().filter(|scale| scale.range == range);
        scales.filter_map(|scale| scale.all.mean).reduce(f64::min)
    }
}

/// Each distinct text with its count, the most common first; ties are in order of first occurrence.
pub fn counted<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<(String, usize)> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for text in texts {
        let place = *places.entry(text).or_insert(counts.len());
        if place == counts.len() {
            counts.push((text, 0));
        }
        counts[place].1 += 1;
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(text, count)| (text.to_owned(), count)).collect()
}

/// A share of a number of cases with its 95 % interval, by Wilson's score (1927), which is also valid for few cases.
pub fn share_with_interval(cases: u64, of: u64) -> Option<(f64, [f64; 2])> {
    let n = of as f64;
    let share = (of > 0).then(|| cases as f64 / n)?;
    let (center, scale) = (share + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some((share, [((center - half) / scale).max(0.0), ((center + half) / scale).min(1.0)]))
}

fn grouped<'a, K: Ord>(rows: &[&'a ReportRow], key: impl Fn(&'a ReportRow) -> K) -> BTreeMap<K, ScoreFigures> {
    let mut groups: BTreeMap<K, Vec<&ReportRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    groups.into_iter().map(|(key, rows)| (key, figures(&rows))).collect()
}

/// The figures by configuration and kind. Empty for a single configuration, whose figures by kind are already in the
/// report.
fn configurations(rows: &[&ReportRow]) -> Vec<ConfigurationFigures> {
    // Temperatures are at least 0, so their bits sort like their values.
    let configuration = |row: &ReportRow| (row.temperature.map(f32::to_bits), row.thinking);
    let is_other = |row: &&ReportRow| {
        rows.first().is_some_and(|first| (&first.agent, configuration(first)) != (&row.agent, configuration(row)))
    };
    if !rows.iter().any(is_other) {
        return Vec::new();
    }
    let groups = grouped(rows, |row| (row.agent.as_str(), row.kind.as_ref(), configuration(row)));
    let figures = groups.into_iter().map(|((model, kind, (bits, thinking)), figures)| ConfigurationFigures {
        model: model.to_owned(),
        temperature: bits.map(f32::from_bits),
        thinking,
        kind: kind.to_owned(),
        figures,
    });
    figures.collect()
}

/// The groups under their names.
fn named(groups: BTreeMap<&str, ScoreFigures>) -> BTreeMap<String, ScoreFigures> {
    groups.into_iter().map(|(name, figures)| (name.to_owned(), figures)).collect()
}

fn figures(rows: &[&ReportRow]) -> ScoreFigures {
    let scores: Vec<f64> = rows.iter().filter_map(|row| row.score).collect();
    let n = scores.len() as f64;
    let mean = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / n);
    let spread = mean.filter(|_| scores.len() > 1).map(|mean| {
        let squares: f64 = scores.iter().map(|score| (score - mean).powi(2)).sum();
        (squares / (n - 1.0)).sqrt()
    });
    let [worst, best] = rows.first().map_or(OUTCOMES, |row| row.range);
    let interval = mean.zip(spread).map(|(mean, spread)| {
        let half = Z * spread / n.sqrt();
        [(mean - half).max(worst), (mean + half).min(best)]
    });
    let mut distribution = [0; PARTS];
    for score in &scores {
        let place = (score - worst) / (best - worst) * PARTS as f64;
        distribution[(place as usize).min(PARTS - 1)] += 1;
    }
    let marked = |mark| rows.iter().filter(|row| row.likely == Some(mark)).count();
    ScoreFigures {
        scored: scores.len(),
        unscored: rows.len() - scores.len(),
        likely_right: marked(Likely::Right),
        likely_wrong: marked(Likely::Wrong),
        mean,
        interval,
        spread,
        distribution,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale_is_of_answers(scale: &str) -> bool {
        scale != "tasks"
    }

    fn row(agent: &str, scale: &str, score: Option<f64>) -> ReportRow {
        let (agent, kind) = (agent.to_owned(), "python".into());
        let respondent = scale_is_of_answers(scale).then_some(RespondentId::A);
        ReportRow {
            agent,
            respondent,
            temperature: respondent.map(|_| 0.7),
            thinking: false,
            kind,
            scale: scale.into(),
            range: if respondent.is_some() { GRADES } else { OUTCOMES },
            score,
            likely: None,
            at: 10 * DAY,
            suggestions: Vec::new(),
        }
    }

    #[test]
    fn marks_are_counted_beside_the_scores() {
        let marked = |likely| ReportRow { likely, ..row("a", "likelihood", None) };
        let report = QualityReport::of(
            &[marked(Some(Likely::Right)), marked(Some(Likely::Right)), marked(Some(Likely::Wrong)), marked(None)],
            None,
        );
        let all = &report.scales[0].all;
        assert_eq!((all.scored, all.unscored, all.likely_right, all.likely_wrong), (0, 4, 2, 1));
    }

    #[test]
    fn scales_are_kept_apart_and_what_has_no_score_is_no_zero() {
        let rows = [
            row("a", "tasks", Some(1.0)),
            row("a", "tasks", None),
            row("b", "tasks", Some(0.5)),
            row("a", "judge", Some(2.0)),
        ];
        let report = QualityReport::of(&rows, None);
        let [judge, tasks] = &report.scales[..] else { panic!("{report:?}") };
        assert_eq!((tasks.all.scored, tasks.all.unscored, tasks.all.mean), (2, 1, Some(0.75)));
        assert_eq!((tasks.agents["a"].mean, tasks.agents["b"].mean), (Some(1.0), Some(0.5)));
        assert_eq!((judge.all.mean, judge.all.interval, judge.all.distribution), (Some(2.0), None, [0, 1, 0, 0, 0]));
        assert_eq!((tasks.respondents.len(), judge.respondents["A"].scored), (0, 1));
        assert_eq!(tasks.all.distribution, [0, 0, 1, 0, 1]);
        assert_eq!((report.lowest_mean(GRADES), report.lowest_mean(OUTCOMES)), (Some(2.0), Some(0.75)));
        assert_eq!(QualityReport::of(&[row("a", "tasks", None)], None).lowest_mean(OUTCOMES), None);
    }

    #[test]
    fn the_interval_is_that_of_the_normal_distribution() {
        let rows: Vec<ReportRow> = [0.2, 0.4, 0.6, 0.8].map(|score| row("a", "tasks", Some(score))).to_vec();
        let figures = QualityReport::of(&rows, None).scales.remove(0).all;
        // sd = 0.2582, se = 0.1291
        let [low, high] = figures.interval.unwrap();
        assert!((low - 0.2470).abs() < 1e-3 && (high - 0.7530).abs() < 1e-3, "{figures:?}");
    }

    #[test]
    fn configurations_are_kept_apart_where_there_are_several() {
        let mut rows = vec![row("a", "judge", Some(2.0)), row("a", "judge", Some(4.0))];
        assert_eq!(QualityReport::of(&rows, None).scales[0].configurations, []);
        rows[1].temperature = Some(0.0);
        let found = QualityReport::of(&rows, None).scales.remove(0).configurations;
        let means: Vec<_> = found.iter().map(|it| (it.temperature, it.kind.as_str(), it.figures.mean)).collect();
        assert_eq!(means, [(Some(0.0), "python", Some(4.0)), (Some(0.7), "python", Some(2.0))]);
        rows[1] = ReportRow { thinking: true, ..row("a", "judge", Some(5.0)) };
        let found = QualityReport::of(&rows, None).scales.remove(0).configurations;
        let means: Vec<_> = found.iter().map(|it| (it.thinking, it.figures.mean)).collect();
        assert_eq!(means, [(false, Some(2.0)), (true, Some(5.0))]);
    }

    #[test]
    fn trends_and_feedback_are_counted() {
        let mut rows = vec![row("a", "tasks", Some(0.5)); 4];
        for row in &mut rows {
            row.suggestions = vec!["fix add".into()];
        }
        rows[3].at = 11 * DAY + 5;
        rows[3].suggestions = vec!["other".into()];
        let report = QualityReport::of(&rows, Some(Period::Day));
        let suggestions = rows.iter().flat_map(|row| &row.suggestions).map(String::as_str);
        assert_eq!(counted(suggestions), [("fix add".to_owned(), 3), ("other".to_owned(), 1)]);
        let days: Vec<u64> = report.scales[0].trend.keys().copied().collect();
        assert_eq!(days, [10 * DAY, 11 * DAY]);
        assert_eq!(QualityReport::of(&rows, Some(Period::Week)).scales[0].trend.len(), 1);
    }

    #[test]
    fn a_share_has_wilsons_interval() {
        let (share, [low, high]) = share_with_interval(8, 10).unwrap();
        assert!(share == 0.8 && (low - 0.4902).abs() < 1e-3 && (high - 0.9433).abs() < 1e-3, "{low} {high}");
        assert_eq!(share_with_interval(0, 0), None);
        assert_eq!(share_with_interval(0, 5).unwrap().1[0], 0.0);
    }
}
