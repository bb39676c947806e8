//! How SentencePiece normalizes letters (`tokenizer.ggml.precompiled_charsmap`): ﬁ becomes fi, ³ becomes 3.
//!
//! Four bytes give the length of a double array (<https://github.com/s-yata/darts-clone>), a trie that maps each
//! replaced text to the offset of its replacement; the replacements follow, each ended by a zero byte.

use super::TokenizerError;
use crate::gguf::Gguf;

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// Maximum bytes of replaced letters and of their replacement; well-known models have up to about forty.
const MAX_BYTES: usize = 256;

/// The letters that are replaced.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<Unit>,
    replacements: Vec<u8>,
}

/// An entry of the double array.
#[derive(Clone, Copy, Debug)]
struct Unit(u32);

impl Unit {
    /// The offset of its children.
    fn offset(self) -> usize {
        ((self.0 >> 10) << ((self.0 & (1 << 9)) >> 6)) as usize
    }

    /// The byte that leads to it; more than 8 bits if it is a value.
    fn label(self) -> u32 {
        self.0 & (1 << 31 | 0xff)
    }

    /// Whether a key ends here.
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> usize {
        (self.0 & ((1 << 31) - 1)) as usize
    }
}

impl Charsmap {
    /// `None` if the file has none.
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Option<Charsmap>, TokenizerError> {
        let Some(numbers) = gguf.integers(KEY)? else { return Ok(None) };
        // The numbers are bytes; some files have them with a sign.
        let bytes: Vec<u8> = numbers.iter().map(|number| *number as u8).collect();
        Charsmap::parsed(&bytes).map_err(|reason| TokenizerError::invalid(KEY, reason)).map(Some)
    }

    fn parsed(bytes: &[u8]) -> Result<Charsmap, String> {
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(format!("has {} bytes, too few for the size of its array", bytes.len()));
        };
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || !size.is_multiple_of(4) {
            return Err(format!("says that its array has {size} bytes, where {} follow", rest.len()));
        }
        let (units, replacements) = rest.split_at(size);
        if replacements.last().is_some_and(|last| *last != 0) {
            return Err("ends within a replacement".to_owned());
        }
        let units = units.as_chunks::<4>().0.iter().map(|unit| Unit(u32::from_le_bytes(*unit))).collect();
        Ok(Charsmap { units, replacements: replacements.to_vec() })
    }

    /// The text with the longest replaceable letters replaced, from left to right.
    pub(super) fn normalized(&self, text: &str) -> String {
        let mut normalized = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match self.replacement(rest) {
                Some((n_bytes, replacement)) => {
                    normalized.push_str(&replacement);
                    rest = &rest[n_bytes..];
                }
                None => {
                    normalized.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        normalized
    }

    /// Number of bytes at the beginning of a text that are replaced, and the replacement.
    fn replacement(&self, text: &str) -> Option<(usize, std::borrow::Cow<'_, str>)> {
        let (n_bytes, start) = self.longest_key(text)?;
        let replacement = self.replacements.get(start..)?;
        let end = replacement.iter().take(MAX_BYTES).position(|byte| *byte == 0)?;
        Some((n_bytes, String::from_utf8_lossy(&replacement[..end])))
    }

    /// Bytes of the longest key with which a text begins, and the key's value.
    fn longest_key(&self, text: &str) -> Option<(usize, usize)> {
        let mut place = self.units.first()?.offset();
        let mut longest = None;
        for (depth, byte) in text.bytes().take(MAX_BYTES).enumerate() {
            place ^= usize::from(byte);
            let Some(unit) = self.units.get(place).filter(|unit| unit.label() == u32::from(byte)) else { break };
            place ^= unit.offset();
            let n_bytes = depth + 1;
            if unit.has_leaf() && text.is_char_boundary(n_bytes) {
                longest = self.units.get(place).map(|leaf| (n_bytes, leaf.value())).or(longest);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a map in which each of these keys, none of which begins like another, has a replacement.
    fn written(pairs: &[(&str, &str)]) -> Vec<u8> {
        const ROOM: usize = 256;
        let mut units = vec![0u32; ROOM * (2 + pairs.iter().map(|(key, _)| key.len()).sum::<usize>())];
        let mut replacements = Vec::new();
        let mut last = ROOM;
        units[0] = (last << 10) as u32;
        for (key, replacement) in pairs {
            let mut place = ROOM;
            for (index, byte) in key.bytes().enumerate() {
                place ^= usize::from(byte);
                last += ROOM;
                let is_end = u32::from(index + 1 == key.len());
                units[place] = ((place ^ last) << 10) as u32 | is_end << 8 | u32::from(byte);
                place = last;
            }
            units[place] = 1 << 31 | replacements.len() as u32;
            replacements.extend(replacement.bytes().chain([0]));
        }
        let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        [&(units.len() as u32).to_le_bytes(), units.as_slice(), &replacements].concat()
    }

    #[test]
    fn letters_are_replaced() {
        let map = Charsmap::parsed(&written(&[("ﬁ", "fi"), ("³", "3"), ("\u{7f}", "")])).unwrap();
        assert_eq!(map.normalized("ﬁne\u{7f} m³, ﬂ 日"), "fine m3, ﬂ 日");
        assert_eq!(map.normalized(""), "");
    }

    #[test]
    fn a_broken_map_is_an_error_or_replaces_less() {
        let map = written(&[("ﬁ", "fi")]);
        for (wrong, reason) in [(&map[..3], "too few"), (&map[..40], "says that its array has")] {
            assert!(Charsmap::parsed(wrong).unwrap_err().contains(reason));
        }
        let mut seed = 1usize;
        for _ in 0..2_000 {
            let mut changed = map.clone();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (seed >> 33) % changed.len();
                changed[place] = (seed >> 20) as u8;
            }
            let _ = Charsmap::parsed(&changed).map(|map| map.normalized("ﬁne m³"));
        }
    }
}
