//! Figures as a table, as JSON and as CSV.

use hone_app::judging::dataset::DataSet;
use hone_judging::{Figure, FigureUnit, ScoreDistribution};
use serde::Serialize;

use super::evaluation::{Evaluation, JudgesAgreement, NamedFigure};
use crate::invocation::Invocation;

/// The printed report.
#[derive(Serialize)]
pub(super) struct JudgeReport<'a> {
    /// The path or name of the set.
    set: String,
    /// The formats of its lines.
    formats: Vec<&'static str>,
    answers: usize,
    pairs: usize,
    judges: &'a [Evaluation],
    /// Krippendorff's alpha of each pair of judges, and of all.
    agreement: Vec<JudgesAgreement>,
}

impl<'a> JudgeReport<'a> {
    pub(super) fn new(set: &DataSet, evaluations: &'a [Evaluation]) -> JudgeReport<'a> {
        JudgeReport {
            set: set.name.clone(),
            formats: set.formats.iter().copied().collect(),
            answers: set.answers.len(),
            pairs: set.pairs.len(),
            judges: evaluations,
            agreement: JudgesAgreement::of_all(set, evaluations),
        }
    }

    /// Prints a row for each figure and a column for each judge, then how far the judges agree.
    pub(super) fn print(&self, app: &Invocation) -> anyhow::Result<()> {
        let JudgeReport { set, answers, pairs, .. } = self;
        app.output.note(&format!("{set}: {answers} answers and {pairs} pairs; intervals of 95 %"));
        let mut table = vec![self.row("FIGURE", |evaluation| evaluation.judge.clone())];
        let labels = self.judges.first().map(|evaluation| evaluation.figures.as_slice()).unwrap_or_default();
        for (place, NamedFigure { label, unit, .. }) in labels.iter().enumerate() {
            table.push(self.row(label, |evaluation| written(&evaluation.figures[place].figure, *unit)));
        }
        if self.answers > 0 {
            table.push(
                self.row("scores", |evaluation| evaluation.distribution.as_ref().map(counts).unwrap_or_default()),
            );
        }
        table.push(self.row("unparsed", |evaluation| evaluation.unparsed.to_string()));
        app.output.print_table(&table)?;
        if !self.agreement.is_empty() {
            app.output.print_line("")?;
            app.output.print_table(&self.agreement_rows())?;
        }
        Ok(())
    }

    fn row(&self, label: &str, cell: impl Fn(&Evaluation) -> String) -> Vec<String> {
        std::iter::once(label.to_owned()).chain(self.judges.iter().map(cell)).collect()
    }

    fn agreement_rows(&self) -> Vec<Vec<String>> {
        let alpha = |figure: &Option<Figure>| figure.as_ref().map(|figure| written(figure, FigureUnit::Coefficient));
        let mut rows = vec![vec!["KRIPPENDORFF'S ALPHA".to_owned()]];
        rows[0].extend((self.answers > 0).then(|| "SCORES".to_owned()));
        rows[0].extend((self.pairs > 0).then(|| "CHOICES".to_owned()));
        for JudgesAgreement { judges, scores, choices } in &self.agreement {
            rows.push(std::iter::once(judges.join(", ")).chain(alpha(scores)).chain(alpha(choices)).collect());
        }
        rows
    }

    /// A line for each judge and figure.
    pub(super) fn csv(&self) -> String {
        let mut lines = vec!["judge,figure,value,low,high,n,reason".to_owned()];
        for evaluation in self.judges {
            let judge = &evaluation.judge;
            lines.extend(evaluation.figures.iter().map(|named| csv_line(judge, named.key, &named.figure)));
            let counts = evaluation.distribution.iter().flat_map(|distribution| (1..).zip(distribution.counts));
            lines.extend(counts.map(|(score, count)| csv_count(judge, &format!("score_{score}"), count)));
            lines.push(csv_count(judge, "unparsed", evaluation.unparsed));
            lines.push(csv_count(judge, "failed", evaluation.failed));
        }
        for JudgesAgreement { judges, scores, choices } in &self.agreement {
            let judges = judges.join(" & ");
            lines.extend(scores.iter().map(|figure| csv_line(&judges, "alpha_scores", figure)));
            lines.extend(choices.iter().map(|figure| csv_line(&judges, "alpha_choices", figure)));
        }
        lines.join("\n")
    }
}

fn csv_line(judge: &str, key: &str, figure: &Figure) -> String {
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let Figure { n, value, low, high, reason } = figure;
    let reason = quoted(reason.as_deref().unwrap_or_default());
    format!("{},{key},{},{},{},{n},{reason}", quoted(judge), number(*value), number(*low), number(*high))
}

fn csv_count(judge: &str, key: &str, count: usize) -> String {
    format!("{},{key},{count},,,,", quoted(judge))
}

/// A field of a CSV file (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A figure with its interval, or why it cannot be given.
fn written(figure: &Figure, unit: FigureUnit) -> String {
    let Figure { value, low, high, reason, .. } = figure;
    let Some(value) = value else {
        return reason.as_ref().map_or("-".to_owned(), |reason| format!("- ({reason})"));
    };
    let number = |value: f64| match unit {
        FigureUnit::Coefficient | FigureUnit::Seconds => format!("{value:.2}"),
        FigureUnit::Points => format!("{value:+.2}"),
        FigureUnit::Share => format!("{:.0}", 100.0 * value),
        FigureUnit::DifferenceOfShares => format!("{:+.0}", 100.0 * value),
    };
    let percent = if matches!(unit, FigureUnit::Share | FigureUnit::DifferenceOfShares) { " %" } else { "" };
    match low.zip(*high) {
        Some((low, high)) => format!("{}{percent} ({} to {})", number(*value), number(low), number(high)),
        None => format!("{}{percent}", number(*value)),
    }
}

/// How often each score was given, from 1 to 5.
fn counts(distribution: &ScoreDistribution) -> String {
    let counts = distribution.counts.map(|count| count.to_string()).join(" ");
    match &distribution.remark {
        Some(remark) => format!("{counts}: {remark}"),
        None => counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_written_in_its_unit() {
        let figure = |value| Figure { n: 20, value: Some(value), low: Some(-0.254), high: Some(0.5), reason: None };
        let check = |value, unit, expected| assert_eq!(written(&figure(value), unit), expected);
        check(0.123, FigureUnit::Coefficient, "0.12 (-0.25 to 0.50)");
        check(0.123, FigureUnit::Points, "+0.12 (-0.25 to +0.50)");
        check(0.123, FigureUnit::Share, "12 % (-25 to 50)");
        check(0.123, FigureUnit::DifferenceOfShares, "+12 % (-25 to +50)");
        let without = Figure { n: 3, value: None, low: None, high: None, reason: Some("3 of 10".to_owned()) };
        assert_eq!(written(&without, FigureUnit::Share), "- (3 of 10)");
        assert_eq!(csv_line("a, b", "exact", &without), "\"a, b\",exact,,,,3,3 of 10");
        assert_eq!(csv_line("a", "exact", &figure(0.5)), "a,exact,0.5,-0.254,0.5,20,");
    }

    #[test]
    fn a_judge_that_always_says_the_same_is_named_in_words() {
        let distribution = ScoreDistribution { counts: [0, 0, 0, 0, 12], remark: Some("always 5".to_owned()) };
        assert_eq!(counts(&distribution), "0 0 0 0 12: always 5");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
    }
}
