//! A reliability diagram: the share of good answers over their expected score.

use std::fmt::Write as _;

use hone_judging::ReliabilityBin;

use super::evaluation::Evaluation;

/// The side of the square, and the space around it.
const SIDE: f64 = 360.0;
const MARGIN: f64 = 44.0;
/// The height of a line of text.
const LINE: f64 = 18.0;
/// The largest radius of a point.
const RADIUS: f64 = 9.0;
/// The colours of the judges (Okabe and Ito 2008, "Color universal design"), which most people can tell apart.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const TICKS: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];

/// The diagram of these judges as SVG; `None` where none of them has given a score that could be right or wrong.
pub(super) fn of(evaluations: &[Evaluation]) -> Option<String> {
    let judges: Vec<&Evaluation> = evaluations.iter().filter(|it| !it.reliability.is_empty()).collect();
    let lines = judges.iter().map(|judge| (judge.judge.as_str(), judge.reliability.as_slice()));
    (!judges.is_empty()).then(|| drawn(&lines.collect::<Vec<_>>()))
}

fn drawn(judges: &[(&str, &[ReliabilityBin])]) -> String {
    let width = SIDE + 2.0 * MARGIN;
    let height = width + LINE * judges.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"how often answers are good, over their expected score\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\
         <rect x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{SIDE}\" height=\"{SIDE}\" fill=\"none\" stroke=\"#999\"/>\
         <line x1=\"{MARGIN}\" y1=\"{end}\" x2=\"{end}\" y2=\"{MARGIN}\" stroke=\"#999\" stroke-dasharray=\"4\"/>",
        end = MARGIN + SIDE,
    );
    for score in TICKS {
        let share = (score - 1.0) / 4.0;
        let (x, y) = place(share, share);
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{score}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0} %</text>",
            MARGIN + SIDE + LINE,
            MARGIN - 6.0,
            y + 4.0,
            100.0 * share,
        );
    }
    let middle = MARGIN + SIDE / 2.0;
    let _ = write!(
        svg,
        "<text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">expected score</text>\
         <text x=\"{MARGIN}\" y=\"{:.1}\">answers that are good</text>",
        MARGIN + SIDE + 2.0 * LINE,
        MARGIN - LINE / 2.0,
    );
    for (index, (judge, bins)) in judges.iter().enumerate() {
        svg.push_str(&curve(index, judge, bins));
    }
    svg + "</svg>\n"
}

/// The points of a judge, each as large as the share of the answers behind it, and its name.
fn curve(index: usize, judge: &str, bins: &[ReliabilityBin]) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    let total: usize = bins.iter().map(|bin| bin.n).sum();
    let points: Vec<(f64, f64)> = bins.iter().map(|bin| place(bin.predicted, bin.observed)).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut curve = format!("<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>", path.join(" "));
    for (bin, (x, y)) in bins.iter().zip(points) {
        let radius = 2.0 + RADIUS * (bin.n as f64 / total as f64).sqrt();
        let _ = write!(
            curve,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{colour}\" fill-opacity=\"0.7\">\
             <title>{} answers</title></circle>",
            bin.n
        );
    }
    let y = 2.0 * MARGIN + SIDE + LINE * (index as f64 + 0.5);
    let name = judge.replace('&', "&amp;").replace('<', "&lt;");
    let _ = write!(curve, "<text x=\"{MARGIN}\" y=\"{y:.1}\" fill=\"{colour}\">● {name}</text>");
    curve
}

fn place(predicted: f64, observed: f64) -> (f64, f64) {
    (MARGIN + SIDE * predicted, MARGIN + SIDE * (1.0 - observed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_drawn_at_its_place_and_a_name_is_text() {
        let bins = [
            ReliabilityBin { n: 3, predicted: 0.25, observed: 0.0 },
            ReliabilityBin { n: 1, predicted: 1.0, observed: 1.0 },
        ];
        let svg = drawn(&[("a<b>", &bins), ("b", &bins[..1])]);
        assert!(svg.contains("points=\"134.0,404.0 404.0,44.0\""), "{svg}");
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (3, 2), "{svg}");
        assert!(svg.contains("a&lt;b>") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
