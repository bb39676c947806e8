//! The figures over tasks, as tables.

use hone_app::describe::moment;
use hone_protocol::Timestamp;
use hone_work::{PhaseFigures, TypeFigures, WorkReport};

use super::percent;

/// A table for people.
pub(super) struct Table {
    /// The titles of its columns; the first says what the table is about.
    pub(super) titles: &'static [&'static str],
    /// Its rows.
    pub(super) rows: Vec<Vec<String>>,
}

/// The tables that are not empty.
pub(super) fn tables(work: &WorkReport) -> Vec<Table> {
    let tables = [types(work), decisions(work), phases(work), escalations(work)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn types(work: &WorkReport) -> Table {
    let titles = &["tasks", "of", "accepted", "pass@1", "pass@3", "saved by feedback", "escalated", "false alarms"];
    let row = |(kind, figures): (&String, &TypeFigures)| {
        let TypeFigures { accepted, pass_at_1, pass_at_3, saved_by_feedback, escalated, false_alarms, .. } = figures;
        let shares = [accepted, pass_at_1, pass_at_3, saved_by_feedback, escalated, false_alarms];
        let mut row = vec![format!("type {kind}"), figures.tasks.to_string()];
        row.extend(shares.map(|share| percent(share.share)));
        row
    };
    Table { titles, rows: work.types.iter().map(row).collect() }
}

fn decisions(work: &WorkReport) -> Table {
    let row = |(kind, TypeFigures { decisions, .. }): (&String, &TypeFigures)| {
        let shares = [decisions.accepted, decisions.retried, decisions.reassigned, decisions.escalated];
        let mut row = vec![format!("type {kind}"), decisions.attempts.to_string()];
        row.extend(shares.map(|share| percent(Some(share))));
        row
    };
    let titles = &["decisions of the gate", "attempts", "accepted", "retried", "reassigned", "escalated"];
    Table { titles, rows: work.types.iter().map(row).collect() }
}

fn phases(work: &WorkReport) -> Table {
    let row = |(name, figures): (&String, &PhaseFigures)| {
        let seconds = figures.median_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.1} s"));
        vec![name.clone(), figures.attempts.to_string(), percent(figures.accepted.share), seconds]
    };
    Table { titles: &["phase", "attempts", "accepted", "median time"], rows: work.phases.iter().map(row).collect() }
}

fn escalations(work: &WorkReport) -> Table {
    let rows = work.escalations.iter().map(|(at, share)| {
        vec![format!("from {}", moment(Timestamp(*at))), share.of.to_string(), percent(share.share)]
    });
    Table { titles: &["escalations", "tasks", "escalated"], rows: rows.collect() }
}
