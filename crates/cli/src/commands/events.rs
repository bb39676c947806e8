//! `hone events`: past messages between the agents, and with `--follow` new ones.

use std::time::Duration;

use hone_memory::EventFilter;
use hone_protocol::{Envelope, SessionId};
use serde::Serialize;

use crate::arguments::EventsArguments;
use crate::events::event_line;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::Output;

/// Past events to show before following.
const LATEST_BEFORE_FOLLOWING: usize = 10;

/// The longest single wait for events; the next one follows at once.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The JSON of an event.
#[derive(Serialize)]
struct JsonEvent<'a> {
    sequence: u64,
    #[serde(flatten)]
    envelope: &'a Envelope,
}

/// Prints the events; follows them until the process is ended.
///
/// # Errors
/// When memory cannot be read, or stdout cannot be written.
pub(crate) fn run(app: &Invocation, arguments: &EventsArguments) -> anyhow::Result<Outcome> {
    if arguments.retry {
        let n_asked = app.reached_fleet()?.retry_dead()?;
        app.output.note(&format!("asked for again: {n_asked}"));
        return Ok(Outcome::Done);
    } else if arguments.dead {
        return show_dead(app, arguments);
    }
    // A copy never changes, so following it would be useless.
    let store = if arguments.follow { app.memory_to_write()? } else { app.memory_to_read()? };
    let last = arguments.last.or(arguments.follow.then_some(LATEST_BEFORE_FOLLOWING));
    let filter = EventFilter {
        subjects: arguments.subjects.clone(),
        session: arguments.session,
        last,
        ..EventFilter::default()
    };
    // Starts following before the log is read, so that nothing in between is missed; events already read are then left
    // out.
    let mut follower = arguments.follow.then(|| store.follow_events(&filter, None)).transpose()?;
    let mut printer = Printer { output: app.output, json: arguments.json, session: None };
    let events = store.events(&filter, None)?;
    let last_printed = events.last().map_or(0, |(number, _)| *number);
    printer.print(&events)?;
    while let Some(follower) = &mut follower {
        let mut events = follower.next(LONGEST_WAIT)?;
        events.retain(|(number, _)| *number > last_printed);
        printer.print(&events)?;
    }
    Ok(Outcome::Done)
}

/// Prints the abandoned work.
fn show_dead(app: &Invocation, arguments: &EventsArguments) -> anyhow::Result<Outcome> {
    let dead = app.reached_fleet()?.dead()?;
    for work in &dead {
        if arguments.json {
            app.output.print_json(work)?;
            continue;
        }
        let about = work.envelope.as_ref().map_or_else(|| "?".to_owned(), event_line);
        app.output.print_line(&format!("{:>6}  {}  {}", work.number, about, work.reason))?;
    }
    if dead.is_empty() && !arguments.json {
        app.output.note("no work was given up");
    }
    Ok(Outcome::Done)
}

struct Printer {
    output: Output,
    json: bool,
    /// The conversation of the last event that was printed.
    session: Option<SessionId>,
}

impl Printer {
    fn print(&mut self, events: &[(u64, Envelope)]) -> anyhow::Result<()> {
        for (sequence, envelope) in events {
            if self.json {
                self.output.print_json(&JsonEvent { sequence: *sequence, envelope })?;
                continue;
            }
            if self.session.replace(envelope.session_id) != Some(envelope.session_id) {
                self.output.print_line(&format!("session {}", envelope.session_id))?;
            }
            self.output.print_line(&format!("{sequence:>6}  {}", event_line(envelope)))?;
        }
        Ok(())
    }
}
