//! `hone memory repair`: rebuilds a damaged memory and reports what could be saved.

use anyhow::bail;
use hone_app::conversations::{Conversation, ConversationStore, SavedExchange};
use hone_memory::{Engram, Repaired, Source};
use hone_protocol::{OwnerId, QueryId, RespondentId, Response, SessionId, Timestamp};

use crate::arguments::MemoryRepairArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Maximum number of lost answers whose ids are listed.
const MOST_LISTED: usize = 20;

pub(super) fn run(app: &Invocation, arguments: &MemoryRepairArguments) -> anyhow::Result<Outcome> {
    if app.config.memory.database().is_some() {
        bail!("memory is in a database, which is repaired with its own tools");
    }
    let conversations = app.conversation_files();
    let owners = std::iter::once(None).chain(conversations.owners()?.into_iter().map(Some));
    let elsewhere: Vec<Engram> =
        owners.flat_map(|owner| engrams_of_owner(app, &conversations.of(owner), owner)).collect();
    let report = hone_memory::repair(&app.memory_folder(), &app.memory_options(), &elsewhere)?;
    if arguments.json.json {
        app.output.print_json(&report)?;
    } else {
        lines_of(&report).iter().try_for_each(|line| app.output.print_line(line))?;
    }
    Ok(if report.lost.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn lines_of(report: &Repaired) -> Vec<String> {
    if report.was_whole {
        let whole = format!("nothing is damaged: memory holds {} answers and {} events", report.answers, report.events);
        return [vec![whole], due_line(report)].concat();
    }
    let mut lines = vec![format!("{} answers are remembered:", report.answers)];
    lines.extend(report.sources.iter().map(|(source, count)| format!("  {count} {}", found_in(*source))));
    lines.push(format!(
        "{} events and {} vectors are saved; missing vectors are computed over time",
        report.events, report.vectors
    ));
    if report.damaged_places > 0 {
        lines.push(format!("{} places of the old store could not be read", report.damaged_places));
    }
    if report.bad_backups > 0 {
        lines.push(format!("{} backups are damaged and were left out", report.bad_backups));
    }
    lines.extend(due_line(report));
    if let Some(old) = &report.old_store {
        lines.push(format!("the old store is kept in {}", old.display()));
    }
    if !report.lost.is_empty() {
        lines.push(format!("{} answers could not be saved:", report.lost.len()));
        lines.extend(report.lost.iter().take(MOST_LISTED).map(|id| format!("  {id}")));
    }
    lines
}

fn due_line(report: &Repaired) -> Vec<String> {
    let line =
        (report.due > 0).then(|| format!("{} more requests are due, and applied when memory is next used", report.due));
    line.into_iter().collect()
}

fn found_in(source: Source) -> &'static str {
    match source {
        Source::Storage => "from the store itself",
        Source::Backup => "from backups",
        Source::Events => "from the event log",
        Source::Elsewhere => "from saved conversations",
    }
}

/// The answers found in an owner's saved conversations. A conversation that cannot be read is reported and left out.
fn engrams_of_owner(app: &Invocation, store: &ConversationStore, owner: Option<OwnerId>) -> Vec<Engram> {
    let entries = store.entries().unwrap_or_default();
    let conversations = entries.into_iter().filter_map(|(written, name)| {
        let loaded = store.load(&name).inspect_err(|error| app.output.note(&format!("{error:#}")));
        Some((loaded.ok()?, Timestamp::from(written)))
    });
    let engrams = conversations.flat_map(|(conversation, at)| engrams_of(conversation, at));
    engrams.map(|engram| Engram { owner, ..engram }).collect()
}

fn engrams_of(conversation: Conversation, saved_at: Timestamp) -> Vec<Engram> {
    let session = SessionId::fresh();
    let engram = |exchange: SavedExchange| engram_of(exchange, session, saved_at);
    conversation.exchanges.into_iter().filter_map(engram).collect()
}

/// The time of an answer comes from its id; sampling options are not saved with a conversation.
fn engram_of(exchange: SavedExchange, session: SessionId, saved_at: Timestamp) -> Option<Engram> {
    let id = exchange.query_id?;
    let response = Response {
        finish_reason: exchange.finish_reason,
        timings: exchange.timings,
        ..Response::new(exchange.question, exchange.answer, exchange.model)
    };
    let engram = Engram::new(id, session, &response);
    Some(Engram { at: moment_in(id).unwrap_or(saved_at), respondent_id: RespondentId::A, ..engram })
}

/// The moment in an id of UUID version 7: its first 48 bits, in milliseconds.
fn moment_in(id: QueryId) -> Option<Timestamp> {
    let bytes = id.as_bytes();
    let is_version_7 = bytes[6] >> 4 == 7;
    is_version_7.then(|| Timestamp(bytes[..6].iter().fold(0, |moment, byte| moment << 8 | u64::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_when_it_was_given() {
        let (before, id) = (Timestamp::now(), QueryId::fresh());
        assert!(moment_in(id).is_some_and(|moment| moment >= before && moment <= Timestamp::now()));
        assert_eq!(moment_in(QueryId::from_bits(7)), None);
    }
}
