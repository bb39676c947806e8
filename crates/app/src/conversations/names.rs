//! The names of conversations, and of their files.

use anyhow::bail;
use hone_protocol::QueryId;
use time::Date;

use super::attached::split;

/// The longest name of a conversation, in characters; file systems support at least this many.
pub(super) const LONGEST_NAME: usize = 60;

/// The longest file name without its extension, in bytes: most file systems allow 255 with it.
const LONGEST_FILE_NAME: usize = 240;

/// Checks that a name is valid for a file on every system, since conversations move between systems.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    let is_allowed = |character: char| !(character.is_control() || "/\\".contains(character));
    let too_long = name.chars().count() > LONGEST_NAME + 10 || as_file_name(name).len() > LONGEST_FILE_NAME;
    let is_bad = name.trim().is_empty() || name.starts_with('.') || too_long || is_device(name);
    if is_bad || !name.chars().all(is_allowed) {
        bail!(
            "{name:?} is not a valid name for a conversation: use at most {LONGEST_NAME} letters, digits, spaces and signs, \
             but neither / nor \\, and no '.' at the beginning"
        );
    }
    Ok(())
}

/// Characters that some systems forbid in file names, and the escape character.
const ESCAPED: &str = "<>:\"|?*%";

/// Encodes a name as a file name: characters that some systems forbid become `%` and two hexadecimal digits.
pub(super) fn as_file_name(name: &str) -> String {
    let mut file = String::with_capacity(name.len());
    for character in name.chars() {
        match ESCAPED.contains(character) {
            true => file.push_str(&format!("%{:02X}", u32::from(character))),
            false => file.push(character),
        }
    }
    file
}

/// Decodes the name of a file.
pub(super) fn of_file_name(file: &str) -> String {
    let mut name = String::with_capacity(file.len());
    let mut rest = file;
    while let Some((before, after)) = rest.split_once('%') {
        name.push_str(before);
        let escaped = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(char::from);
        match escaped.filter(|character| ESCAPED.contains(*character)) {
            Some(character) => {
                name.push(character);
                rest = &after[2..];
            }
            None => {
                name.push('%');
                rest = after;
            }
        }
    }
    name + rest
}

/// Whether Windows takes a file of this name for a device, whatever its extension; a folder of conversations may move
/// there.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_uppercase();
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || numbered.is_some_and(|rest| {
            matches!(rest, "¹" | "²" | "³") || rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit()
        })
}

/// An unused name made of the day and the first words. If it cannot be checked now, a part of it is random, so that no
/// conversation is replaced later.
pub fn fresh_name(day: Date, question: &str, is_taken: impl Fn(&str) -> anyhow::Result<bool>) -> String {
    let base = name_from(day, question);
    let random = || {
        let id = QueryId::fresh().to_string();
        format!("{base}-{}", id.get(id.len() - 8..).unwrap_or_default())
    };
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    for name in std::iter::once(base.clone()).chain(numbered) {
        match is_taken(&name) {
            Ok(true) => {}
            Ok(false) => return name,
            Err(_) => break,
        }
    }
    random()
}

fn name_from(day: Date, question: &str) -> String {
    let (_, question) = split(question);
    let words = question.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = format!("{:04}-{:02}-{:02}", day.year(), u8::from(day.month()), day.day());
    for word in words.take(5) {
        if name.chars().count() + 1 + word.chars().count() > LONGEST_NAME {
            break;
        }
        name = format!("{name}-{}", word.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use time::Month;

    use super::*;

    #[track_caller]
    fn check(question: &str, expected: &str) {
        let day = Date::from_calendar_date(2026, Month::March, 7).unwrap();
        assert_eq!(fresh_name(day, question, |_| Ok(false)), expected);
        assert_eq!(fresh_name(day, question, |name| Ok(name == expected)), format!("{expected}-2"));
    }

    #[test]
    fn a_conversation_is_named_after_its_day_and_first_words() {
        check("Why is the sky blue, and the sea?", "2026-03-07-why-is-the-sky-blue");
        check("../../etc/passwd", "2026-03-07-etc-passwd");
        check("Où est-il ?", "2026-03-07-où-est-il");
        check("???", "2026-03-07");
        check(&"a".repeat(500), "2026-03-07");
    }
}
