//! Output about the chat itself: its commands and settings, the conversation, and its cost.

use hone_app::conversations::Session;
use hone_protocol::{QueryId, Timings};

use super::SAMPLING;
use crate::chat::attachments;
use crate::chat::screen::Screen;
use crate::chat::slash::COMMANDS;
use crate::terminal::Line;

/// Maximum number of lines shown of the last answer of a resumed conversation.
const TAIL_LINES: usize = 16;

/// The fence around a block of code.
const FENCE: &str = "```";

/// Tells a user which conversation is resumed, and how it ended.
///
/// # Errors
/// When the reader of the output is gone.
pub(crate) fn tell_resumed(session: &Session, screen: &mut dyn Screen) -> anyhow::Result<()> {
    screen.note(&resumed(session));
    let exchanges = session.exchanges();
    let Some(last) = exchanges.last() else { return Ok(()) };
    screen.note(&format!("> {}", attachments::label(&last.question)));
    screen.text(&tail(&last.answer))?;
    screen.end()
}

/// The last lines of a text. If they begin inside a block of code, a fence opens it again.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let (left_out, shown) = lines.split_at(lines.len().saturating_sub(TAIL_LINES));
    if left_out.is_empty() {
        return shown.join("\n");
    }
    let n_fences = left_out.iter().filter(|line| line.trim_start().starts_with(FENCE)).count();
    let fence = if n_fences % 2 == 1 { "```\n" } else { "" };
    format!("…\n\n{fence}{}", shown.join("\n"))
}

/// The message for a user who resumes a conversation.
fn resumed(session: &Session) -> String {
    let exchanges = match session.exchanges().len() {
        1 => "1 exchange".to_string(),
        count => format!("{count} exchanges"),
    };
    format!("resuming {}, {exchanges} so far (/show shows them)", session.name().unwrap_or_default())
}

/// The commands and keys, for `/help`.
pub(super) fn help() -> Vec<Vec<String>> {
    let command = |name: &str, takes: &str| format!("/{name} {takes}").trim_end().to_string();
    let mut rows: Vec<Vec<String>> =
        COMMANDS.iter().map(|it| vec![command(it.name, it.takes), it.does.to_string()]).collect();
    let keys = [
        ("Alt-Enter", "a new line; so do \\ at the end of a line, a ``` fence and a \"\"\" block"),
        ("@PATH", "in a question: attach this text file; Tab completes the path"),
        ("Ctrl-C", "stop the answer, or clear the line"),
        ("Ctrl-D", "leave"),
    ];
    rows.extend(keys.map(|(key, does)| vec![key.to_string(), does.to_string()]));
    rows
}

/// Says how much of the context a conversation with attachments takes.
pub(super) fn tell_prompt_tokens(session: &Session, screen: &mut dyn Screen) {
    if let Some(last) = session.exchanges().last() {
        screen.note(&format!("the conversation takes {} tokens of the context", last.timings.prompt_tokens));
    }
}

/// The instructions before the conversation, for display.
pub(super) fn system_or_none(session: &Session) -> &str {
    match session.config().chat.system.as_str() {
        "" => "(left to the model's template)",
        system => system,
    }
}

/// The sampling settings.
pub(super) fn settings(session: &Session) -> Vec<Vec<String>> {
    let sampling =
        session.config().entries().iter().filter_map(|(key, entry)| Some((key.strip_prefix(SAMPLING)?, entry)));
    sampling.map(|(name, entry)| vec![name.to_string(), entry.value.to_string()]).collect()
}

/// Shows the conversation and its settings, with what is known about its answers.
pub(super) fn show(
    session: &Session,
    verdicts: impl Fn(QueryId) -> Vec<Line>,
    screen: &mut dyn Screen,
) -> anyhow::Result<()> {
    screen.say_rows(&[
        vec!["conversation".to_string(), session.name().unwrap_or("(not saved)").to_string()],
        vec!["model".to_string(), session.model().to_string()],
        vec!["system".to_string(), system_or_none(session).to_string()],
        vec!["exchanges".to_string(), session.exchanges().len().to_string()],
        vec!["beyond the context".to_string(), session.left_out().to_string()],
    ])?;
    for (number, exchange) in (1..).zip(session.exchanges()) {
        screen.say(&format!("\n[{number}] > {}", exchange.question.replace('\n', "\n> ")))?;
        screen.text(&exchange.answer)?;
        screen.end()?;
        exchange.query_id.map(&verdicts).iter().flatten().for_each(|verdict| screen.mark(verdict));
    }
    Ok(())
}

/// Shows the cost of the answers.
pub(super) fn statistics(session: &Session, screen: &mut dyn Screen) -> anyhow::Result<()> {
    let exchanges = session.exchanges();
    let Some(last) = exchanges.last() else { return screen.say("nothing has been answered yet") };
    let total = |count: fn(&Timings) -> usize| -> usize { exchanges.iter().map(|it| count(&it.timings)).sum() };
    screen.say_rows(&[
        vec!["".into(), "prompt tokens".into(), "per second".into(), "answer tokens".into(), "per second".into()],
        vec![
            "last answer".into(),
            last.timings.prompt_tokens.to_string(),
            format!("{:.1}", last.timings.prompt_tokens_per_second),
            last.timings.generation_tokens.to_string(),
            format!("{:.1}", last.timings.generation_tokens_per_second),
        ],
        vec![
            "all answers".into(),
            total(|timings| timings.prompt_tokens).to_string(),
            String::new(),
            total(|timings| timings.generation_tokens).to_string(),
        ],
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_whole_lines() {
        assert_eq!(tail("a\nb\n"), "a\nb");
        let lines = |range: std::ops::Range<usize>| range.map(|n| format!("{n}\n")).collect::<String>();
        assert_eq!(tail(&lines(0..20)), format!("…\n\n{}", lines(4..20).trim_end()));
        assert_eq!(tail(&format!("```\n{}```", lines(1..20))), format!("…\n\n```\n{}```", lines(5..20)));
    }
}
