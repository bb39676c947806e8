//! Graphs as SVG. They contain only numbers, and the page's classes define their colours.

use std::fmt::Write;

use serde::Serialize;

/// The size of a graph.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 120.0;
/// The margins for the labels of the axes.
const LEFT: f64 = 24.0;
const BELOW: f64 = 18.0;

/// The height of a bar with its name.
const ROW: f64 = 40.0;

/// The number of scores averaged in a point of the trend.
const WINDOW: usize = 10;

/// The classes of the scores from 1 to 5.
const TONES: [&str; 5] = ["poor", "poor", "fair", "good", "good"];

/// A bar for each score.
pub(super) fn distribution(scores: &[u64; 5]) -> String {
    let most = scores.iter().copied().max().unwrap_or_default().max(1) as f64;
    let (step, room) = (WIDTH / 5.0, HEIGHT - 2.0 * BELOW);
    let mut bars = String::new();
    for (index, (count, tone)) in scores.iter().zip(TONES).enumerate() {
        let height = room * *count as f64 / most;
        let (x, middle, top) = (step * (index as f64 + 0.15), step * (index as f64 + 0.5), HEIGHT - BELOW - height);
        let (width, score, below, above) = (step * 0.7, index + 1, HEIGHT - 4.0, top - 4.0);
        // Writing to a string cannot fail.
        let _ = write!(
            bars,
            "<rect class=\"column {tone}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"/>\
             <text x=\"{middle:.1}\" y=\"{below:.1}\">{score}</text><text x=\"{middle:.1}\" y=\"{above:.1}\">{count}</text>"
        );
    }
    let label = format!("answers with the scores 1 to 5: {}", joined(scores));
    drawn(&label, &bars)
}

/// The moving mean of scores, oldest first.
pub(super) fn trend(scores: &[f64]) -> String {
    let means: Vec<f64> = (0..scores.len())
        .map(|end| {
            let window = &scores[end.saturating_sub(WINDOW - 1)..=end];
            window.iter().sum::<f64>() / window.len() as f64
        })
        .collect();
    let height = |score: f64| HEIGHT - BELOW - (score - 1.0) / 4.0 * (HEIGHT - 2.0 * BELOW);
    let step = (WIDTH - LEFT) / means.len().saturating_sub(1).max(1) as f64;
    let point = |(index, mean): (usize, &f64)| format!("{:.1},{:.1}", LEFT + step * index as f64, height(*mean));
    let points: Vec<String> = means.iter().enumerate().map(point).collect();
    let mut lines = String::new();
    for score in 1..=5 {
        let y = height(f64::from(score));
        let (text, end) = (y + 4.0, WIDTH);
        let _ = write!(
            lines,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\"/>\
             <text x=\"10\" y=\"{text:.1}\">{score}</text>"
        );
    }
    let _ = write!(lines, "<polyline class=\"trend\" points=\"{}\"/>", points.join(" "));
    let last = means.last().map_or_else(String::new, |mean| format!(", now {mean:.1}"));
    drawn(&format!("the mean of the last {WINDOW} scores over {} answers{last}", scores.len()), &lines)
}

/// The comparisons of a model or a respondent, and its wins.
#[derive(Debug, Serialize)]
pub(super) struct WinRate {
    pub(super) of: String,
    pub(super) won: u64,
    pub(super) compared: u64,
}

/// A bar for each rate, with its name above.
pub(super) fn shares(rates: &[WinRate]) -> String {
    let (mut bars, mut label) = (String::new(), Vec::new());
    for (index, WinRate { of, won, compared }) in rates.iter().enumerate() {
        let (of, top) = (ammonia::clean_text(of), ROW * index as f64);
        let (text, bar, width) = (top + 14.0, top + 20.0, WIDTH * *won as f64 / *compared as f64);
        let _ = write!(
            bars,
            "<text class=\"begin\" x=\"0\" y=\"{text:.1}\">{of}</text>\
             <text class=\"end\" x=\"{WIDTH}\" y=\"{text:.1}\">{won} of {compared}</text>\
             <rect class=\"bar-back\" x=\"0\" y=\"{bar:.1}\" width=\"{WIDTH}\" height=\"10\" rx=\"3\"/>\
             <rect class=\"bar-won\" x=\"0\" y=\"{bar:.1}\" width=\"{width:.1}\" height=\"10\" rx=\"3\"/>"
        );
        label.push(format!("{of} won {won} of {compared}"));
    }
    drawn_high(ROW * rates.len() as f64, &format!("comparisons: {}", label.join(", ")), &bars)
}

fn drawn(label: &str, content: &str) -> String {
    drawn_high(HEIGHT, label, content)
}

fn drawn_high(height: f64, label: &str, content: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">\
         {content}</svg>"
    )
}

fn joined(scores: &[u64]) -> String {
    scores.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_a_bar_for_each_score() {
        let svg = distribution(&[0, 1, 2, 4, 0]);
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(svg.contains("aria-label=\"answers with the scores 1 to 5: 0, 1, 2, 4, 0\""), "{svg}");
    }

    #[test]
    fn a_share_is_a_bar_and_names_stay_text() {
        let rate = |of: &str, won| WinRate { of: of.to_owned(), won, compared: 4 };
        let svg = shares(&[rate("A", 3), rate("<b>", 0)]);
        assert!(svg.contains("width=\"240.0\"") && svg.contains("viewBox=\"0 0 320 80\""), "{svg}");
        assert!(svg.contains("A won 3 of 4") && svg.contains("&lt;b&gt;"), "{svg}");
    }

    #[test]
    fn a_trend_is_a_line_of_moving_means() {
        assert!(trend(&[1.0, 5.0]).contains("points=\"24.0,102.0 320.0,60.0\""), "{}", trend(&[1.0, 5.0]));
        assert!(trend(&[]).contains("points=\"\""));
    }
}
