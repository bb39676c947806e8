//! Texts attached to a question: each precedes it in a fenced block under its name.
//!
//! A fence is longer than every run of backticks in its text, so that no text ends its own block, and [`split`] finds
//! the question again.

use anyhow::{anyhow, bail};
use hone_agents::research::{decode_text, is_pdf};

use crate::describe::{bytes, on_one_line};
use crate::workers::documents::pdf_process;

/// The prefix of a block's name.
const FILE: &str = "File: ";

/// The most bytes of a text that goes with a question: more than any context holds.
pub const LARGEST_TEXT: u64 = 16 << 20;

/// The text of a file: of a PDF's pages, or the file itself.
///
/// # Errors
/// The reason why it cannot go with a question, worded to follow the file's name.
pub fn text_of(file: Vec<u8>) -> anyhow::Result<String> {
    if !is_pdf(&file) {
        return decode_text(file).map_err(|reason| anyhow!("{reason}: only texts and PDFs can go with a question"));
    }
    let pages = pdf_process()?.pages(file).map_err(|reason| anyhow!(reason))?;
    let pages: Vec<&str> = pages.iter().map(|page| page.trim()).filter(|page| !page.is_empty()).collect();
    if pages.is_empty() {
        bail!("is a PDF without text: its pages may be pictures");
    }
    let n_bytes: u64 = pages.iter().map(|page| page.len() as u64).sum();
    if n_bytes > LARGEST_TEXT {
        bail!("is a PDF with {} of text: no model's context holds it", bytes(n_bytes));
    }
    Ok(pages.join("\n\n"))
}

/// Formats a text to precede a question.
pub fn block(name: &str, text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    format!("{FILE}{}\n{fence}\n{}\n{fence}\n\n", on_one_line(name), text.trim_end())
}

/// The names of the attached texts, and the question.
pub fn split(composed: &str) -> (Vec<&str>, &str) {
    let (mut names, mut rest) = (Vec::new(), composed);
    while let Some((name, after)) = first_block(rest) {
        names.push(name);
        rest = after;
    }
    (names, rest)
}

/// The length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|character| character != '`').map(str::len).max().unwrap_or_default()
}

/// The name of the text at the beginning of `text`, and the remainder.
fn first_block(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix(FILE)?.split_once("\n```")?;
    let n_backticks = 3 + rest.len() - rest.trim_start_matches('`').len();
    let (_, after) = rest.split_once(&format!("\n{}\n\n", "`".repeat(n_backticks)))?;
    (!name.contains('\n')).then_some((name, after))
}
