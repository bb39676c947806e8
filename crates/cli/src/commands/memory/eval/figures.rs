//! The figures of a measurement: recall, precision and junk, by split and kind, each with an interval.
//!
//! The intervals are bootstrap percentile intervals of 95 % over the probes, drawn a thousand times from a fixed seed,
//! so that the same recall gives the same figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::changes::Changes;
use super::run::{Item, Memories, ProbeResult};
use super::set::{Evidence, RecallSet};
use crate::arguments::Split;

/// How often the probes are resampled for an interval.
const RESAMPLES: usize = 1_000;

/// The places of the order statistics that bound 95 % of the resamples.
const BOUNDS: [usize; 2] = [RESAMPLES * 25 / 1_000, RESAMPLES * 975 / 1_000 - 1];

/// A measurement of one set under one configuration.
#[derive(Debug, Serialize)]
pub(super) struct RecallReport {
    set: String,
    embedder: String,
    persons: usize,
    turns: usize,
    /// Facts that were taken from all turns.
    facts: usize,
    extraction: Extraction,
    /// Which changed statements were found.
    pub(super) changes: Changes,
    splits: Vec<SplitFigures>,
}

/// How many of the statements that probes ask for were taken as facts.
#[derive(Debug, Serialize)]
struct Extraction {
    stated: usize,
    found: usize,
}

/// The figures of one half of a set, or of all of it.
#[derive(Debug, Serialize)]
struct SplitFigures {
    split: Option<Split>,
    all: Figures,
    kinds: BTreeMap<String, Figures>,
}

/// The figures of a group of probes.
#[derive(Debug, Serialize)]
struct Figures {
    probes: usize,
    /// Items recalled for all probes.
    recalled: usize,
    /// The share of the probes with an answer whose first item, or one of whose first three items, holds it.
    recall_at_1: Option<Estimate>,
    recall_at_3: Option<Estimate>,
    /// The share of the items that hold the answer.
    precision: Option<Estimate>,
    /// The share of the items that should never be recalled.
    junk: Option<Estimate>,
    /// The share of the items that hold a rejected answer.
    misleading: Option<Estimate>,
    /// The share of the probes without an answer for which nothing was recalled.
    silent: Option<Estimate>,
}

/// A figure and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Estimate {
    value: f64,
    low: f64,
    high: f64,
}

impl RecallReport {
    pub(super) fn new(set: &RecallSet, memories: &Memories, asked: &[ProbeResult], changes: Changes) -> RecallReport {
        let (stated, found) = memories.extraction(set);
        let mut splits: Vec<Option<Split>> = asked.iter().map(|asked| asked.split).collect();
        splits.sort();
        splits.dedup();
        RecallReport {
            set: set.name.clone(),
            embedder: memories.embedder.model().to_owned(),
            persons: set.persons.len(),
            turns: set.n_turns(),
            facts: memories.n_facts(),
            extraction: Extraction { stated, found },
            changes,
            splits: splits.into_iter().map(|split| SplitFigures::new(split, asked)).collect(),
        }
    }

    /// The titles of the table for people.
    pub(super) const TITLES: [&str; 9] =
        ["split", "kind", "probes", "recall@1", "recall@3", "precision", "junk", "misleading", "silent"];

    /// The rows of the table for people.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for figures in &self.splits {
            let split = match figures.split {
                Some(Split::Fitted) => "fitted",
                Some(Split::HeldOut) => "held out",
                None => "all",
            };
            rows.push(row(split, "all", &figures.all));
            rows.extend(figures.kinds.iter().map(|(kind, figures)| row(split, kind, figures)));
        }
        rows
    }

    /// How well facts were taken.
    pub(super) fn extraction_line(&self) -> String {
        let Extraction { stated, found } = self.extraction;
        format!(
            "{} facts were taken from {} turns; {found} of {stated} statements that probes ask for are among them",
            self.facts, self.turns
        )
    }
}

impl SplitFigures {
    fn new(split: Option<Split>, asked: &[ProbeResult]) -> SplitFigures {
        let asked: Vec<&ProbeResult> = asked.iter().filter(|asked| asked.split == split).collect();
        let mut kinds: BTreeMap<String, Vec<&ProbeResult>> = BTreeMap::new();
        for one in &asked {
            kinds.entry(one.probe.kind.clone()).or_default().push(one);
        }
        let kinds = kinds.into_iter().map(|(kind, asked)| (kind, Figures::new(&asked))).collect();
        SplitFigures { split, all: Figures::new(&asked), kinds }
    }
}

impl Figures {
    fn new(asked: &[&ProbeResult]) -> Figures {
        let has_answer = |asked: &&ProbeResult| asked.probe.evidence != Evidence::Nothing;
        let (answerable, rest): (Vec<&ProbeResult>, Vec<&ProbeResult>) =
            asked.iter().copied().partition(|asked| has_answer(asked));
        let is_hit_in = |asked: &&ProbeResult, n: usize| f64::from(asked.items.iter().take(n).any(|item| item.is_hit));
        let hits_in = |n: usize| estimate(answerable.iter().map(|asked| (is_hit_in(asked, n), 1.0)).collect());
        let share = |is_meant: fn(&Item) -> bool| {
            let counts = |asked: &&ProbeResult| {
                (asked.items.iter().filter(|item| is_meant(item)).count() as f64, asked.items.len() as f64)
            };
            estimate(asked.iter().map(counts).collect())
        };
        Figures {
            probes: asked.len(),
            recalled: asked.iter().map(|asked| asked.items.len()).sum(),
            recall_at_1: hits_in(1),
            recall_at_3: hits_in(3),
            precision: share(|item| item.is_hit),
            junk: share(|item| item.is_junk),
            misleading: share(|item| item.is_misleading),
            silent: estimate(rest.iter().map(|asked| (f64::from(asked.items.is_empty()), 1.0)).collect()),
        }
    }
}

/// The ratio of two sums over probes, and its interval; `None` where there is nothing to divide by.
fn estimate(counts: Vec<(f64, f64)>) -> Option<Estimate> {
    let value = ratio(counts.iter())?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut values: Vec<f64> =
        (0..RESAMPLES).filter_map(|_| ratio((0..counts.len()).map(|_| &counts[random.below(counts.len())]))).collect();
    values.sort_by(f64::total_cmp);
    let [low, high] = BOUNDS.map(|bound| values[bound.min(values.len() - 1)]);
    Some(Estimate { value, low, high })
}

fn ratio<'a>(counts: impl Iterator<Item = &'a (f64, f64)>) -> Option<f64> {
    let (part, all) = counts.fold((0.0, 0.0), |(part, all), counts| (part + counts.0, all + counts.1));
    (all > 0.0).then(|| part / all)
}

/// SplitMix64 (Steele, Lea and Flood, 2014): enough to draw probes with.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound.max(1) as u64).unwrap_or(0)
    }
}

fn row(split: &str, kind: &str, figures: &Figures) -> Vec<String> {
    let written = |estimate: Option<Estimate>| {
        estimate.map_or_else(|| "-".to_owned(), |it| format!("{:.2} ({:.2}–{:.2})", it.value, it.low, it.high))
    };
    let mut row = vec![split.to_owned(), kind.to_owned(), figures.probes.to_string()];
    let estimates = [figures.recall_at_1, figures.recall_at_3, figures.precision, figures.junk];
    row.extend(estimates.into_iter().chain([figures.misleading, figures.silent]).map(written));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_its_value_and_narrows_with_the_number_of_probes() {
        let of = |n: usize| estimate((0..n).map(|index| (f64::from(index % 4 == 0), 1.0)).collect()).unwrap();
        let (few, many) = (of(20), of(2_000));
        assert!((few.value - 0.25).abs() < 1e-9 && few.low < 0.25 && few.high > 0.25, "{few:?}");
        // The normal approximation is 0.25 ± 0.019.
        assert!((many.low - 0.231).abs() < 0.004 && (many.high - 0.269).abs() < 0.004, "{many:?}");
        assert_eq!(of(20), few, "the seed is fixed");
        assert_eq!(estimate(vec![(0.0, 0.0)]), None);
        assert_eq!(estimate(Vec::new()), None);
    }
}
