//! What a text looks like to a reader: its visible characters, in lower case, look-alikes as what they look like.

/// A visible character.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    /// Its place in the text, in bytes.
    pub(super) at: usize,
    /// Its length, in bytes.
    pub(super) length: usize,
    /// What it looks like.
    pub(super) looks_like: char,
    /// Whether a line ends with it.
    pub(super) ends_line: bool,
}

/// The visible characters of a text.
pub(super) fn signs(text: &str) -> Vec<Sign> {
    let sign = |(at, character): (usize, char)| Sign {
        at,
        length: character.len_utf8(),
        looks_like: appearance(character),
        ends_line: matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'),
    };
    text.char_indices().filter(|(_, character)| !is_invisible(*character)).map(sign).collect()
}

/// Whether a character takes no place of its own: formats, joiners, variation selectors, accents that are combined with what
/// they follow, control characters.
fn is_invisible(character: char) -> bool {
    match character {
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' => true,
        '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}' => true,
        _ => character.is_control() && !character.is_whitespace(),
    }
}

/// What a character looks like, in lower case.
fn appearance(character: char) -> char {
    let plain = match character {
        // Full-width forms lie in the order of ASCII.
        '\u{ff01}'..='\u{ff5e}' => shifted(character, 0xff01, '!'),
        // Mathematical letters: alphabets of upper and lower case, one after the other.
        '\u{1d400}'..='\u{1d6a3}' => letter_of_alphabets(character, 0x1d400),
        '\u{24b6}'..='\u{24e9}' => letter_of_alphabets(character, 0x24b6),
        '\u{1f130}'..='\u{1f149}' => shifted(character, 0x1f130, 'a'),
        '【' | '〔' | '〖' | '〘' | '〚' | '⟦' | '❲' | '⦋' | '⁅' | '﹝' => '[',
        '】' | '〕' | '〗' | '〙' | '〛' | '⟧' | '❳' | '⦌' | '⁆' | '﹞' => ']',
        '﹟' => '#',
        '﹤' => '<',
        '﹥' => '>',
        '∣' | '❘' | 'ǀ' => '|',
        'е' | 'Е' | 'Ε' | 'ε' => 'e',
        'ѕ' | 'Ѕ' => 's',
        'т' | 'Т' | 'Τ' => 't',
        'і' | 'І' | 'Ι' => 'i',
        'Ν' | 'п' => 'n',
        'ʀ' => 'r',
        'ʟ' => 'l',
        'ᴜ' => 'u',
        _ => character,
    };
    plain.to_ascii_lowercase()
}

/// The ASCII character as far from `first_ascii` as `character` is from the code point `first`.
fn shifted(character: char, first: u32, first_ascii: char) -> char {
    char::from_u32(u32::from(character) - first + u32::from(first_ascii)).unwrap_or(character)
}

/// The letter of a block that holds A to Z and a to z in turns.
fn letter_of_alphabets(character: char, first: u32) -> char {
    let index = (u32::from(character) - first) % 26;
    char::from_u32(u32::from('a') + index).unwrap_or(character)
}
