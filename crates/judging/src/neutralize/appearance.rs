//! The appearance of a text to a reader: its visible characters in lower case, with look-alikes replaced.

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// A visible character.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sign {
    /// Its offset in the text, in bytes.
    pub(crate) at: usize,
    /// Its length, in bytes.
    pub(crate) length: usize,
    /// The character that it looks like.
    pub(crate) looks_like: char,
    /// Whether a line ends with it.
    pub(crate) ends_line: bool,
}

/// The visible characters of a text.
pub(crate) fn signs(text: &str) -> Vec<Sign> {
    let sign = |(at, character): (usize, char)| Sign {
        at,
        length: character.len_utf8(),
        looks_like: appearance(character),
        ends_line: matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'),
    };
    text.char_indices().filter(|(_, character)| !is_invisible(*character)).map(sign).collect()
}

/// The text as it appears, in lower case.
pub(crate) fn folded(text: &str) -> String {
    text.chars().filter(|character| !is_invisible(*character)).map(appearance).collect()
}

/// Whether a character takes no space of its own: format characters, joiners, variation selectors, combining accents,
/// control characters.
pub(crate) fn is_invisible(character: char) -> bool {
    match character {
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' => true,
        '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}' => true,
        _ => character.is_control() && !character.is_whitespace(),
    }
}

/// The character that a character looks like, in lower case.
pub(crate) fn appearance(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    let plain = letter_of_emoji(character).or_else(|| capital(character)).unwrap_or_else(|| base(character));
    let lower = plain.to_lowercase().next().unwrap_or(plain);
    twin(lower)
}

/// The first character of a compatibility character's decomposition: full-width, circled and mathematical letters,
/// letters with accents. Hangul syllables are kept, since their first letter alone is ambiguous.
fn base(character: char) -> char {
    if matches!(character, '\u{ac00}'..='\u{d7a3}') {
        return character;
    }
    let mut first = None;
    decompose_compatible(character, |part| {
        if first.is_none() && !part.is_whitespace() && !is_combining_mark(part) && part != '(' {
            first = Some(part);
        }
    });
    first.unwrap_or(character)
}

/// The letter on a squared or circled letter or a regional indicator, which have no decomposition.
fn letter_of_emoji(character: char) -> Option<char> {
    let letter = |first: u32| char::from_u32(u32::from(character) - first + u32::from('a'));
    match character {
        '\u{1f130}'..='\u{1f149}' => letter(0x1f130),
        '\u{1f150}'..='\u{1f169}' => letter(0x1f150),
        '\u{1f170}'..='\u{1f189}' => letter(0x1f170),
        '\u{1f1e6}'..='\u{1f1ff}' => letter(0x1f1e6),
        _ => None,
    }
}

/// Capitals that resemble a different letter than their lower-case forms do.
fn capital(character: char) -> Option<char> {
    Some(match character {
        'Η' => 'h',
        'Ν' => 'n',
        'Υ' => 'y',
        'Χ' => 'x',
        'Ρ' => 'p',
        _ => return None,
    })
}

/// The Latin letter or ASCII mark that a lower-case character is easily mistaken for.
fn twin(character: char) -> char {
    match character {
        '【' | '〔' | '〖' | '〘' | '〚' | '⟦' | '❲' | '⦋' | '⁅' => '[',
        '】' | '〕' | '〗' | '〙' | '〛' | '⟧' | '❳' | '⦌' | '⁆' => ']',
        '∣' | '❘' | 'ǀ' | '│' | '┃' => '|',
        '꞉' | '∶' | '׃' => ':',
        '∕' | '⁄' | '⧸' => '/',
        '‹' | '〈' | '⟨' | '❮' => '<',
        '›' | '〉' | '⟩' | '❯' => '>',
        'а' | 'α' | 'ɑ' | 'ᴀ' => 'a',
        'в' | 'β' | 'ʙ' | 'ƅ' => 'b',
        'с' | 'ϲ' | 'ᴄ' => 'c',
        'ԁ' | 'ᴅ' | 'ɗ' => 'd',
        'е' | 'ε' | 'ᴇ' | 'ҽ' | 'є' => 'e',
        'ꜰ' | 'ſ' | 'ƒ' => 'f',
        'ɡ' | 'ɢ' | 'ց' => 'g',
        'һ' | 'н' | 'ʜ' | 'հ' => 'h',
        'і' | 'ι' | 'ı' | 'ɪ' | 'ӏ' => 'i',
        'ј' | 'ϳ' | 'ᴊ' => 'j',
        'к' | 'κ' | 'ᴋ' => 'k',
        'ʟ' | 'ⅼ' => 'l',
        'м' | 'μ' | 'ᴍ' => 'm',
        'п' | 'η' | 'ɴ' | 'ո' => 'n',
        'о' | 'ο' | 'σ' | 'ᴏ' | 'օ' => 'o',
        'р' | 'ρ' | 'ᴘ' => 'p',
        'ԛ' => 'q',
        'г' | 'ʀ' => 'r',
        'ѕ' | 'ꜱ' => 's',
        'т' | 'τ' | 'ᴛ' => 't',
        'υ' | 'ᴜ' | 'ս' => 'u',
        'ν' | 'ѵ' | 'ᴠ' => 'v',
        'ԝ' | 'ω' | 'ᴡ' => 'w',
        'х' | 'χ' => 'x',
        'у' | 'γ' | 'ʏ' => 'y',
        'ᴢ' | 'ζ' => 'z',
        _ => character,
    }
}
