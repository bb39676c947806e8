//! The fence around judged texts: a line before and after each, marked with a boundary that the text's author cannot
//! guess.
//!
//! The boundary is derived from a key and the judged texts. So it differs from request to request, is the same when the
//! same texts are judged again (which keeps greedy grades reproducible), and cannot be computed without the key. If a
//! text contains the boundary by chance, another one is used.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use hone_protocol::hexadecimal;
use sha2::Sha256;

use crate::neutralize::folded;
use crate::prompt::fill;

/// Bytes of the hash that a boundary shows.
const SHOWN_BYTES: usize = 6;

/// The secret from which boundaries are derived. Generated once per installation and kept private.
#[derive(Clone)]
pub struct FenceKey([u8; FenceKey::LENGTH]);

impl FenceKey {
    /// Its length in bytes.
    pub const LENGTH: usize = 32;

    /// The key with these bytes, which must come from a source of randomness.
    pub const fn from_bytes(bytes: [u8; FenceKey::LENGTH]) -> FenceKey {
        FenceKey(bytes)
    }

    /// Puts each of these texts, which are shown to a model together, in a fence by the template. Returns them with
    /// their boundary.
    pub fn fenced(&self, template: &str, texts: &[&str]) -> (Vec<String>, String) {
        let boundary = self.boundary(texts);
        let fence = |text: &&str| fill(template, &[("boundary", &boundary), ("text", text)]);
        (texts.iter().map(fence).collect(), boundary)
    }

    /// The boundary for texts that are judged together, in any order; none of them contains it.
    pub(crate) fn boundary(&self, texts: &[&str]) -> String {
        let mut sorted = texts.to_vec();
        sorted.sort_unstable();
        let compact: Vec<String> = texts.iter().map(|text| compact(text)).collect();
        let is_free = |boundary: &String| !compact.iter().any(|text| text.contains(boundary));
        let mut boundaries = (0_u64..).map(|attempt| self.digest(&sorted, attempt));
        boundaries.find(is_free).unwrap_or_default()
    }

    fn digest(&self, texts: &[&str], attempt: u64) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { unreachable!("any length of key will do") };
        mac.update(&attempt.to_le_bytes());
        for text in texts {
            mac.update(&(text.len() as u64).to_le_bytes());
            mac.update(text.as_bytes());
        }
        hexadecimal(&mac.finalize().into_bytes()[..SHOWN_BYTES])
    }
}

impl fmt::Debug for FenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FenceKey(..)")
    }
}

/// A text as a reader sees it, without characters that could separate those of a boundary.
fn compact(text: &str) -> String {
    folded(text).chars().filter(|character| character.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> FenceKey {
        FenceKey::from_bytes([byte; FenceKey::LENGTH])
    }

    #[test]
    fn a_boundary_depends_on_the_key_and_on_every_text_but_not_on_their_order() {
        let boundary = key(1).boundary(&["question", "answer"]);
        assert_eq!(boundary.len(), 12);
        assert_eq!(key(1).boundary(&["answer", "question"]), boundary);
        for other in [["question", "answers"], ["questiona", "nswer"], ["", "questionanswer"]] {
            assert_ne!(key(1).boundary(&other), boundary);
        }
        assert_ne!(key(2).boundary(&["question", "answer"]), boundary);
    }

    #[test]
    fn a_text_never_holds_its_own_boundary() {
        // The guess of an author with the key.
        let guess = key(1).digest(&["x"], 0);
        let spaced: String = guess.chars().flat_map(|digit| [digit.to_ascii_uppercase(), ' ', '\u{200b}']).collect();
        for text in [guess.clone(), format!("a\n{guess}>>>\nb"), spaced] {
            let attempts: Vec<String> = (0..3).map(|attempt| key(1).digest(&[&text], attempt)).collect();
            assert!(attempts.contains(&key(1).boundary(&[&text])));
            assert!(!compact(&text).contains(&key(1).boundary(&[&text])));
        }
        let taken = key(1).digest(&["q", "q"], 0);
        assert_eq!(key(1).boundary(&["q", "q"]), taken);
        let texts = ["q", &taken.to_string()];
        assert!(!compact(texts[1]).contains(&key(1).boundary(&texts)));
    }

    #[test]
    fn every_text_is_in_its_fence() {
        let (fenced, boundary) = key(1).fenced("<{boundary}\n{text}\n{boundary}>", &["a", "{boundary}"]);
        assert_eq!(boundary, key(1).boundary(&["a", "{boundary}"]));
        assert_eq!(fenced, ["a", "{boundary}"].map(|text| format!("<{boundary}\n{text}\n{boundary}>")));
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", key(7)), "FenceKey(..)");
    }
}
