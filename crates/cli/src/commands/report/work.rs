//! The figures over tasks, as tables: the first row of each holds its headings.

use hone_app::describe::moment;
use hone_protocol::Timestamp;
use hone_work::{PhaseFigures, TypeFigures, WorkReport};

use super::{percent, row_of};

/// The tables that are not empty.
pub(super) fn tables(work: &WorkReport) -> Vec<Vec<Vec<String>>> {
    [types(work), decisions(work), phases(work), escalations(work)]
        .into_iter()
        .filter(|table| table.len() > 1)
        .collect()
}

fn types(work: &WorkReport) -> Vec<Vec<String>> {
    let heads = ["tasks", "of", "accepted", "pass@1", "pass@3", "saved by feedback", "escalated", "false alarms"];
    let row = |(kind, figures): (&String, &TypeFigures)| {
        let TypeFigures { accepted, pass_at_1, pass_at_3, saved_by_feedback, escalated, false_alarms, .. } = figures;
        let shares = [accepted, pass_at_1, pass_at_3, saved_by_feedback, escalated, false_alarms];
        let mut row = vec![format!("type {kind}"), figures.tasks.to_string()];
        row.extend(shares.map(|share| percent(share.share)));
        row
    };
    std::iter::once(row_of(heads)).chain(work.types.iter().map(row)).collect()
}

fn decisions(work: &WorkReport) -> Vec<Vec<String>> {
    let row = |(kind, TypeFigures { decisions, .. }): (&String, &TypeFigures)| {
        let shares = [decisions.accepted, decisions.retried, decisions.reassigned, decisions.escalated];
        let mut row = vec![format!("type {kind}"), decisions.attempts.to_string()];
        row.extend(shares.map(|share| percent(Some(share))));
        row
    };
    let heads = row_of(["decisions of the gate", "attempts", "accepted", "retried", "reassigned", "escalated"]);
    std::iter::once(heads).chain(work.types.iter().map(row)).collect()
}

fn phases(work: &WorkReport) -> Vec<Vec<String>> {
    let row = |(name, figures): (&String, &PhaseFigures)| {
        let seconds = figures.median_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.1} s"));
        vec![name.clone(), figures.attempts.to_string(), percent(figures.accepted.share), seconds]
    };
    let heads = row_of(["phase", "attempts", "accepted", "median time"]);
    std::iter::once(heads).chain(work.phases.iter().map(row)).collect()
}

fn escalations(work: &WorkReport) -> Vec<Vec<String>> {
    let rows = work.escalations.iter().map(|(at, share)| {
        vec![format!("from {}", moment(Timestamp(*at))), share.of.to_string(), percent(share.share)]
    });
    std::iter::once(row_of(["escalations", "tasks", "escalated"])).chain(rows).collect()
}
