//! `hone conversations`: lists, shows, searches and manages the saved conversations of a chat or the page.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};
use hone_app::conversations::import::{self, Import};
use hone_app::conversations::{
    Conversations, FoundConversation, Named, SavedConversation, SavedExchange, remembered_of,
};
use hone_app::describe::{moment, on_one_line};
use hone_app::judging::lines::is_pipe;
use hone_memory::{MemoryStore, Whose};
use hone_protocol::{Grade, Likely, QueryId, Timestamp};
use serde::Serialize;

use crate::arguments::{
    ConversationsArguments, ConversationsCommand, ConversationsDeleteArguments, ConversationsExportArguments,
    ConversationsImportArguments, ConversationsRenameArguments, ConversationsSearchArguments,
    ConversationsShowArguments,
};
use crate::badge;
use crate::chat::export::{is_json, text_of, write_new};
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::keyboard::{Consent, can_ask, consent};
use crate::terminal::{Line, Markdown};

/// Maximum number of names in an error.
const MOST_NAMES: usize = 8;

/// Runs the subcommand.
///
/// # Errors
/// When a conversation does not exist, or cannot be read or written.
pub(crate) fn run(app: &Invocation, arguments: &ConversationsArguments) -> anyhow::Result<Outcome> {
    let kept = kept(app);
    match &arguments.command {
        ConversationsCommand::List(arguments) => {
            let n = if arguments.n == 0 { usize::MAX } else { arguments.n };
            let mut found = kept.search("")?;
            let n_saved = found.len();
            found.truncate(n);
            print_list(app, found, "", arguments.json.json)?;
            match n_saved {
                0 => {}
                _ if n_saved > n => app.output.note(&format!("{n} of {n_saved} conversations; -n 0 lists all")),
                _ => app.output.note(&number_of(n_saved)),
            }
        }
        ConversationsCommand::Search(arguments) => search(app, &kept, arguments)?,
        ConversationsCommand::Show(arguments) => show(app, &kept, arguments)?,
        ConversationsCommand::Rename(arguments) => rename(app, &kept, arguments)?,
        ConversationsCommand::Delete(arguments) => delete(app, &kept, arguments)?,
        ConversationsCommand::Export(arguments) => export(app, &kept, arguments)?,
        ConversationsCommand::Import(arguments) => import(app, arguments)?,
    }
    Ok(Outcome::Done)
}

/// The saved conversations of the terminal.
fn kept(app: &Invocation) -> Conversations {
    Conversations::of_store(app.conversation_store(), app.config.chat.system.clone())
}

/// The name of the one conversation that `text` stands for.
fn one(kept: &Conversations, text: &str) -> anyhow::Result<String> {
    match kept.named(text)? {
        Named::One(name) => Ok(name),
        Named::Several(found) => bail!("{}", several(text, &found)),
        Named::Nothing => bail!("no conversation {text:?} is saved: `hone conversations list` lists them"),
    }
}

/// The message if `text` stands for several conversations.
pub(super) fn several(text: &str, found: &[FoundConversation]) -> String {
    let names: Vec<&str> = found.iter().take(MOST_NAMES).map(|it| it.name.as_str()).collect();
    let rest = if found.len() > names.len() { ", …" } else { "" };
    format!("{} conversations are called {text:?}: {}{rest}", found.len(), names.join(", "))
}

/// The grades of the answers of conversations.
struct Grades(Option<MemoryStore>);

impl Grades {
    /// The grades in memory, if there is a memory.
    fn open(app: &Invocation) -> Grades {
        if !app.has_memory() {
            return Grades(None);
        }
        let opened = app.memory_to_read();
        Grades(opened.inspect_err(|error| app.output.note(&format!("grades are unknown: {error:#}"))).ok())
    }

    fn of(&self, id: Option<QueryId>) -> anyhow::Result<Option<Grade>> {
        let (Some(store), Some(id)) = (&self.0, id) else { return Ok(None) };
        Ok(store.get(id)?.and_then(|engram| engram.grade).filter(Grade::is_verdict))
    }

    /// The grades of the answers shown.
    fn summary(&self, conversation: &SavedConversation) -> anyhow::Result<GradeSummary> {
        let mut grades = Vec::new();
        for exchange in conversation.exchanges.shown() {
            grades.extend(self.of(exchange.query_id)?);
        }
        Ok(GradeSummary::of(&grades))
    }
}

/// The grades of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct GradeSummary {
    /// The number of answers with a score.
    graded: usize,
    /// The number of answers that a judge without scores marked as likely right.
    likely_right: usize,
    /// The number of answers that such a judge marked as likely wrong.
    likely_wrong: usize,
    lowest: Option<u8>,
    highest: Option<u8>,
    /// The mean, unless different judges graded: their scores are not comparable.
    mean: Option<f64>,
    judges: Vec<String>,
}

impl GradeSummary {
    fn of(grades: &[Grade]) -> GradeSummary {
        let scores: Vec<u8> = grades.iter().filter_map(|grade| grade.score).collect();
        let scored = grades.iter().filter(|grade| grade.score.is_some());
        let mut judges: Vec<String> = scored.map(|grade| badge::judge_name(&grade.judging)).collect();
        judges.sort();
        judges.dedup();
        let sum: f64 = scores.iter().map(|score| f64::from(*score)).sum();
        let mean = (judges.len() == 1).then(|| sum / scores.len() as f64);
        let (lowest, highest) = (scores.iter().min().copied(), scores.iter().max().copied());
        let marked = |mark| grades.iter().filter(|grade| grade.likely == Some(mark)).count();
        let [likely_right, likely_wrong] = [Likely::Right, Likely::Wrong].map(marked);
        GradeSummary { graded: scores.len(), likely_right, likely_wrong, lowest, highest, mean, judges }
    }

    /// The text in a column of a list.
    fn text(&self) -> String {
        match (self.mean, self.lowest, self.highest) {
            (Some(mean), ..) => format!("{mean:.1}"),
            (None, Some(lowest), Some(highest)) if lowest == highest => lowest.to_string(),
            (None, Some(lowest), Some(highest)) => format!("{lowest} to {highest}"),
            _ => self.marks(),
        }
    }

    fn marks(&self) -> String {
        match (self.likely_right, self.likely_wrong) {
            (0, 0) => "-".to_owned(),
            (right, 0) => format!("{right} likely right"),
            (0, wrong) => format!("{wrong} likely wrong"),
            (right, wrong) => format!("{right} likely right, {wrong} wrong"),
        }
    }
}

/// The output of `--json` for each conversation.
#[derive(Serialize)]
struct JsonEntry {
    name: String,
    title: String,
    written: Timestamp,
    /// `None` if the conversation cannot be read.
    model: Option<String>,
    exchanges: Option<usize>,
    grade: Option<GradeSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excerpt: Option<String>,
}

fn search(app: &Invocation, kept: &Conversations, arguments: &ConversationsSearchArguments) -> anyhow::Result<()> {
    print_list(app, kept.search(&arguments.text)?, &arguments.text, arguments.json.json)
}

/// Prints conversations, each with the line in which `text` was found.
fn print_list(app: &Invocation, found: Vec<FoundConversation>, text: &str, json: bool) -> anyhow::Result<()> {
    let grades = Grades::open(app);
    let entry = |found: FoundConversation| -> anyhow::Result<JsonEntry> {
        let FoundConversation { name, written, conversation } = found;
        let title = conversation.as_ref().map_or_else(|| name.clone(), |conversation| conversation.title(&name));
        let grade = conversation.as_ref().map(|conversation| grades.summary(conversation)).transpose()?;
        let excerpt = conversation.as_ref().and_then(|conversation| excerpt(conversation, text));
        let exchanges = conversation.as_ref().map(|conversation| conversation.exchanges.n_shown());
        let model = conversation.map(|conversation| conversation.model);
        Ok(JsonEntry { name, title, written, model, exchanges, grade, excerpt })
    };
    let entries = found.into_iter().map(entry).collect::<anyhow::Result<Vec<_>>>()?;
    if json {
        return app.output.print_json(&entries);
    }
    match (entries.is_empty(), text.is_empty()) {
        (true, true) => app.output.note("no conversation is saved"),
        (true, false) => app.output.note(&format!("no conversation contains {text:?}")),
        (false, _) => {
            let titles = ["written (utc)", "answers", "grade", "name", "model", ""];
            app.output.print_titled(&titles, entries.into_iter().map(row))?;
        }
    }
    Ok(())
}

fn row(entry: JsonEntry) -> Vec<String> {
    let unknown = || "?".to_owned();
    vec![
        moment(entry.written),
        entry.exchanges.map_or_else(unknown, |count| count.to_string()),
        entry.grade.map_or_else(unknown, |grade| grade.text()),
        entry.name,
        entry.model.unwrap_or_else(unknown),
        entry.excerpt.unwrap_or_default(),
    ]
}

/// The first line with `text`; `None` if no text was searched for, or only the name contains it.
fn excerpt(conversation: &SavedConversation, text: &str) -> Option<String> {
    let wanted = Some(text.to_lowercase()).filter(|text| !text.is_empty())?;
    let texts = conversation.exchanges.all().flat_map(|exchange| [&exchange.question, &exchange.answer]);
    let line = texts.flat_map(|text| text.lines()).find(|line| line.to_lowercase().contains(&wanted))?;
    Some(on_one_line(line))
}

fn show(app: &Invocation, kept: &Conversations, arguments: &ConversationsShowArguments) -> anyhow::Result<()> {
    let name = one(kept, &arguments.name)?;
    let conversation = kept.load(&name)?;
    let grades = Grades::open(app);
    let shown = |exchange: &SavedExchange| grades.of(exchange.query_id);
    let graded = conversation.exchanges.shown().map(shown).collect::<anyhow::Result<Vec<_>>>()?;
    if arguments.json.json {
        let mut object = conversation.to_json(&name);
        for (place, grade) in graded.iter().enumerate() {
            object["exchanges"][place]["grade"] = serde_json::to_value(grade)?;
        }
        return app.output.print_json(&object);
    }
    let written = kept.list()?.into_iter().find(|entry| entry.name == name).map(|entry| moment(entry.written));
    let facts = [
        ("name", name.clone()),
        ("title", conversation.title(&name)),
        ("written", format!("{} UTC", written.unwrap_or_default())),
        ("model", conversation.model.clone()),
        ("system", conversation.system.clone()),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    app.output.print_table(&facts.map(|(fact, value)| vec![fact.to_owned(), value]).collect::<Vec<_>>())?;
    for (number, (exchange, grade)) in (1..).zip(conversation.exchanges.shown().zip(graded)) {
        let question = exchange.question.replace('\n', "\n> ");
        app.output.print_line(&format!("\n[{number}] > {question}"))?;
        print_answer(app, exchange.answer.trim_end())?;
        if let Some(grade) = &grade {
            let (color, mark, score) = badge::parts(Some(grade));
            let judge = format!("by {}", badge::judge_name(&grade.judging));
            app.output.print_marked_line(&Line::marked(color, format!("{mark} {score}"), judge))?;
        }
    }
    Ok(())
}

/// Prints an answer, rendered where a chat renders it.
fn print_answer(app: &Invocation, answer: &str) -> anyhow::Result<()> {
    if !app.config.chat.markdown || !app.output.renders_markdown() {
        return app.output.print_line(answer);
    }
    let mut markdown = Markdown::default();
    app.output.print_markdown(answer, &mut markdown)?;
    app.output.finish_markdown(&mut markdown)
}

/// The output of `hone conversations rename --json`.
#[derive(Serialize)]
struct JsonRenamed<'a> {
    name: &'a str,
    new_name: &'a str,
}

fn rename(app: &Invocation, kept: &Conversations, arguments: &ConversationsRenameArguments) -> anyhow::Result<()> {
    let (name, new_name) = (one(kept, &arguments.name)?, arguments.new_name.as_str());
    kept.rename(&name, new_name)?;
    match arguments.json.json {
        true => app.output.print_json(&JsonRenamed { name: &name, new_name }),
        false => app.output.print_line(&format!("{name} is now called {new_name}")),
    }
}

fn delete(app: &Invocation, kept: &Conversations, arguments: &ConversationsDeleteArguments) -> anyhow::Result<()> {
    // Nothing is deleted unless every conversation exists.
    for name in &arguments.names {
        kept.check(name)?;
    }
    let mut names = arguments.names.clone();
    names.sort();
    names.dedup();
    let remembered = match remembered(app, kept, &names) {
        Err(error) if !arguments.forget => {
            app.output.note(&format!("what is remembered of it is unknown: {error:#}"));
            Vec::new()
        }
        remembered => remembered?,
    };
    let n = match remembered.len() {
        1 => "1 memory".to_owned(),
        n => format!("{n} memories"),
    };
    let is_asked = !arguments.forget && !arguments.json.json && !remembered.is_empty() && can_ask(app.output);
    let is_wanted = arguments.forget
        || (is_asked && consent(app.output, &format!("{n} came of it. Forget that, too? [y/N] "))? == Consent::Yes);
    // Memory first: once a conversation is gone, nothing records which memories came from it.
    if is_wanted && !remembered.is_empty() {
        app.memory_to_write()?.remove(&remembered)?;
    }
    for name in &names {
        kept.remove(name)?;
    }
    match arguments.json.json {
        true => app.output.print_json(&names)?,
        false => names.iter().try_for_each(|name| app.output.print_line(&format!("{name} is deleted")))?,
    }
    if !remembered.is_empty() {
        app.output.note(&match is_wanted {
            true => format!("{n} forgotten"),
            false => format!("{n} from it kept: `hone memory list --kind all`, `hone memory rm`"),
        });
    }
    Ok(())
}

/// The memories from these conversations. An unreadable one has left none that could be found.
fn remembered(app: &Invocation, kept: &Conversations, names: &[String]) -> anyhow::Result<Vec<QueryId>> {
    if !app.has_memory() {
        return Ok(Vec::new());
    }
    let (store, mut ids) = (app.memory_to_read()?, BTreeSet::new());
    for conversation in names.iter().filter_map(|name| kept.load(name).ok()) {
        ids.extend(remembered_of(&conversation, &store, Whose::Of(None))?);
    }
    Ok(ids.into_iter().collect())
}

fn export(app: &Invocation, kept: &Conversations, arguments: &ConversationsExportArguments) -> anyhow::Result<()> {
    if let Some(file) = &arguments.all {
        return export_all(app, kept, file);
    }
    let name = one(kept, arguments.name.as_deref().unwrap_or_default())?;
    let conversation = kept.load(&name)?;
    let file = arguments.file.as_deref().filter(|file| !is_pipe(file));
    let as_json = arguments.json.json || file.is_some_and(is_json);
    let text = text_of(&name, &conversation, as_json);
    match file {
        None => app.output.print_piece(&text),
        Some(file) => {
            write_new(file, &text)?;
            app.output.note(&format!("written to {}", absolute(file)?));
            Ok(())
        }
    }
}

/// One line for each conversation, the oldest first.
fn export_all(app: &Invocation, kept: &Conversations, file: &Path) -> anyhow::Result<()> {
    let mut lines = String::new();
    let mut n_saved = 0;
    for entry in kept.list()?.into_iter().rev() {
        lines.push_str(&format!("{}\n", kept.load(&entry.name)?.to_archive(&entry.name)));
        n_saved += 1;
    }
    if is_pipe(file) {
        return app.output.print_piece(&lines);
    }
    write_new(file, &lines)?;
    app.output.note(&format!("{} written to {}", number_of(n_saved), absolute(file)?));
    Ok(())
}

/// The outcome of an import.
#[derive(Default, Serialize)]
struct ImportSummary {
    /// The names of the new conversations.
    imported: Vec<String>,
    /// The names of those that were imported before.
    already_here: Vec<String>,
    /// The number of those without an answer, which are left out.
    empty: usize,
}

fn import(app: &Invocation, arguments: &ConversationsImportArguments) -> anyhow::Result<()> {
    let text = text_in(&arguments.file)?;
    let failure = || format!("cannot import {}", arguments.file.display());
    let (found, empty) = import::read(&text, &app.config.engine.model).with_context(failure)?;
    let store = app.conversation_store();
    let mut summary = ImportSummary { empty, ..ImportSummary::default() };
    for conversation in &found {
        match import::save(&store, conversation)? {
            Import::Saved(name) => summary.imported.push(name),
            Import::AlreadyHere(name) => summary.already_here.push(name),
        }
    }
    if arguments.json.json {
        return app.output.print_json(&summary);
    }
    let mut text = format!("{} imported", number_of(summary.imported.len()));
    if !summary.already_here.is_empty() {
        text.push_str(&format!(", {} here already", summary.already_here.len()));
    }
    if summary.empty > 0 {
        text.push_str(&format!(", {} without an answer left out", summary.empty));
    }
    app.output.print_line(&text)
}

fn number_of(conversations: usize) -> String {
    if conversations == 1 { "1 conversation".to_owned() } else { format!("{conversations} conversations") }
}

/// The text of a file, or of stdin.
fn text_in(file: &Path) -> anyhow::Result<String> {
    let failure = || format!("cannot read {}", file.display());
    if is_pipe(file) {
        return std::io::read_to_string(std::io::stdin()).with_context(failure);
    }
    std::fs::read_to_string(file).with_context(failure)
}

fn absolute(file: &Path) -> anyhow::Result<String> {
    Ok(std::path::absolute(file).context("cannot find the current folder")?.display().to_string())
}

#[cfg(test)]
mod tests {
    use hone_protocol::Judging;

    use super::*;

    #[track_caller]
    fn check(scores: &[(u8, &str)], expected: &str) {
        let grade = |(score, judge): &(u8, &str)| Grade {
            score: Some(*score),
            judging: Judging { judge: (*judge).to_owned(), ..Judging::default() },
            ..Grade::unscored("")
        };
        assert_eq!(GradeSummary::of(&scores.iter().map(grade).collect::<Vec<_>>()).text(), expected);
    }

    #[test]
    fn a_mean_is_that_of_one_judge() {
        check(&[], "-");
        check(&[(4, "a"), (5, "a"), (4, "a")], "4.3");
        check(&[(4, "a"), (2, "b")], "2 to 4");
        check(&[(4, "a"), (4, "b")], "4");
    }
}
