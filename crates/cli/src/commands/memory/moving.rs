//! `hone memory move`: everything that is remembered, and conversations, into a database or back.

use anyhow::Context;
use hone_app::config::MemoryConfig;
use hone_app::conversations::ConversationStore;
use hone_memory::{MemoryOptions, MemoryStore, MoveProgress, Moved};
use hone_protocol::QueryId;
use serde::Serialize;

use crate::arguments::MemoryMoveArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// The most answers that differ of which the ids are listed.
const MOST_LISTED: usize = 5;

/// What `--json` prints.
#[derive(Serialize)]
struct JsonMoved<'a> {
    engrams: u64,
    added: u64,
    events: u64,
    conversations: u64,
    different: &'a [QueryId],
    sha256: [&'a str; 2],
}

/// A memory, and the conversations that are kept with it.
struct Place {
    memory: MemoryStore,
    conversations: ConversationStore,
}

pub(super) fn run(app: &Invocation, arguments: &MemoryMoveArguments) -> anyhow::Result<Outcome> {
    let MemoryMoveArguments { from, to, json } = arguments;
    if from == to {
        return Err(usage("--from and --to name the same place: one is a database, the other may be `local`"));
    }
    let (source, target) = (open(app, from)?, open(app, to)?);
    let steps = Steps::new(app.output, "engrams and events");
    let show = |MoveProgress { done, total }| steps.show(as_count(done), as_count(total), "");
    let moved = source.memory.move_to(&target.memory, show);
    steps.clear();
    let moved = moved.with_context(|| "not everything is moved; the same command goes on with it".to_owned())?;
    let conversations = move_conversations(&source.conversations, &target.conversations)?;
    if json.json {
        app.output.print_json(&JsonMoved {
            engrams: moved.engrams,
            added: moved.added,
            events: moved.events,
            conversations,
            different: &moved.different,
            sha256: [&moved.hashes[0], &moved.hashes[1]],
        })?;
    } else {
        lines_of(&moved, conversations, to).iter().try_for_each(|line| app.output.print_line(line))?;
    }
    Ok(if moved.different.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn open(app: &Invocation, place: &str) -> anyhow::Result<Place> {
    let folder = app.memory_folder();
    if place == "local" {
        let options = MemoryOptions { url: None, ..app.memory_options() };
        let memory = MemoryStore::open(&folder, options)?;
        return Ok(Place { memory, conversations: app.conversation_files() });
    }
    if !MemoryConfig::is_database(place) {
        return Err(usage(format!("{place:?} is no place: it should be `local`, or postgres://USER@HOST/NAME")));
    }
    let options = MemoryOptions { url: Some(place.to_owned()), ..app.memory_options() };
    let memory = MemoryStore::open(&folder, options)?;
    let conversations = ConversationStore::in_database(&memory);
    Ok(Place { memory, conversations })
}

/// Copies the conversations of every owner; one that is there under the same name stays as it is.
fn move_conversations(from: &ConversationStore, to: &ConversationStore) -> anyhow::Result<u64> {
    let mut n_conversations = 0;
    for owner in std::iter::once(None).chain(from.owners().into_iter().map(Some)) {
        let (from, to) = (from.of(owner), to.of(owner));
        // The latest is moved last, so that it is the latest there, too.
        for name in from.names()?.iter().rev() {
            if !to.contains(name) {
                to.save(name, &from.load(name)?)?;
            }
            n_conversations += 1;
        }
    }
    Ok(n_conversations)
}

fn lines_of(moved: &Moved, conversations: u64, to: &str) -> Vec<String> {
    let Moved { engrams, added, events, different, hashes } = moved;
    let mut lines = vec![
        format!("{engrams} answers, facts and notes are there, {added} of them new"),
        format!("{events} events and {conversations} conversations are there, too"),
    ];
    if different.is_empty() {
        lines.push(format!("both places hold the same (sha256 {})", &hashes[0][..16]));
        let setting = if to == "local" { "\"\"".to_owned() } else { "URL".to_owned() };
        lines.push(format!("from now on: hone config set memory.url {setting}; what is at the old place stays there"));
    } else {
        let listed: Vec<String> = different.iter().take(MOST_LISTED).map(QueryId::to_string).collect();
        let rest = if different.len() > listed.len() { ", …" } else { "" };
        let n = different.len();
        lines.push(format!("{n} differ, because one of the places has changed since: {}{rest}", listed.join(", ")));
    }
    lines
}

fn as_count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
