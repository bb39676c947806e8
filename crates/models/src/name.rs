//! Names of models: their syntax, their folder names, and the likely meaning of a misspelt one.
//!
//! A name is `family` or `family:tag` in lower-case letters, digits, `.`, `_` and `-`. Not all file systems allow a
//! colon, so the store writes it as `@`, which no name contains: the mapping is one to one.

use std::path::Path;

use hone_protocol::PartName;

/// The name under which the store keeps the only file of a one-file model.
pub(crate) const SINGLE_FILE: &str = "model.gguf";

/// Whether a text is a valid model name.
pub(crate) fn is_model_name(name: &str) -> bool {
    let mut parts = name.split(':');
    let family = parts.next().unwrap_or_default();
    let tag = parts.next();
    parts.next().is_none() && is_name_part(family) && tag.is_none_or(is_name_part) && name.len() <= 128
}

/// The name of the folder for the model with this name.
pub(crate) fn folder_of_name(name: &str) -> String {
    name.replace(':', "@")
}

/// The name of the model in this folder, if it is a folder of the store.
pub(crate) fn name_of_folder(folder: &str) -> Option<String> {
    let name = folder.replace('@', ":");
    (is_model_name(&name) && !folder.contains(':')).then_some(name)
}

/// The names under which the store keeps a GGUF with this number of parts.
pub(crate) fn names_of_parts(count: usize) -> Vec<String> {
    match u32::try_from(count) {
        Ok(count) if count > 1 => {
            PartName { stem: "model", number: 1, count }.all().map(|part| part.to_string()).collect()
        }
        _ => vec![SINGLE_FILE.to_owned()],
    }
}

/// Derives a model name from a file name: without folder, `.gguf` and the number of a part, in lower case, with every
/// other invalid character replaced by `-`.
pub(crate) fn name_from_file(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let file = PartName::parse(file).map_or(file, |part| part.stem).to_lowercase();
    let name = with_valid_characters(file.strip_suffix(".gguf").unwrap_or(&file));
    is_model_name(&name).then_some(name)
}

/// Derives a model name from another program's name for a model: the last part of a path, or OWNER/NAME:TAG.
pub(crate) fn name_from_text(text: &str, has_tag: bool) -> Option<String> {
    if !has_tag {
        return name_from_file(Path::new(text));
    }
    let lower = text.to_lowercase();
    let (family, tag) = lower.rsplit_once(':')?;
    let name = format!("{}:{}", with_valid_characters(family), with_valid_characters(tag));
    is_model_name(&name).then_some(name)
}

fn with_valid_characters(text: &str) -> String {
    let name: String = text.chars().map(|c| if is_name_character(c) { c } else { '-' }).collect();
    name.trim_start_matches(['-', '.', '_']).to_owned()
}

/// Whether a relative file name, with `/` between folders, stays inside its folder.
pub(crate) fn is_safe_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 1024
        && !name.contains(['\\', ':'])
        && !name.contains(char::is_control)
        && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Whether a text looks like a path rather than a name.
pub(crate) fn looks_like_path(text: &str) -> bool {
    text.contains(['/', '\\']) || text.to_lowercase().ends_with(".gguf")
}

/// The candidate that the user most likely meant: one that continues the text, otherwise the one with the closest
/// spelling.
pub(crate) fn suggestion<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let family = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    candidates
        .map(|candidate| {
            let spelling = strsim::normalized_damerau_levenshtein(&typed, candidate);
            let continued = !typed.is_empty() && (candidate.starts_with(&typed) || family(candidate) == family(&typed));
            (candidate, spelling + if continued { 1.0 } else { 0.0 })
        })
        .filter(|(_, score)| *score >= 0.6)
        .fold(
            None,
            |best: Option<(&str, f64)>, next| if best.is_some_and(|b| b.1 >= next.1) { best } else { Some(next) },
        )
        .map(|(candidate, _)| candidate)
}

fn is_name_part(part: &str) -> bool {
    part.chars().all(is_name_character) && part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_folders_map_one_to_one() {
        for name in ["smollm2:135m", "llama3.2:1b", "a", "tiny_test-1.gguf"] {
            assert!(is_model_name(name), "{name}");
            assert_eq!(name_of_folder(&folder_of_name(name)).as_deref(), Some(name));
        }
        for name in ["", ":", "a:", ":b", "A", "a:b:c", "../a", "a/b", "a b", ".a", "a@b", "-a"] {
            assert!(!is_model_name(name), "{name}");
        }
    }

    #[test]
    fn a_file_gives_a_name() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(name_from_file(Path::new(path)).as_deref(), expected, "{path}");
        };
        check("/models/SmolLM2-135M-Instruct.Q4_1.gguf", Some("smollm2-135m-instruct.q4_1"));
        check("My Model (1).GGUF", Some("my-model--1-"));
        check("_x.gguf", Some("x"));
        check("Big-Q4_0-00001-of-00003.gguf", Some("big-q4_0"));
        check(".gguf", None);
        check("/", None);
    }

    #[test]
    fn a_slip_is_suggested_and_nonsense_is_not() {
        let known = ["smollm2:135m", "smollm2:360m", "qwen3:0.6b", "prometheus:7b"];
        let check = |typed: &str, expected: Option<&str>| {
            assert_eq!(suggestion(typed, known.into_iter()), expected, "{typed}");
        };
        check("smollm2:135", Some("smollm2:135m"));
        check("smolm2:360m", Some("smollm2:360m"));
        check("prometeus:7b", Some("prometheus:7b"));
        check("qwen3", Some("qwen3:0.6b"));
        check("Qwen3:0.6B", Some("qwen3:0.6b"));
        check("zzz", None);
        check("", None);
    }

    #[test]
    fn file_names_stay_in_their_folder() {
        for name in ["a", "1_Pooling/config.json", "a..b"] {
            assert!(is_safe_file_name(name), "{name}");
        }
        for name in ["", "/a", "a/", "../a", "a/../b", "./a", "a//b", "c:a", "a\\b", "a\0"] {
            assert!(!is_safe_file_name(name), "{name}");
        }
    }
}
