//! Sentences and their words.

use super::numbers::in_figures;

/// A word, a number or a mark of punctuation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    /// The text in lower case.
    pub(super) text: String,
    /// Whether it begins with a capital letter that is not due to its position at the start of a sentence.
    pub(super) is_name: bool,
    /// Whether it ends with a possessive `'s`, which `text` omits.
    pub(super) is_possessive: bool,
}

impl Token {
    pub(super) fn is_mark(&self) -> bool {
        self.text.chars().all(|letter| !letter.is_alphanumeric())
    }

    pub(super) fn is(&self, words: &[&str]) -> bool {
        words.contains(&self.text.as_str())
    }
}

/// Abbreviations whose period does not end a sentence.
const ABBREVIATIONS: [&str; 16] =
    ["mr", "mrs", "ms", "dr", "st", "vs", "no", "prof", "approx", "jan", "feb", "aug", "sept", "oct", "nov", "dec"];

/// The sentences of a text. A heading, a list item and a table row each end one, too.
pub(super) fn sentences(text: &str) -> Vec<Vec<Token>> {
    let blocks = blocks(text);
    // A question states nothing.
    let said =
        blocks.iter().flat_map(|block| divided(block)).filter(|sentence| !sentence.trim_end().ends_with(['?', '？']));
    said.map(tokens).filter(|sentence| sentence.iter().any(|token| !token.is_mark())).collect()
}

/// Lines that belong together, joined with single spaces and with number words as figures.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines().map(str::trim) {
        let is_heading = line.starts_with('#');
        let begins = is_heading || line.starts_with(['-', '*', '|', '•']);
        match blocks.last_mut().filter(|_| continues && !begins) {
            Some(open) => open.push_str(&format!(" {line}")),
            None => blocks.push(line.to_owned()),
        }
        continues = !line.is_empty() && !is_heading;
    }
    blocks.iter().map(|block| in_figures(&block.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

/// A block divided at the ends of its sentences.
fn divided(block: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, mark) in block.char_indices() {
        let end = at + mark.len_utf8();
        let is_end = match mark {
            '。' | '！' | '？' => true,
            '!' | '?' => block[end..].starts_with(' '),
            '.' => block[end..].starts_with(' ') && !is_abbreviation(&block[start..at]),
            _ => false,
        };
        if is_end {
            sentences.push(&block[start..end]);
            start = end;
        }
    }
    sentences.push(&block[start..]);
    sentences
}

/// Whether the text before a period ends with an abbreviation or an initial.
fn is_abbreviation(before: &str) -> bool {
    let word = before.rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_alphabetic);
    is_initial || ABBREVIATIONS.contains(&word.as_str())
}

fn tokens(sentence: &str) -> Vec<Token> {
    let letters: Vec<char> = sentence.chars().collect();
    let mut written: Vec<String> = Vec::new();
    let mut open = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let neighbour = |at: Option<usize>| at.and_then(|at| letters.get(at)).copied().unwrap_or(' ');
        let (before, after) = (neighbour(at.checked_sub(1)), neighbour(Some(at + 1)));
        let joins = match letter {
            '.' | ',' | ':' => before.is_ascii_digit() && after.is_ascii_digit(),
            '-' | '\'' | '’' | '_' | '‑' => before.is_alphanumeric() && after.is_alphanumeric(),
            _ => false,
        };
        if letter.is_alphanumeric() || joins {
            open.push(if *letter == '’' { '\'' } else { *letter });
            continue;
        }
        written.extend((!open.is_empty()).then(|| std::mem::take(&mut open)));
        match letter {
            '%' => written.push("percent".to_owned()),
            '$' => written.push("dollars".to_owned()),
            '€' => written.push("euros".to_owned()),
            '£' => written.push("pounds".to_owned()),
            ',' | ';' | ':' | '(' | ')' | '–' | '—' | '"' | '“' | '”' => written.push(letter.to_string()),
            // The possessive of a plural, as in "months' notice".
            '\'' | '’' if before == 's' => written.push("'".to_owned()),
            _ => {}
        }
    }
    written.extend((!open.is_empty()).then_some(open));
    named(&written)
}

/// The tokens of the written words. The first word of a sentence is a name if another name follows it.
fn named(written: &[String]) -> Vec<Token> {
    let is_capital = |at: usize| written.get(at).and_then(|word| word.chars().next()).is_some_and(char::is_uppercase);
    let mut tokens: Vec<Token> = Vec::new();
    for (at, word) in written.iter().enumerate() {
        if word == "'" {
            tokens.last_mut().into_iter().for_each(|last| last.is_possessive = true);
            continue;
        }
        let lower = word.to_lowercase();
        let possessed = lower.strip_suffix("'s");
        let is_name = is_capital(at) && (at > 0 || is_capital(1) || possessed.is_some());
        let is_possessive = possessed.is_some_and(|word| !matches!(word, "it" | "that" | "there" | "he" | "she"));
        let text = possessed.unwrap_or(&lower).to_owned();
        match lower.strip_suffix("n't").filter(|verb| !verb.is_empty()) {
            Some(verb) => {
                let verb = match verb {
                    "wo" => "will",
                    "ca" => "can",
                    verb => verb,
                };
                let plain = |text: &str| Token { text: text.to_owned(), is_name: false, is_possessive: false };
                tokens.extend([plain(verb), plain("not")]);
            }
            None => tokens.push(Token { text, is_name, is_possessive }),
        }
    }
    tokens
}
