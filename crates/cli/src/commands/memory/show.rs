//! `hone memory show`: everything known about one answer.

use hone_app::describe::{moment, on_one_line, rating};
use hone_memory::{Due, Engram, MemoryStore};
use hone_protocol::Grade;

use crate::arguments::MemoryShowArguments;
use crate::badge;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::visible;

pub(super) fn run(app: &Invocation, store: &MemoryStore, arguments: &MemoryShowArguments) -> anyhow::Result<Outcome> {
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
    let jurors = engram.grade.iter().flat_map(|grade| &grade.jury).map(|juror| {
        ("juror", Some(format!("{}: {}", badge::juror_name(juror), on_one_line(&badge::juror_grade(juror)))))
    });
    let compared_by = engram.compared.iter().flat_map(|compared| &compared.jury).map(|juror| {
        (
            "juror of both",
            Some(format!("{}: {}", badge::juror_name(juror), on_one_line(&badge::juror_preference(juror)))),
        )
    });
    let values = [
        ("id", Some(engram.query_id.to_string())),
        ("sequence", Some(engram.sequence.to_string())),
        ("answered", Some(format!("{} UTC", moment(engram.at)))),
        ("session", Some(engram.session_id.to_string())),
        ("respondent", Some(engram.respondent_id.to_string())),
        ("model", Some(engram.model.clone())),
        ("grade", Some(engram.grade.as_ref().map_or_else(|| "none".to_string(), score))),
        ("suspicious", engram.grade.as_ref().and_then(|grade| Some(grade.suspicious.as_ref()?.to_string()))),
        ("due", engram.due.as_ref().map(due)),
        ("compared", compared(engram)),
        (
            "reason",
            engram.compared.as_ref().map(|compared| compared.reason.clone()).filter(|reason| !reason.is_empty()),
        ),
        ("person", engram.user_feedback.map(|feedback| rating(feedback).to_string())),
        ("intent", engram.intent.clone()),
        ("entities", Some(engram.entities.join(", ")).filter(|entities| !entities.is_empty())),
    ];
    let values = values.into_iter().chain(jurors).chain(compared_by);
    values.filter_map(|(name, value)| Some(vec![name.to_string(), value?])).collect()
}

/// How the answer compares with the other respondent's; `None` if they were never compared.
fn compared(engram: &Engram) -> Option<String> {
    let verdict = match engram.pairwise_winner {
        Some(true) => "the better of two",
        Some(false) => "the worse of two",
        None => "as good as the other",
    };
    let Some(compared) = &engram.compared else { return engram.pairwise_winner.map(|_| verdict.to_string()) };
    if let Some(failure) = &compared.failure {
        return Some(format!("no verdict: {failure}"));
    }
    let judging = compared.judging();
    let how = badge::grounds_of_preference(&judging, compared.log_odds, compared.consistent).join(", ");
    Some(format!("{} {verdict} ({how})", badge::mark(Some(&judging))))
}

/// The verdicts that are due, and why they are missing.
fn due(due: &Due) -> String {
    let parts = [("grade", due.grade), ("comparison", due.comparison)];
    let parts: Vec<&str> = parts.into_iter().filter_map(|(name, is_due)| is_due.then_some(name)).collect();
    let reason = due.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}{reason}", parts.join(", "))
}

/// The verdict with its circumstances, or the reason for its absence.
fn score(grade: &Grade) -> String {
    let verdict = badge::in_words(grade);
    if grade.judging.failure.is_some() {
        return verdict;
    }
    let expected = grade.expected_score.map(|expected| format!("expected {expected:.2}"));
    let judge = badge::judge_name(&grade.judging);
    let by = format!("by {judge} for {} in {:.1} s", grade.rubric, grade.judging.seconds);
    let raw = grade.raw_score_of_its_own().map(|raw| format!("{raw} on the judge's scale"));
    let remarks: Vec<String> = raw.into_iter().chain(expected).chain([by]).collect();
    format!("{verdict} ({})", remarks.join(", "))
}
