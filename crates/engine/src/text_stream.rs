//! Turns the bytes of tokens, as they arrive, into text that may be shown.
//!
//! A token may end in the middle of a character, and the text so far may be the start of a stop string. Both are held
//! back until it is certain what they are, so that nothing shown ever has to be retracted. The output does not depend
//! on how the bytes are cut into tokens.

use std::ops::Range;

/// Text on its way from a model to a reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextStream {
    stop: Vec<String>,
    /// The first bytes of an incomplete character.
    unfinished: Vec<u8>,
    /// Text that may be the start of a stop string.
    held: String,
    /// The stop string that has appeared.
    stopped_by: Option<String>,
}

impl TextStream {
    /// A stream that ends before the first of the strings in `stop`. Empty ones are ignored.
    pub(crate) fn new(stop: Vec<String>) -> Self {
        let stop = stop.into_iter().filter(|text| !text.is_empty()).collect();
        TextStream { stop, ..TextStream::default() }
    }

    /// Takes a token's bytes and returns the text that has become certain: whole characters only, U+FFFD for bytes that
    /// are not UTF-8, and nothing that belongs to a stop string or follows it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        if self.stopped_by.is_some() {
            return String::new();
        }
        self.decode(bytes);
        self.release()
    }

    /// The stop string that has appeared.
    pub(crate) fn stopped_by(&self) -> Option<&str> {
        self.stopped_by.as_deref()
    }

    /// Returns the text that was held back, once no more bytes will come.
    pub(crate) fn finish(&mut self) -> String {
        if !std::mem::take(&mut self.unfinished).is_empty() {
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        std::mem::take(&mut self.held)
    }

    /// Appends the characters that `bytes` completes to the held text.
    fn decode(&mut self, bytes: &[u8]) {
        self.unfinished.extend_from_slice(bytes);
        let mut n_decoded = 0;
        for chunk in self.unfinished.utf8_chunks() {
            self.held.push_str(chunk.valid());
            n_decoded += chunk.valid().len();
            if is_unfinished(chunk.invalid()) && n_decoded + chunk.invalid().len() == self.unfinished.len() {
                break;
            }
            if !chunk.invalid().is_empty() {
                self.held.push(char::REPLACEMENT_CHARACTER);
            }
            n_decoded += chunk.invalid().len();
        }
        self.unfinished.drain(..n_decoded);
    }

    fn release(&mut self) -> String {
        if self.stop.is_empty() {
            return std::mem::take(&mut self.held);
        }
        if let Some(found) = self.first_stop() {
            self.stopped_by = Some(self.held[found.clone()].to_owned());
            self.unfinished.clear();
            let mut text = std::mem::take(&mut self.held);
            text.truncate(found.start);
            return text;
        }
        let n_uncertain = self.stop.iter().map(|stop| start_at_end(&self.held, stop)).max().unwrap_or(0);
        let uncertain = self.held.split_off(self.held.len() - n_uncertain);
        std::mem::replace(&mut self.held, uncertain)
    }

    /// The stop string that is completed first.
    fn first_stop(&self) -> Option<Range<usize>> {
        let found = self.stop.iter().filter_map(|stop| self.held.find(stop).map(|start| start..start + stop.len()));
        found.min_by_key(|place| (place.end, place.start))
    }
}

/// Whether more bytes could complete these to a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// How many bytes at the end of `text` are the start of `stop`.
fn start_at_end(text: &str, stop: &str) -> usize {
    let mut ends = stop.char_indices().map(|(end, _)| end).rev();
    ends.find(|end| text.ends_with(&stop[..*end])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes `bytes` cut in every way into pieces of one length, and all at once.
    fn check(stop: &[&str], bytes: &[u8], expected: &str, expected_to_stop: bool) {
        for length in 1..=bytes.len().max(1) {
            let mut stream = TextStream::new(stop.iter().map(|text| (*text).to_owned()).collect());
            let mut text: String = bytes.chunks(length).map(|chunk| stream.push(chunk)).collect();
            assert_eq!(stream.stopped_by().is_some(), expected_to_stop, "{stop:?} {text:?} in pieces of {length}");
            text.push_str(&stream.finish());
            assert_eq!(text, expected, "{stop:?} in pieces of {length}");
        }
    }

    fn pushes(stop: &[&str], pieces: &[&[u8]]) -> Vec<String> {
        let mut stream = TextStream::new(stop.iter().map(|text| (*text).to_owned()).collect());
        let mut texts: Vec<String> = pieces.iter().map(|piece| stream.push(piece)).collect();
        texts.push(stream.finish());
        texts
    }

    #[test]
    fn characters_come_whole() {
        check(&[], "Grüße, 世界 🦙!".as_bytes(), "Grüße, 世界 🦙!", false);
        assert_eq!(pushes(&[], &[b"\xf0\x9f", b"\xa6", b"\x99"]), ["", "", "🦙", ""]);
        assert_eq!(pushes(&[], &[b" Hello", b"", b" world"]), [" Hello", "", " world", ""]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        check(&[], b"a\xffb", "a\u{fffd}b", false);
        check(&[], b"a\xf0\x9f\xa6", "a\u{fffd}", false);
        check(&[], b"\xf0\x9fA\xe4\xb8", "\u{fffd}A\u{fffd}", false);
        check(&[], b"\x80\x80\xc3", "\u{fffd}\u{fffd}\u{fffd}", false);
        check(&[], b"\xed\xa0\x80", &String::from_utf8_lossy(b"\xed\xa0\x80"), false);
    }

    #[test]
    fn nothing_of_a_stop_text_is_shown() {
        check(&["User:"], b"Hello.\nUser: hi", "Hello.\n", true);
        check(&["\n\n", "END"], b"one\ntwo\n\nthree END", "one\ntwo", true);
        check(&["🦙"], "a🦙b".as_bytes(), "a", true);
        check(&["x"], b"x", "", true);
    }

    #[test]
    fn the_stop_text_that_is_complete_first_counts() {
        check(&["abcd", "bc"], b"abcd", "a", true);
        check(&["aab"], b"aaab", "a", true);
        check(&["c", "bc"], b"abc", "a", true);
    }

    #[test]
    fn what_only_looks_like_a_stop_text_is_shown_in_the_end() {
        check(&["User:"], b"Us Use User Users U", "Us Use User Users U", false);
        check(&["", "\u{1f999}!"], "🦙🦙".as_bytes(), "🦙🦙", false);
        assert_eq!(pushes(&["abc"], &[b"a", b"b", b"x", b"ab"]), ["", "", "abx", "", "ab"]);
        assert_eq!(pushes(&["aba"], &[b"ab", b"ab"]), ["", "", ""]);
    }

    #[test]
    fn nothing_comes_after_the_end() {
        let mut stream = TextStream::new(vec!["stop".to_owned()]);
        assert_eq!(stream.push(b"go stop go"), "go ");
        assert_eq!(stream.push(b"more"), "");
        assert_eq!(stream.finish(), "");
        assert!(stream.stopped_by().is_some());
    }
}
