//! `hone critic blocks` and `review`: blocked texts, and rulings on them.

use anyhow::Context;
use hone_agents::CriticBlock;
use hone_app::describe::{moment, on_one_line};
use hone_memory::{MemoryStore, Whose};

use crate::arguments::{CriticBlocksArguments, CriticReviewArguments};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

pub(super) fn list(
    app: &Invocation,
    store: &MemoryStore,
    arguments: &CriticBlocksArguments,
) -> anyhow::Result<Outcome> {
    let blocks = CriticBlock::since(store, None, Whose::Everyones)?;
    for block in blocks.iter().filter(|block| !(arguments.open && block.right.is_some())) {
        match arguments.json.json {
            true => app.output.print_json(block)?,
            false => print(app, store, block)?,
        }
    }
    Ok(Outcome::Done)
}

fn print(app: &Invocation, store: &MemoryStore, block: &CriticBlock) -> anyhow::Result<()> {
    let digits = store.abbreviate(&[block.query_id])?.into_iter().max().unwrap_or_default();
    let id: String = block.query_id.to_string().chars().filter(|it| *it != '-').take(digits).collect();
    let ruling = match block.right {
        Some(true) => "a person says it was right",
        Some(false) => "a person says it was wrong",
        None => "not reviewed by a person",
    };
    let CriticBlock { content_type, mode, state, .. } = block;
    app.output.print_line(&format!("{id}  {}  {content_type}, {state} ({mode} mode); {ruling}", moment(block.at)))?;
    app.output.print_line(&format!("  {}", on_one_line(&block.text)))?;
    app.output.print_line(&format!("  {}", block.reason))
}

pub(super) fn review(
    app: &Invocation,
    store: &MemoryStore,
    arguments: &CriticReviewArguments,
) -> anyhow::Result<Outcome> {
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
