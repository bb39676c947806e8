//! `hone critique`: objections to a text, or to each text of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;

use anyhow::Context;
use hone_agents::Criticize;
use hone_app::PARALLEL_SEQUENCES;
use hone_app::judging::lines::is_pipe;
use hone_app::judging::{Critic, lines};
use hone_protocol::{ContentType, CritiqueLevel, CritiqueResult, Lane};
use nu_ansi_term::Color;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments::CritiqueArguments;
use crate::badge::judge_name;
use crate::chat::attachments::Attachment;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::{self, Steps};
use crate::terminal::{Line, Output};

/// Criticizes.
///
/// # Errors
/// When the text cannot be read, or a line of the batch is not valid.
pub(crate) fn run(app: &Invocation, arguments: &CritiqueArguments) -> anyhow::Result<Outcome> {
    if let Some(path) = &arguments.batch {
        return run_batch(app, arguments, path);
    }
    let text = read_text(&arguments.file)?;
    let critic = Critic::new(app, arguments.by.as_deref(), Lane::Interactive, None);
    let spinner = progress::spinner(app.output, "criticizing");
    let result = critic.criticize(arguments.kind, &text, arguments.context.as_deref().unwrap_or_default());
    spinner.finish_and_clear();
    if arguments.json.json {
        app.output.print_json(&result)?;
    } else {
        print_critique(app.output, &result)?;
    }
    if let Some(failure) = &result.judging.failure {
        app.output.error(&format!("no verdict: {failure}"));
    }
    Ok(outcome([&result]))
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let attachment = match is_pipe(path) {
        true => Attachment::stdin()?
            .ok_or_else(|| usage("there is no text on stdin to criticize: name a file, or pipe one in"))?,
        false => Attachment::file(path)?,
    };
    anyhow::ensure!(!attachment.text().trim().is_empty(), "{} is empty: there is nothing to criticize", path.display());
    Ok(attachment.text().to_owned())
}

/// A line of a batch.
#[derive(Deserialize)]
struct Item {
    content: String,
    #[serde(default)]
    context: String,
    #[serde(rename = "type")]
    kind: Option<ContentType>,
    by: Option<String>,
}

fn run_batch(app: &Invocation, arguments: &CritiqueArguments, path: &Path) -> anyhow::Result<Outcome> {
    let mut items = Vec::new();
    for line in lines::read(path)? {
        let item: Item = Item::deserialize(Value::Object(line.object.clone()))
            .map_err(|invalid| usage(format!("line {} of {}: {invalid}", line.number, lines::name(path))))?;
        items.push((line.object, item));
    }
    let generator = app.generator()?;
    let author = |item: &Item| item.by.clone().or_else(|| arguments.by.clone());
    let authors: BTreeSet<Option<String>> = items.iter().map(|(_, item)| author(item)).collect();
    let critic = |author: Option<String>| {
        let critic = Critic::new(app, author.as_deref(), Lane::Batch, Some(&generator));
        (author, critic)
    };
    let critics: BTreeMap<Option<String>, Critic> = authors.into_iter().map(critic).collect();
    let steps = Steps::new(app.output, "texts");
    let mut results = Vec::new();
    for chunk in items.chunks(PARALLEL_SEQUENCES) {
        steps.show(results.len(), items.len(), "");
        let criticize = |(_, item): &(Map<String, Value>, Item)| {
            critics[&author(item)].criticize(item.kind.unwrap_or(arguments.kind), &item.content, &item.context)
        };
        let criticized: Vec<CritiqueResult> = thread::scope(|scope| {
            let running: Vec<_> = chunk.iter().map(|item| scope.spawn(move || criticize(item))).collect();
            running
                .into_iter()
                .map(|running| running.join().map_err(|_| anyhow::anyhow!("a critique ended in a panic")))
                .collect::<anyhow::Result<_>>()
        })?;
        for ((object, _), result) in chunk.iter().zip(criticized) {
            let mut line = object.clone();
            line.extend(serde_json::to_value(&result)?.as_object().cloned().context("a critique is an object")?);
            steps.clear();
            app.output.print_json(&line)?;
            results.push(result);
        }
    }
    steps.clear();
    tell_summary(app.output, &results);
    Ok(outcome(&results))
}

fn tell_summary(output: Output, results: &[CritiqueResult]) {
    let unscored = results.iter().filter(|result| result.level.is_none());
    let blocked = results.iter().filter(|result| result.should_block).count();
    let mut text = format!("{} criticized, {blocked} blocked", results.len());
    if let Some(last) = unscored.clone().next_back() {
        let failure = last.judging.failure.as_deref().unwrap_or_default();
        text.push_str(&format!(", {} without a verdict, the last one: {failure}", unscored.count()));
    }
    output.note(&text);
}

/// A block is the gravest outcome, and a text without a verdict has not passed.
fn outcome<'a>(results: impl IntoIterator<Item = &'a CritiqueResult> + Clone) -> Outcome {
    match () {
        () if results.clone().into_iter().any(|result| result.should_block) => Outcome::BelowThreshold,
        () if results.into_iter().any(|result| result.level.is_none()) => Outcome::Failed,
        () => Outcome::Done,
    }
}

/// Prints a critique as text.
///
/// # Errors
/// When stdout cannot be written.
fn print_critique(output: Output, result: &CritiqueResult) -> anyhow::Result<()> {
    let Some(level) = result.level else { return Ok(()) };
    let color = match level {
        CritiqueLevel::Pass => Color::Green,
        CritiqueLevel::Minor | CritiqueLevel::Major => Color::Yellow,
        CritiqueLevel::Block => Color::Red,
    };
    let validity = result.validity_score.unwrap_or_default();
    output.print_marked_line(&Line::marked(color, level.name(), format!("validity {validity:.2}")))?;
    output.print_line(&result.reasoning)?;
    for (title, texts) in [("Challenges:", &result.challenges), ("Improvements:", &result.suggested_improvements)] {
        if !texts.is_empty() {
            output.print_line(title)?;
        }
        for text in texts {
            output.print_line(&format!("  - {text}"))?;
        }
    }
    output.print_line(&format!("Counterargument: {}", result.strongest_counterargument))?;
    let disregarded = result.disregarded.as_ref().map(|reason| format!("blocks nothing: {reason}"));
    for remark in disregarded.iter().chain(&result.remarks) {
        output.print_line(&format!("({remark})"))?;
    }
    let judging = &result.judging;
    output.print_line(&format!("critic {} · {:.1} s", judge_name(judging), judging.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_decides_the_exit_code_and_a_missing_verdict_is_a_failure() {
        let blocked =
            CritiqueResult { level: Some(CritiqueLevel::Block), should_block: true, ..CritiqueResult::default() };
        let noted = CritiqueResult { level: Some(CritiqueLevel::Block), ..CritiqueResult::default() };
        let unscored = CritiqueResult::default();
        assert_eq!(outcome([&noted]), Outcome::Done);
        assert_eq!(outcome([&noted, &unscored]), Outcome::Failed);
        assert_eq!(outcome([&unscored, &blocked]).exit_code(), 3);
    }
}
