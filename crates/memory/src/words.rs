//! An inverted index of words, ranked with BM25 (Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25
//! and Beyond*, 2009), for the weak spots of vectors: names, numbers and rare words.
//!
//! It is kept in memory only: it is built from the engrams at the first search that needs it, and follows every later
//! write. So nothing on disk has to be kept consistent with storage. It is hone's own because the `bm25` crate provides
//! the score of a text but not the share of the question's words in it, which distinguishes a match from a chance word,
//! and fixes the mean length of all texts at the start; tantivy would keep a second set of files besides sled's.

use std::collections::{BTreeMap, HashMap, HashSet};

use unicode_normalization::UnicodeNormalization;

/// The saturation of repeated words, and the discount of long texts: the usual values.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Words of texts, by the engrams' sequence numbers.
#[derive(Debug, Default)]
pub struct WordIndex {
    /// For each word, the number of its occurrences in each text.
    postings: HashMap<String, HashMap<u64, u32>>,
    /// The words of each text; the number of all of them counts repetitions.
    texts: BTreeMap<u64, Text>,
    n_words: u64,
}

#[derive(Debug)]
struct Text {
    words: HashSet<String>,
    n_words: u32,
}

/// A text that has words of the question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WordMatch {
    /// The engram's sequence number.
    pub sequence: u64,
    /// The BM25 score.
    pub score: f32,
    /// The share of the question's words that the text has, 0 to 1, each weighted by its rarity.
    pub share: f32,
}

impl WordIndex {
    /// Replaces or removes the text of an engram.
    pub fn set(&mut self, sequence: u64, text: Option<&str>) {
        self.remove(sequence);
        let Some(text) = text else { return };
        let counts = counts(text);
        let n_words = counts.values().sum();
        self.n_words += u64::from(n_words);
        self.texts.insert(sequence, Text { words: counts.keys().cloned().collect(), n_words });
        for (word, count) in counts {
            self.postings.entry(word).or_default().insert(sequence, count);
        }
    }

    /// The `n` texts that match the question best, best first; the latest first among equals.
    pub fn best(&self, question: &str, n: usize) -> Vec<WordMatch> {
        let (asked, collection) = (asked(question), self.collection());
        let n_with = |word: &String| self.postings.get(word).map_or(0, HashMap::len) as u64;
        let rarity: Vec<(&String, f32)> = asked.iter().map(|word| (word, collection.rarity(n_with(word)))).collect();
        let all: f32 = rarity.iter().map(|(_, rarity)| rarity).sum();
        let mut found: BTreeMap<u64, WordMatch> = BTreeMap::new();
        for (word, rarity) in rarity {
            for (sequence, count) in self.postings.get(word).into_iter().flatten() {
                let matched =
                    found.entry(*sequence).or_insert(WordMatch { sequence: *sequence, score: 0.0, share: 0.0 });
                let n_words = self.texts.get(sequence).map(|text| text.n_words);
                matched.score += rarity * collection.saturated(*count, n_words);
                matched.share += rarity / all;
            }
        }
        let mut found: Vec<WordMatch> = found.into_values().rev().collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(n);
        found
    }

    fn remove(&mut self, sequence: u64) {
        let Some(text) = self.texts.remove(&sequence) else { return };
        self.n_words -= u64::from(text.n_words);
        for word in text.words {
            if let Some(texts) = self.postings.get_mut(&word) {
                texts.remove(&sequence);
                if texts.is_empty() {
                    self.postings.remove(&word);
                }
            }
        }
    }

    fn collection(&self) -> Collection {
        Collection { n_texts: self.texts.len() as u64, n_words: self.n_words }
    }
}

/// The properties of all texts together that BM25 needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    pub(crate) n_texts: u64,
    /// The words of all texts, with repetitions.
    pub(crate) n_words: u64,
}

impl Collection {
    /// The inverse document frequency of a word that `n_with` texts have. It is never negative.
    pub(crate) fn rarity(&self, n_with: u64) -> f32 {
        let n_with = n_with as f32;
        (1.0 + (self.n_texts as f32 - n_with + 0.5) / (n_with + 0.5)).max(1.0).ln()
    }

    /// The weight of a word with this many occurrences in a text of this length; of the mean length if it is unknown.
    pub(crate) fn saturated(&self, count: u32, n_words: Option<u32>) -> f32 {
        let mean = self.n_words as f32 / self.n_texts.max(1) as f32;
        let (count, length) = (count as f32, n_words.map_or(mean, |n_words| n_words as f32));
        count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean.max(1.0)))
    }
}

/// The words of a question that count.
pub(crate) fn asked(question: &str) -> HashSet<String> {
    words(question).filter(|word| !is_common(word)).collect()
}

/// The number of occurrences of each word in a text.
pub(crate) fn counts(text: &str) -> HashMap<String, u32> {
    let mut counts: HashMap<String, u32> = HashMap::new();
    for word in words(text).chain(single_characters(text)) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// The words of a text, in lower case and composed form. Words joined by punctuation (`AZ-5518`, `user@host`) count
/// separately. In scripts without spaces between words, each pair of adjacent letters counts as one, which finds words
/// of any length without a dictionary.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let text: String = text.nfc().collect();
    let mut words = Vec::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_letter) {
        rest = &rest[start..];
        let is_spaced = |letter: char| !is_unspaced(letter);
        let begins_spaced = rest.starts_with(is_spaced);
        let end = rest.find(|letter: char| !is_letter(letter) || is_spaced(letter) != begins_spaced);
        let (run, after) = rest.split_at(end.unwrap_or(rest.len()));
        match begins_spaced {
            true => words.push(run.to_lowercase()),
            false => words.extend(pairs(run)),
        }
        rest = after;
    }
    words.into_iter()
}

/// Letters, and the marks of scripts that write vowels and tones with them.
fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || is_unspaced(letter)
}

/// Whether a letter belongs to a script without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
fn is_unspaced(letter: char) -> bool {
    matches!(letter,
        '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' | '\u{e81}'..='\u{ece}' | '\u{1000}'..='\u{1049}'
        | '\u{1780}'..='\u{17d3}' | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{3096}' | '\u{3099}'..='\u{309f}'
        | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}')
        || is_chinese(letter)
}

fn is_chinese(letter: char) -> bool {
    matches!(letter,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// Each pair of adjacent letters; a single letter is a word of its own.
fn pairs(run: &str) -> Vec<String> {
    let letters: Vec<char> = run.chars().collect();
    match letters.len() {
        1 => vec![run.to_owned()],
        _ => letters.windows(2).map(|pair| pair.iter().collect()).collect(),
    }
}

/// Chinese characters between others, each of which may be a word, as in a question about one character.
fn single_characters(text: &str) -> impl Iterator<Item = String> {
    let is_alone = |at: usize, letter: char| {
        let is_next = |next: Option<char>| next.is_some_and(is_unspaced);
        !is_next(text[..at].chars().next_back()) && !is_next(text[at + letter.len_utf8()..].chars().next())
    };
    let characters = text.char_indices().filter(move |(at, letter)| is_chinese(*letter) && !is_alone(*at, *letter));
    characters.map(|(_, letter)| letter.to_string())
}

/// English words that occur in every other question and say nothing about its subject.
pub fn is_common(word: &str) -> bool {
    const COMMON: [&str; 71] = [
        "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "d", "did",
        "do", "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "is", "it", "its", "ll", "m", "me",
        "mine", "my", "no", "not", "of", "on", "or", "our", "re", "s", "shall", "should", "so", "t", "that", "the",
        "their", "there", "this", "to", "us", "ve", "was", "we", "were", "what", "when", "where", "which", "who",
        "whom", "whose", "why", "will", "with", "would", "you", "your",
    ];
    COMMON.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the sequence numbers of the texts found, best first, and the share of the question in the first one.
    #[track_caller]
    fn check(index: &WordIndex, question: &str, expected: &[u64], share: f32) {
        let found = index.best(question, 9);
        assert_eq!(found.iter().map(|found| found.sequence).collect::<Vec<_>>(), expected, "{found:?}");
        assert!((found.first().map_or(0.0, |found| found.share) - share).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn names_and_numbers_are_found() {
        let mut index = WordIndex::default();
        for (sequence, text) in [
            (1, "The tile is AZ-5518-V, from Ovar."),
            (2, "The tile of the kitchen is KR-2204-M."),
            (3, "Inês und Gaspar werden neun."),
        ] {
            index.set(sequence, Some(text));
        }
        check(&index, "What is az-5518-v?", &[1], 1.0);
        check(&index, "INÊS?", &[3], 1.0);
        check(&index, "kitchen tile", &[2, 1], 1.0);
        check(&index, "the what is of", &[], 0.0);
        check(&index, "nothing like that", &[], 0.0);
        index.set(1, Some("The tile is red."));
        check(&index, "5518", &[], 0.0);
        index.set(2, None);
        check(&index, "tile", &[1], 1.0);
    }

    #[test]
    fn words_are_found_where_no_spaces_separate_them() {
        let mut index = WordIndex::default();
        for (sequence, text) in [
            (1, "我的自行车锁的密码是四四一七。"),
            (2, "私の自転車の鍵の暗証番号は四四一七です。"),
            (3, "รหัสล็อคจักรยานของฉันคือสี่สี่หนึ่งเจ็ด"),
            (4, "今天天气很好。"),
        ] {
            index.set(sequence, Some(text));
        }
        check(&index, "密码", &[1], 1.0);
        check(&index, "自転車", &[2], 1.0);
        check(&index, "จักรยาน", &[3], 1.0);
        check(&index, "鍵", &[2], 1.0);
        check(&index, "天气", &[4], 1.0);
        let read = |text: &str| words(text).collect::<Vec<_>>();
        assert_eq!(read("用Rust写 3つ"), ["用", "rust", "写", "3", "つ"]);
    }

    #[test]
    fn composed_and_decomposed_letters_are_the_same() {
        let mut index = WordIndex::default();
        index.set(1, Some("Ine\u{302}s trinkt Cafe\u{301}."));
        check(&index, "café", &[1], 1.0);
        index.set(1, Some("Der Café ist heiß."));
        check(&index, "cafe\u{301}", &[1], 1.0);
    }

    #[test]
    fn rare_words_count_for_more_and_the_latest_comes_first() {
        let mut index = WordIndex::default();
        (1..=9).for_each(|sequence| index.set(sequence, Some("the bike is red")));
        index.set(10, Some("the bike is stolen"));
        let found = index.best("stolen bike", 3);
        assert_eq!(found.iter().map(|found| found.sequence).collect::<Vec<_>>(), [10, 9, 8]);
        assert!(found[1].share < 0.1, "{found:?}");
    }

    #[test]
    fn common_words_are_sorted() {
        for word in ["a", "your", "what", "m"] {
            assert!(is_common(word), "{word}");
        }
        assert!(!is_common("bike") && !is_common("5518"));
    }
}
