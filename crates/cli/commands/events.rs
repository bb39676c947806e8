//! `hone events`: what passed between the agents, and with `--follow` what passes now.

use std::time::Duration;

use hone_memory::EventFilter;
use hone_protocol::{Envelope, Payload, SessionId};
use serde::Serialize;

use super::memory::{badge, moment, on_one_line, open, rating};
use crate::app::App;
use crate::arguments::EventsArguments;
use crate::failure::Outcome;
use crate::output::Output;

/// Events that have passed, before those that are followed.
const LATEST_BEFORE_FOLLOWING: usize = 10;

/// How long one wait for events takes at most; the next one follows at once.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What `--json` prints of an event.
#[derive(Serialize)]
struct JsonEvent<'a> {
    sequence: u64,
    #[serde(flatten)]
    envelope: &'a Envelope,
}

/// Prints the events; follows them until the process is ended.
///
/// # Errors
/// When memory cannot be read, or stdout not be written.
pub(crate) fn run(app: &App, arguments: &EventsArguments) -> anyhow::Result<Outcome> {
    let store = open(app)?;
    let last = arguments.last.or(arguments.follow.then_some(LATEST_BEFORE_FOLLOWING));
    let filter = EventFilter {
        subjects: arguments.subjects.clone(),
        session: arguments.session,
        last,
        ..EventFilter::default()
    };
    // Followed from before the log is read, so that nothing is missed between; what was read is then left out.
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
            self.output.print_line(&line(*sequence, envelope))?;
        }
        Ok(())
    }
}

fn line(sequence: u64, envelope: &Envelope) -> String {
    let (at, subject) = (moment(envelope.at), envelope.subject().as_str());
    let respondent = envelope.respondent_id.map_or_else(|| " ".to_string(), |respondent| respondent.to_string());
    let summary = on_one_line(&summary(&envelope.payload));
    format!("{sequence:>6}  {at}  {subject:<19} {respondent}  {summary}").trim_end().to_string()
}

/// An event's content in a few words.
fn summary(payload: &Payload) -> String {
    match payload {
        Payload::QueryReceived(query) => query.query.clone(),
        Payload::ResponseGeneration(response) => response.answer.clone(),
        Payload::ResponseFailed(failure) => failure.to_string(),
        Payload::MemoryRecalled(recall) => {
            let queries: Vec<&str> = recall.engrams.iter().map(|engram| engram.query.as_str()).collect();
            format!("{} recalled: {}", queries.len(), queries.join(" | "))
        }
        Payload::MemoryStored(stored) => format!("engram {}", stored.sequence),
        Payload::CritiqueResult(critique) => {
            let judging = &critique.grade.judging;
            let (_, mark, score) = badge(critique.grade.score, judging.self_graded);
            match &judging.failure {
                Some(failure) => format!("unscored: {failure}"),
                None => format!("{mark} {score} {}", critique.grade.feedback),
            }
        }
        Payload::PairwiseResult(comparison) => {
            match (&comparison.preference.winner, &comparison.preference.judging.failure) {
                (_, Some(failure)) => format!("not compared: {failure}"),
                (Some(winner), None) => format!("{winner} is better: {}", comparison.preference.reason),
                (None, None) => format!("a tie: {}", comparison.preference.reason),
            }
        }
        Payload::UserFeedback(feedback) => rating(feedback.rating).to_string(),
        Payload::RewardEvent(reward) => serde_json::to_string(reward).unwrap_or_default(),
        Payload::QueryCancelled(_) | Payload::SessionClosed(_) | Payload::ResponseChunk(_) => String::new(),
    }
}
