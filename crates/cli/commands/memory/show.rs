//! `hone memory show`: everything known about one answer.

use hone_memory::{Engram, MemoryStore};
use hone_protocol::Grade;

use crate::app::App;
use crate::arguments::MemoryShowArguments;
use crate::badge;
use crate::describe::{moment, rating};
use crate::failure::Outcome;
use crate::terminal::visible;

pub(super) fn run(app: &App, store: &MemoryStore, arguments: &MemoryShowArguments) -> anyhow::Result<Outcome> {
    let id = store.resolve(&arguments.id)?;
    if arguments.json.json {
        // All of its fields, including those written by a later version.
        app.output.print_json(&store.fields(id)?)?;
        return Ok(Outcome::Done);
    }
    if let Some(engram) = store.get(id)? {
        app.output.print_table(&rows(&engram))?;
        let feedback = engram.grade.map(|grade| grade.feedback).unwrap_or_default();
        for (title, text) in [("question", &engram.query), ("answer", &engram.answer), ("feedback", &feedback)] {
            if !text.is_empty() {
                // The reader may use a pager or a file; scripts have --json.
                app.output.print_line(&format!("\n{title}\n{}", visible(text)))?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn rows(engram: &Engram) -> Vec<Vec<String>> {
    let winner = |is_winner| if is_winner { "the better of two" } else { "the worse of two" };
    let values = [
        ("id", Some(engram.query_id.to_string())),
        ("sequence", Some(engram.sequence.to_string())),
        ("answered", Some(format!("{} UTC", moment(engram.at)))),
        ("session", Some(engram.session_id.to_string())),
        ("respondent", Some(engram.respondent_id.to_string())),
        ("model", Some(engram.model.clone())),
        ("score", Some(engram.grade.as_ref().map_or_else(|| "none".to_string(), score))),
        ("suspicious", engram.grade.as_ref().and_then(|grade| Some(grade.suspicious.as_ref()?.to_string()))),
        ("compared", engram.pairwise_winner.map(|is_winner| winner(is_winner).to_string())),
        ("person", engram.user_feedback.map(|feedback| rating(feedback).to_string())),
        ("intent", engram.intent.clone()),
        ("entities", Some(engram.entities.join(", ")).filter(|entities| !entities.is_empty())),
    ];
    values.into_iter().filter_map(|(name, value)| Some(vec![name.to_string(), value?])).collect()
}

/// The score, and how it was determined.
fn score(grade: &Grade) -> String {
    let (_, mark, score) = badge::parts(grade.score, Some(&grade.judging));
    let expected = grade.expected_score.map(|expected| format!("expected {expected:.2}"));
    let judge = badge::judge_name(&grade.judging);
    let by = format!("by {judge} for {} in {:.1} s", grade.rubric, grade.judging.seconds);
    let raw = grade.raw_score_of_its_own().map(|raw| format!("{raw} on the judge's scale"));
    let remarks: Vec<String> = raw.into_iter().chain(expected).chain([by]).collect();
    format!("{mark} {score} ({})", remarks.join(", "))
}
