//! Free text that ends with a marker: watches for the marker, however it is split into tokens.

use std::sync::Arc;

/// The length of the marker's prefix with which the text ends (the Knuth-Morris-Pratt automaton).
#[derive(Clone, Debug)]
pub(super) struct MarkerWatch {
    marker: Arc<[u8]>,
    /// For every prefix of the marker: the length of the longest shorter prefix that it ends with.
    fallbacks: Arc<[usize]>,
    n_matched: usize,
}

impl MarkerWatch {
    /// Watches for `marker`, which must not be empty.
    pub(super) fn new(marker: &[u8]) -> Self {
        MarkerWatch { fallbacks: fallbacks(marker).into(), marker: marker.into(), n_matched: 0 }
    }

    /// The whole marker.
    pub(super) fn marker(&self) -> &[u8] {
        &self.marker
    }

    /// The prefix of the marker with which the text ends; never all of it.
    pub(super) fn written(&self) -> &[u8] {
        &self.marker[..self.n_matched]
    }

    /// Appends bytes to the text. If they complete the marker, returns the bytes that follow it.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        for (index, byte) in bytes.iter().enumerate() {
            while self.n_matched > 0 && self.marker[self.n_matched] != *byte {
                self.n_matched = self.fallbacks[self.n_matched - 1];
            }
            self.n_matched += usize::from(self.marker[self.n_matched] == *byte);
            if self.n_matched == self.marker.len() {
                self.n_matched = 0;
                return Some(&bytes[index + 1..]);
            }
        }
        None
    }
}

fn fallbacks(marker: &[u8]) -> Vec<usize> {
    let mut fallbacks = vec![0; marker.len()];
    let mut matched = 0;
    for index in 1..marker.len() {
        while matched > 0 && marker[matched] != marker[index] {
            matched = fallbacks[matched - 1];
        }
        matched += usize::from(marker[matched] == marker[index]);
        fallbacks[index] = matched;
    }
    fallbacks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes `text` in pieces of every length; `rest` is the text after the marker.
    #[track_caller]
    fn check(marker: &str, text: &str, rest: Option<&str>, written: &str) {
        for length in 1..=text.len().max(1) {
            let mut watch = MarkerWatch::new(marker.as_bytes());
            let mut found = None;
            for (index, piece) in text.as_bytes().chunks(length).enumerate() {
                if let Some(after) = watch.push(piece) {
                    found = Some(index * length + piece.len() - after.len());
                    break;
                }
            }
            assert_eq!(found.map(|end| &text[end..]), rest, "{text:?} in pieces of {length}");
            assert_eq!(watch.written(), written.as_bytes(), "{text:?} in pieces of {length}");
        }
    }

    #[test]
    fn a_marker_is_found_wherever_it_stands() {
        check("[RESULT]", "good [RESULT] 4", Some(" 4"), "");
        check("[RESULT]", "[RESULT]", Some(""), "");
        check("[RESULT]", "[RES[RESULT]", Some(""), "");
        check("aab", "aaaab!", Some("!"), "");
        check("abab", "abaabab", Some(""), "");
        check("x", "yx", Some(""), "");
    }

    #[test]
    fn a_half_written_marker_is_known() {
        check("[RESULT]", "good [RES", None, "[RES");
        check("[RESULT]", "good [RES]", None, "");
        check("[RESULT]", "[RESULT [R", None, "[R");
        check("aab", "aaaa", None, "aa");
        check("abac", "ababa", None, "aba");
        check("x", "", None, "");
    }
}
