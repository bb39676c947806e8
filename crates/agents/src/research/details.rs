//! Checks without a model whether a passage may support a claim: the passage must contain the figures, dates, names and
//! quotations of the claim, and most of its other words.
//!
//! This detects claims that say more than their source. Claims that say something different with the same words are
//! detected by [`super::entailment`] or a judge. The test of this module measures the accuracy on the labelled pairs of
//! `tests/data/claims.jsonl`.

use std::collections::HashSet;

use hone_memory::words::{is_common, words};

use super::entailment::numbers::{date, in_figures, is_short_month, plain_figure};

/// The shortest quotation, in words, that the passage must contain verbatim.
const QUOTED_WORDS: usize = 2;
/// The fewest letters that two words must share at their beginning to count as forms of one word.
const SAME_BEGINNING: usize = 5;
/// The most letters that may then differ at the end of either.
const OTHER_END: usize = 3;

/// The details of a claim that the texts lack: figures, dates, names and quotations as written in the claim, and number
/// words as figures.
pub(super) fn missing_details(claim: &str, texts: &[&str]) -> Vec<String> {
    let known = Known::of(texts);
    let claim = in_figures(claim);
    let mut missing: Vec<String> = Vec::new();
    for ClaimWord { text, is_name } in claim_words(&claim) {
        let is_known = figures(text).iter().all(|figure| known.figures.contains(figure))
            && (!is_name || has_digit(text) || known.has_name(text));
        if !is_known && !missing.iter().any(|known| known == text) {
            missing.push(text.to_owned());
        }
    }
    let said = with_single_spaces(&in_figures(&texts.join(" ")));
    let is_missing = |quotation: &&str| {
        let quoted = with_single_spaces(quotation);
        quoted.split(' ').count() >= QUOTED_WORDS && !said.contains(&quoted)
    };
    missing.extend(quotations(&claim).into_iter().filter(is_missing).map(|quotation| format!("“{quotation}”")));
    missing
}

/// The share of a claim's content words that occur in the texts, in some form, 0 to 1; 1 if it has none.
pub(super) fn share_of_words(claim: &str, texts: &[&str]) -> f64 {
    let known: HashSet<String> = texts.iter().flat_map(|text| words(text)).collect();
    let said: HashSet<String> = words(claim).filter(|word| !is_common(word)).collect();
    let stands = |word: &&String| known.contains(*word) || known.iter().any(|known| are_forms(word, known));
    match said.len() {
        0 => 1.0,
        n => said.iter().filter(stands).count() as f64 / n as f64,
    }
}

/// The contents of texts, indexed for lookup.
struct Known {
    words: HashSet<String>,
    figures: HashSet<String>,
}

impl Known {
    fn of(texts: &[&str]) -> Known {
        let mut known = Known { words: HashSet::new(), figures: HashSet::new() };
        for text in texts {
            known.figures.extend(in_figures(text).split_whitespace().flat_map(figures));
        }
        for word in texts.iter().flat_map(|text| text.split_whitespace()) {
            known.words.extend(words(word));
            known.words.extend(date(bare(word)).map(|(_, month, _)| month.to_owned()));
        }
        known
    }

    fn has_name(&self, name: &str) -> bool {
        let is_known = |part: String| {
            let is_other_form = |known: &String| {
                is_plural(known, &part)
                    || is_plural(&part, known)
                    || is_short_month(known, &part)
                    || is_short_month(&part, known)
            };
            self.words.contains(&part) || self.words.iter().any(is_other_form)
        };
        words(without_possessive(name)).all(is_known)
    }
}

struct ClaimWord<'a> {
    text: &'a str,
    is_name: bool,
}

/// The words of a claim. A capital letter marks a name; at the beginning of a sentence, it does so only before another
/// name or if the word has further capital letters.
fn claim_words(claim: &str) -> Vec<ClaimWord<'_>> {
    let mut found: Vec<ClaimWord<'_>> = Vec::new();
    let mut begins = true;
    let mut may_be_name = false;
    for written in claim.split_whitespace() {
        let text = bare(written);
        if text.is_empty() {
            continue;
        }
        let has_capital = text.chars().any(char::is_uppercase) && !is_common(&text.to_lowercase());
        let is_name = has_capital && (!begins || text.chars().skip(1).any(char::is_uppercase));
        if let Some(first) = found.last_mut().filter(|_| is_name && may_be_name) {
            first.is_name = true;
        }
        may_be_name = begins && has_capital && !is_name;
        begins = written.ends_with(['.', '!', '?', ':']);
        found.push(ClaimWord { text, is_name });
    }
    found
}

/// The figures in a word, normalized: without thousands separators, leading zeros and trailing zeros of fractions. A
/// date has year and day.
fn figures(word: &str) -> Vec<String> {
    let word = bare(word);
    if let Some((year, _, day)) = date(word) {
        return vec![plain_figure(year), plain_figure(day)];
    }
    let letters: Vec<char> = word.chars().collect();
    let is_digit = |at: usize| letters.get(at).is_some_and(char::is_ascii_digit);
    let mut found = Vec::new();
    let mut open = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let is_inside = matches!(letter, '.' | ',') && !open.is_empty() && is_digit(at + 1);
        if is_digit(at) || is_inside {
            open.push(*letter);
        } else if !open.is_empty() {
            found.push(plain_figure(&std::mem::take(&mut open)));
        }
    }
    if !open.is_empty() {
        found.push(plain_figure(&open));
    }
    found
}

/// Whether two words are forms of one word, such as `rebuild` and `rebuilt`, or `tide` and `tides`.
fn are_forms(a: &str, b: &str) -> bool {
    let same: usize = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let rest = |word: &str| word.chars().count() - same;
    is_plural(a, b) || is_plural(b, a) || (same >= SAME_BEGINNING && rest(a) <= OTHER_END && rest(b) <= OTHER_END)
}

fn is_plural(one: &str, many: &str) -> bool {
    many.strip_suffix('s') == Some(one) || many.strip_suffix("es") == Some(one)
}

/// A word without surrounding punctuation.
fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_alphanumeric())
}

fn has_digit(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_digit())
}

fn without_possessive(name: &str) -> &str {
    name.strip_suffix("'s").or_else(|| name.strip_suffix("’s")).unwrap_or(name)
}

/// The texts between quotation marks.
fn quotations(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (open, close) in [('"', '"'), ('“', '”')] {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once(open) {
            let Some((quotation, after)) = after.split_once(close) else { break };
            found.push(quotation.trim_end_matches(['.', ',']));
            rest = after;
        }
    }
    found
}

fn with_single_spaces(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use hone_judging::share_with_interval;
    use serde::Deserialize;

    use super::super::entailment::is_entailed;
    use super::*;

    #[track_caller]
    fn check(claim: &str, text: &str, expected: &[&str]) {
        assert_eq!(missing_details(claim, &[text]), expected, "{claim}");
    }

    #[test]
    fn figures_are_compared_by_their_value() {
        let text = "It cost 1,250.50 euros, on 2026-01-28 at 06:12, for three mills (AZ-5518) 12 km away.";
        check("It cost 1250.5 euros.", text, &[]);
        check("On 28 January 2026 it was paid for 3 mills.", text, &[]);
        check("On Jan. 28th, at 6:12.", text, &[]);
        check("Mill 5518, 12km away", text, &[]);
        check("It cost 1,251.50 euros on 2026-01-27.", text, &["1,251.50", "2026-01-27"]);
        check("It was seventeen mills in February.", text, &["17", "February"]);
        check("Version 1.2.3 or 0.50", "version 1.2.3 and .5, 0.5", &[]);
    }

    #[test]
    fn names_and_quotations_must_stand_in_the_text() {
        let text = "Anna Petersen's mill burned down. The miller said \"never again\", and left for the Netherlands.";
        check("The mill of Anna Petersen burned.", text, &[]);
        check("Yesterday the miller left the Netherlands.", text, &[]);
        check("Anna Olsen's mill burned; NASA saw it.", text, &["Olsen's", "NASA"]);
        check("Peter Petersen left.", text, &["Peter"]);
        check("He said \"never again\".", text, &[]);
        check("He said “once again”.", text, &["“once again”"]);
    }

    #[test]
    fn the_share_counts_words_in_any_form_once() {
        let text = "The mill was rebuilt with stone walls.";
        assert_eq!(share_of_words("Rebuild the mills of stone, the mill of glass.", &[text]), 4.0 / 5.0);
        assert_eq!(share_of_words("It was.", &[text]), 1.0);
        assert_eq!(share_of_words("Nothing alike", &[text]), 0.0);
    }

    /// A claim about a passage, one of 75 written by hand before the check was first run on them.
    #[derive(Deserialize)]
    struct ClaimAndPassage {
        claim: String,
        passage: String,
        supported: bool,
        /// The error in the claim, or its relation to the passage if it is right.
        kind: String,
    }

    fn pairs() -> Vec<ClaimAndPassage> {
        let lines = include_str!("../../tests/data/claims.jsonl").lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The share of the pairs that pass, and its 95 % interval.
    fn passing(pairs: &[&ClaimAndPassage], passes: impl Fn(&ClaimAndPassage) -> bool) -> (f64, [f64; 2]) {
        let n = pairs.iter().filter(|pair| passes(pair)).count();
        share_with_interval(n as u64, pairs.len() as u64).unwrap()
    }

    /// Print the figures with `cargo test -p hone-agents labelled -- --nocapture`.
    #[test]
    fn on_labelled_pairs_the_check_is_far_better_than_chance() {
        let pairs = pairs();
        let (right, wrong): (Vec<&ClaimAndPassage>, Vec<&ClaimAndPassage>) =
            pairs.iter().partition(|pair| pair.supported);
        assert!(right.len() >= 30 && wrong.len() >= 30);
        let has_details = |pair: &ClaimAndPassage| missing_details(&pair.claim, &[&pair.passage]).is_empty();
        let least = super::super::settings::ResearchSettings::shipped().least_words;
        let has_words = |pair: &ClaimAndPassage| share_of_words(&pair.claim, &[&pair.passage]) >= least;
        let both = |pair: &ClaimAndPassage| has_details(pair) && has_words(pair);
        let is_unmarked = |pair: &ClaimAndPassage| both(pair) && is_entailed(&pair.claim, &[&pair.passage]);
        let details: &dyn Fn(&ClaimAndPassage) -> bool = &has_details;
        for (name, check) in
            [("details", details), ("words", &has_words), ("both", &both), ("both and entailed", &is_unmarked)]
        {
            let (kept, passed) = (passing(&right, check), passing(&wrong, check));
            println!("{name}: passes {kept:.2?} of the right and {passed:.2?} of the wrong claims");
            assert!(kept.1[0] > passed.1[1], "{name} is no better than chance: {kept:.2?} and {passed:.2?}");
        }
        let mut kinds: std::collections::BTreeMap<&str, Vec<&ClaimAndPassage>> = std::collections::BTreeMap::new();
        pairs.iter().for_each(|pair| kinds.entry(&pair.kind).or_default().push(pair));
        for (kind, pairs) in kinds {
            println!("{kind}: {} of {} pass", pairs.iter().filter(|pair| both(pair)).count(), pairs.len());
        }
        for pair in pairs.iter().filter(|pair| both(pair) != pair.supported) {
            println!("{}: {:?}", pair.kind, pair.claim);
        }
    }
}
