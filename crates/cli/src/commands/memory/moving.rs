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

/// Maximum number of differing answers or conversations to list.
const MOST_LISTED: usize = 5;

/// The output of `--json`.
#[derive(Serialize)]
struct JsonMoved<'a> {
    engrams: u64,
    added: u64,
    events: u64,
    conversations: u64,
    different: &'a [QueryId],
    different_conversations: &'a [String],
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
    let moved = moved.context("not everything is moved; the same command goes on with it")?;
    let conversations = move_conversations(&source.conversations, &target.conversations)?;
    let n_different = moved.different.len() + conversations.different.len();
    if json.json {
        app.output.print_json(&JsonMoved {
            engrams: moved.engrams,
            added: moved.added,
            events: moved.events,
            conversations: conversations.n_there,
            different: &moved.different,
            different_conversations: &conversations.different,
            sha256: [&moved.hashes[0], &moved.hashes[1]],
        })?;
    } else {
        lines_of(&moved, &conversations, to).iter().try_for_each(|line| app.output.print_line(line))?;
    }
    Ok(if n_different == 0 { Outcome::Done } else { Outcome::Failed })
}

fn open(app: &Invocation, place: &str) -> anyhow::Result<Place> {
    let folder = app.memory_folder();
    if place == "local" {
        let options = MemoryOptions { url: None, ..app.memory_options() };
        let memory = MemoryStore::open(&folder, options)?;
        return Ok(Place { memory, conversations: app.conversation_files() });
    }
    MemoryConfig::check_address(place)
        .map_err(|problem| usage(format!("a place is `local`, or a database: {problem}")))?;
    let options = MemoryOptions { url: Some(place.to_owned()), ..app.memory_options() };
    let memory = MemoryStore::open(&folder, options)?;
    let conversations = ConversationStore::in_database(&memory);
    Ok(Place { memory, conversations })
}

/// The result of moving the conversations.
#[derive(Default)]
struct MovedConversations {
    /// The number of conversations now at the destination, including those that were there before.
    n_there: u64,
    /// The names under which the destination has a different conversation.
    different: Vec<String>,
}

/// Copies the conversations of every owner; one that is there under the same name stays as it is.
fn move_conversations(from: &ConversationStore, to: &ConversationStore) -> anyhow::Result<MovedConversations> {
    let mut moved = MovedConversations::default();
    for owner in std::iter::once(None).chain(from.owners()?.into_iter().map(Some)) {
        let (from, to) = (from.of(owner), to.of(owner));
        // The latest is moved last, so that it is the latest there, too.
        for name in from.names()?.into_iter().rev() {
            let conversation = from.load(&name)?;
            if to.save_new(&name, &conversation)? || to.load(&name)? == conversation {
                moved.n_there += 1;
            } else {
                moved.different.push(name);
            }
        }
    }
    Ok(moved)
}

fn lines_of(moved: &Moved, conversations: &MovedConversations, to: &str) -> Vec<String> {
    let Moved { engrams, added, events, different, hashes } = moved;
    let n_conversations = conversations.n_there;
    let mut lines = vec![
        format!("{engrams} answers, facts and notes are there, {added} of them new"),
        format!("{events} events and {n_conversations} conversations are there, too"),
    ];
    if different.is_empty() && conversations.different.is_empty() {
        lines.push(format!("both places hold the same (sha256 {})", &hashes[0][..16]));
        let setting = if to == "local" { "\"\"" } else { "URL" };
        lines.push(format!("from now on: hone config set memory.url {setting}; what is at the old place stays there"));
        return lines;
    }
    let ids: Vec<String> = different.iter().map(QueryId::to_string).collect();
    for (what, names) in [("answers", &ids), ("conversations", &conversations.different)] {
        if let Some(listed) = names.get(..MOST_LISTED.min(names.len())).filter(|listed| !listed.is_empty()) {
            let rest = if names.len() > MOST_LISTED { ", …" } else { "" };
            let (n, listed) = (names.len(), listed.join(", "));
            lines.push(format!("{n} {what} differ and stay as they are there: {listed}{rest}"));
        }
    }
    lines
}

fn as_count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
