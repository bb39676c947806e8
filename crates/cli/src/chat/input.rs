//! Classifies typed text: a question, a command, or incomplete.
//!
//! A text continues over several lines inside a ``` fence, inside `"""`, and after a backslash at the end of a line.
//! `"""` and the backslash are notation and are removed; a fence belongs to the question.

use super::slash::SlashCommand;

/// A complete text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Only white space.
    Nothing,
    /// A question for the model.
    Question(String),
    /// A command for the chat.
    Command(SlashCommand),
    /// An invalid command, and why.
    Wrong(String),
}

/// Whether `text` is complete, rather than continued on more lines.
pub(crate) fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    if let Some(block) = trimmed.strip_prefix(BLOCK) {
        return block.ends_with(BLOCK);
    }
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    fences % 2 == 0 && !text.trim_end_matches(' ').ends_with('\\')
}

/// Parses a complete text.
pub(crate) fn parse(text: &str) -> Input {
    let trimmed = text.trim();
    if let Some(block) = trimmed.strip_prefix(BLOCK) {
        return question(block.strip_suffix(BLOCK).unwrap_or(block));
    }
    match trimmed.strip_prefix('/') {
        // Two slashes begin a question that starts with one.
        Some(rest) if rest.starts_with('/') => question(rest),
        Some(rest) => SlashCommand::parse(&joined(rest)).map_or_else(Input::Wrong, Input::Command),
        None => question(&joined(trimmed)),
    }
}

/// Encloses a question that is taken verbatim.
pub(crate) const BLOCK: &str = "\"\"\"";

fn question(text: &str) -> Input {
    let text = text.trim();
    if text.is_empty() { Input::Nothing } else { Input::Question(text.to_string()) }
}

/// The text without the backslashes that only mark continued lines.
pub(super) fn joined(text: &str) -> String {
    text.replace("\\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_complete(text: &str, expected: bool) {
        assert_eq!(is_complete(text), expected, "{text:?}");
    }

    #[track_caller]
    fn check(text: &str, expected: Input) {
        assert!(is_complete(text), "{text:?}");
        assert_eq!(parse(text), expected, "{text:?}");
    }

    #[test]
    fn a_text_goes_on_in_fences_blocks_and_after_a_backslash() {
        check_complete("", true);
        check_complete("hello", true);
        check_complete("hello \\", false);
        check_complete("hello \\\nyou", true);
        check_complete("```", false);
        check_complete("what is this?\n```rust\nfn", false);
        check_complete("what is this?\n```rust\nfn\n```", true);
        check_complete("\"\"\"", false);
        check_complete("\"\"\"a\nb", false);
        check_complete("\"\"\"a\nb\"\"\"", true);
        check_complete("\"\"\"a\n```\nb\"\"\"", true);
        check_complete("say \"\"\" aloud", true);
    }

    #[test]
    fn notation_is_taken_away() {
        let question = |text: &str| Input::Question(text.to_string());
        check("  hello\n", question("hello"));
        check("one\\\ntwo", question("one\ntwo"));
        check("\"\"\"\none\n\ntwo\n\"\"\"", question("one\n\ntwo"));
        check("\"\"\"/help\"\"\"", question("/help"));
        check("```\ncode\n```", question("```\ncode\n```"));
        check("//etc/passwd is what?", question("/etc/passwd is what?"));
        check(" \n ", Input::Nothing);
        check("\"\"\"\"\"\"", Input::Nothing);
        check("/help", Input::Command(SlashCommand::Help));
        check("/system one\\\ntwo", Input::Command(SlashCommand::System(Some("one\ntwo".into()))));
    }
}
