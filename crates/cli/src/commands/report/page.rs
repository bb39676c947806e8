//! The report as one file of HTML, with its graphs as SVG in it.

use hone_judging::{PairReport, ScoreFigures};

use super::work::tables;
use super::{
    COMPARISON_TITLES, CommonFeedback, WholeReport, cells, comparison_rows, comparison_summary, feedback_heading,
    has_marks, named_figures, reviewed_in_words, titles,
};

const BEGIN: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>hone report</title>\n<style>\
    body{font:16px system-ui,sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse}\
    td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ccc}rect{fill:#4a7}</style>\n<h1>hone report</h1>\n";
/// The room for a graph.
const WIDTH: usize = 100;
const HEIGHT: usize = 24;

/// The page.
pub(super) fn page(report: &WholeReport) -> String {
    let mut page = BEGIN.to_owned();
    for scale in &report.quality.scales {
        page.push_str(&format!("<h2>{}</h2>\n<table>\n<tr>{}</tr>\n", escaped(&scale.scale), row(titles(scale), "th")));
        for (name, figures) in named_figures(scale) {
            let cells = cells(scale, name, figures);
            let texts: Vec<&str> = cells.iter().map(String::as_str).collect();
            let row = match texts.split_last() {
                Some((_, texts)) if !has_marks(scale) => format!("{}<td>{}</td>", row(texts, "td"), bars(figures)),
                _ => row(&texts, "td"),
            };
            page.push_str(&format!("<tr>{row}</tr>\n"));
        }
        page.push_str("</table>\n");
    }
    for table in tables(&report.work) {
        let rows = table.rows.iter().map(|cells| {
            let texts: Vec<&str> = cells.iter().map(String::as_str).collect();
            format!("<tr>{}</tr>\n", row(&texts, "td"))
        });
        let (titles, rows) = (row(table.titles, "th"), rows.collect::<String>());
        page.push_str(&format!("<h2>{}</h2>\n<table>\n<tr>{titles}</tr>\n{rows}</table>\n", table.titles[0]));
    }
    report.comparisons.iter().for_each(|comparisons| page.push_str(&comparison_part(comparisons)));
    let blocks = report.reviewed_blocks.iter().map(reviewed_in_words);
    blocks.for_each(|text| page.push_str(&format!("<p>{}</p>\n", escaped(&text))));
    report.feedback.iter().for_each(|feedback| page.push_str(&feedback_part(feedback)));
    page
}

fn comparison_part(comparisons: &PairReport) -> String {
    let mut part = format!("<h2>Comparisons</h2>\n<p>{}</p>\n", escaped(&comparison_summary(comparisons)));
    part.push_str(&format!("<table>\n<tr>{}</tr>\n", row(&COMPARISON_TITLES, "th")));
    for cells in comparison_rows(comparisons) {
        let texts: Vec<&str> = cells.iter().map(String::as_str).collect();
        part.push_str(&format!("<tr>{}</tr>\n", row(&texts, "td")));
    }
    part + "</table>\n"
}

fn feedback_part(feedback: &CommonFeedback) -> String {
    let mut part = format!("<h2>{}</h2>\n<ul>\n", feedback_heading(feedback));
    for (text, count) in &feedback.groups {
        part.push_str(&format!("<li>{count} × {}</li>\n", escaped(text)));
    }
    part + "</ul>\n"
}

fn row(texts: &[&str], element: &str) -> String {
    texts.iter().map(|text| format!("<{element}>{}</{element}>", escaped(text))).collect()
}

/// A bar for each fifth of the range of scores.
fn bars(figures: &ScoreFigures) -> String {
    let most = figures.distribution.iter().copied().max().unwrap_or_default().max(1);
    let step = WIDTH / figures.distribution.len();
    let bar = |(index, count): (usize, &usize)| {
        let height = HEIGHT * count / most;
        let (x, y, width) = (index * step, HEIGHT - height, step - 2);
        format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>")
    };
    let bars: String = figures.distribution.iter().enumerate().map(bar).collect();
    let label = figures.distribution.map(|count| count.to_string()).join(", ");
    format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"{label}\">{bars}</svg>")
}

/// A text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use hone_judging::{QualityReport, ReportRow};
    use hone_work::WorkReport;

    use super::*;

    #[test]
    fn names_of_models_are_text() {
        let row = ReportRow {
            agent: "<script>alert(1)</script>".into(),
            respondent: None,
            temperature: None,
            thinking: false,
            kind: "a & b".into(),
            scale: "tasks".into(),
            range: hone_judging::OUTCOMES,
            score: Some(0.5),
            likely: None,
            at: 0,
            suggestions: Vec::new(),
        };
        let feedback = CommonFeedback { groups: vec![("fix <b>".to_owned(), 1)], ..CommonFeedback::default() };
        let quality = QualityReport::of(&[row], None);
        let page = page(&WholeReport {
            quality,
            work: WorkReport::default(),
            comparisons: Vec::new(),
            reviewed_blocks: None,
            feedback: Some(feedback),
        });
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
        assert!(page.contains("a &amp; b") && page.contains("fix &lt;b&gt;") && page.contains("<svg"), "{page}");
    }
}
