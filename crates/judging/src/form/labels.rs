//! The labels that a judge chooses from: scores from the worst to the best, or the names of two answers.

use serde::Serialize;

/// The labels, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Labels(Vec<String>);

impl Labels {
    pub(crate) fn new(names: Vec<String>) -> Labels {
        Labels(names)
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of the longest label.
    pub(crate) fn longest(&self) -> usize {
        self.0.iter().map(String::len).max().unwrap_or_default()
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|label| label == name)
    }

    pub(crate) fn are(&self, names: &[&str]) -> bool {
        self.0 == names
    }

    /// The score of a label on the scale from 1 to 5, which the labels divide evenly.
    pub(crate) fn score(&self, label: usize) -> f64 {
        let last = self.0.len().saturating_sub(1).max(1);
        1.0 + 4.0 * label as f64 / last as f64
    }

    /// The label with the nearest score.
    pub(crate) fn nearest(&self, score: f64) -> usize {
        let distance = |label: &usize| (self.score(*label) - score).abs();
        (0..self.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or_default()
    }

    /// Matches any label.
    pub(crate) fn regex(&self) -> String {
        let letters: Vec<char> = self.0.iter().filter_map(|label| only_letter(label)).collect();
        if letters.len() < self.0.len() {
            let texts: Vec<String> = self.0.iter().map(|label| regex::escape(label)).collect();
            return format!("(?:{})", texts.join("|"));
        }
        let is_range = letters.len() > 2 && letters.windows(2).all(|pair| pair[0] as u32 + 1 == pair[1] as u32);
        match (is_range, letters.first(), letters.last()) {
            (true, Some(first), Some(last)) => format!("[{first}-{last}]"),
            _ => format!("[{}]", letters.iter().collect::<String>()),
        }
    }

    /// The tokens that spell a label, with its index. Tokenizers have tokens with or without a leading space, and some
    /// with a character `around` the label. For labels with a common beginning (`Assistant A`), only the rest is
    /// spelled.
    pub(crate) fn spellings(&self, around: Option<(char, char)>) -> impl Iterator<Item = (String, usize)> {
        let rest = self.common_beginning();
        let stems: Vec<&str> = self.0.iter().map(|label| &label[rest..]).collect();
        let spelled = |spell: &dyn Fn(&str) -> String| -> Vec<(String, usize)> {
            stems.iter().enumerate().map(|(index, stem)| (spell(stem), index)).collect()
        };
        let mut all = [spelled(&|stem| stem.to_owned()), spelled(&|stem| format!(" {stem}"))].concat();
        if let Some((before, after)) = around {
            all.extend(spelled(&|stem| format!("{before}{stem}")));
            all.extend(spelled(&|stem| format!("{stem}{after}")));
        }
        all.into_iter()
    }

    /// Bytes of the leading words that all labels share.
    fn common_beginning(&self) -> usize {
        let Some(first) = self.0.first().filter(|_| self.0.len() > 1) else { return 0 };
        let ends = first.match_indices(' ').map(|(at, _)| at + 1).rev();
        ends.into_iter().find(|end| self.0.iter().all(|label| label.starts_with(&first[..*end]))).unwrap_or(0)
    }
}

fn only_letter(label: &str) -> Option<char> {
    let mut characters = label.chars();
    characters.next().filter(|letter| letter.is_ascii_alphanumeric() && characters.next().is_none())
}
