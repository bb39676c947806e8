//! `hone critic blocks` and `review`: what was blocked, and whether that was right.

use anyhow::Context;
use hone_memory::{Criticized, CritiqueRecord, Engram, MemoryStore};
use hone_protocol::{CriticMode, QueryId, Timestamp, VettingState};
use serde::Serialize;

use crate::app::App;
use crate::arguments::{CriticBlocksArguments, CriticReviewArguments};
use crate::describe::{moment, on_one_line};
use crate::failure::{Outcome, usage};

/// A block as JSON.
#[derive(Serialize)]
struct Block {
    query_id: QueryId,
    at: Timestamp,
    content_type: &'static str,
    /// How much the critic's word counted.
    mode: CriticMode,
    state: VettingState,
    /// What was blocked; empty if it was forgotten.
    text: String,
    reason: String,
    challenges: Vec<String>,
    /// What a person said of it.
    right: Option<bool>,
}

pub(super) fn list(app: &App, store: &MemoryStore, arguments: &CriticBlocksArguments) -> anyhow::Result<Outcome> {
    let records = store.critiques(None)?;
    let wanted = |record: &&CritiqueRecord| record.should_block && !(arguments.open && record.ruling.is_some());
    for record in records.iter().rev().filter(wanted) {
        let block = block(record, store.get(record.query_id)?);
        match arguments.json.json {
            true => app.output.print_json(&block)?,
            false => print(app, store, &block)?,
        }
    }
    Ok(Outcome::Done)
}

fn block(record: &CritiqueRecord, engram: Option<Engram>) -> Block {
    let state = engram.as_ref().map_or(record.state, |engram| engram.vetting.state);
    let text = engram.as_ref().map(|engram| engram.answer.clone()).unwrap_or_default();
    let critique: Option<Criticized> = engram.and_then(|engram| engram.vetting.critique).map(|critique| *critique);
    let result = critique.map(|critique| critique.result).unwrap_or_default();
    Block {
        query_id: record.query_id,
        at: record.at,
        content_type: record.content_type.name(),
        mode: record.mode,
        state,
        text,
        reason: result.reasoning,
        challenges: result.challenges,
        right: record.ruling.map(|ruling| ruling.is_right),
    }
}

fn print(app: &App, store: &MemoryStore, block: &Block) -> anyhow::Result<()> {
    let digits = store.abbreviate(&[block.query_id])?.into_iter().max().unwrap_or_default();
    let id: String = block.query_id.to_string().chars().filter(|it| *it != '-').take(digits).collect();
    let ruling = match block.right {
        Some(true) => "a person says it was right",
        Some(false) => "a person says it was wrong",
        None => "not reviewed by a person",
    };
    let Block { content_type, mode, state, .. } = block;
    app.output.print_line(&format!("{id}  {}  {content_type}, {state} ({mode} mode); {ruling}", moment(block.at)))?;
    app.output.print_line(&format!("  {}", on_one_line(&block.text)))?;
    app.output.print_line(&format!("  {}", block.reason))
}

pub(super) fn review(app: &App, store: &MemoryStore, arguments: &CriticReviewArguments) -> anyhow::Result<Outcome> {
    let id = store.resolve(&arguments.id)?;
    let engram = store.get(id)?.with_context(|| format!("{id} was forgotten"))?;
    if !engram.vetting.critique.as_ref().is_some_and(|critique| critique.result.should_block) {
        return Err(usage(format!("{id} was not blocked: `hone critic blocks` lists what was")));
    }
    store.rule_on_block(&engram, arguments.right)?;
    app.output.print_line(match arguments.right {
        true => "the block was right: it stays out of long-term memory",
        false => "the block was wrong: it counts as long-term memory from now on",
    })?;
    Ok(Outcome::Done)
}
