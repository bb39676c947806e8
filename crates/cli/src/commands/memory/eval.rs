//! `hone memory eval`: measures the recall of statements that are asked for, and of items that should not be recalled.
//!
//! For every person of a set a separate memory is built in a temporary folder, with the real storage, index and
//! embedder: statements are remembered as in a chat, and the probes are asked through the recall of a chat. An item is
//! *junk* if it comes from an answer that was cut short, stopped or marked bad, if it only says that nothing was known,
//! or if nothing should have been recalled at all. An item is *misleading* if it does not hold the probe's answer, but
//! a rejected one, such as the value before a change.

mod changes;
mod figures;
mod formats;
mod run;
mod set;

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use hone_agents::MemorySettings;
use hone_app::describe::on_one_line;
use serde::Deserialize;

use self::changes::Changes;
use self::figures::RecallReport;
use self::run::{Memories, ProbeResult};
use self::set::RecallSet;
use super::search::labelled;
use crate::arguments::MemoryEvalArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::visible;

/// The set that hone's own settings were fitted on and measured with.
const OWN_SET: &str = include_str!("../../../../../tests/data/recall.jsonl");

pub(super) fn run(app: &Invocation, arguments: &MemoryEvalArguments) -> anyhow::Result<Outcome> {
    let set = read_set(arguments.file.as_deref())?.only(arguments.split);
    if set.n_probes() == 0 {
        bail!("{} holds no probe of this split", set.name);
    }
    let settings = settings(&app.config.memory.settings, arguments.settings.as_deref())?;
    let memories = Memories::build(app, &set, arguments.databases.as_deref())?;
    let mut reports = Vec::new();
    for settings in settings {
        let asked = memories.ask(&set, &settings)?;
        if arguments.details && !arguments.json.json {
            show_details(app, &asked)?;
        }
        let changes = Changes::of(&set, &memories, &settings)?;
        if arguments.details && !arguments.json.json {
            changes.details.iter().try_for_each(|line| app.output.print_line(&visible(line)))?;
        }
        reports.push(RecallReport::new(&set, &memories, &asked, changes));
    }
    match (reports.as_slice(), arguments.json.json) {
        ([report], true) => app.output.print_json(report)?,
        (reports, true) => app.output.print_json(&reports)?,
        (reports, false) => {
            for report in reports {
                app.output.print_titled(&RecallReport::TITLES, report.rows())?;
                app.output.print_line(&report.extraction_line())?;
                app.output.print_line(&report.changes.line())?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn show_details(app: &Invocation, asked: &[ProbeResult]) -> anyhow::Result<()> {
    for ProbeResult { person, probe, recalled, items, .. } in asked {
        app.output.print_line(&visible(&format!("{person} {}: {}", probe.kind, probe.text)))?;
        let rows = recalled.iter().zip(items).map(|(recalled, item)| {
            let said = on_one_line(&recalled.query);
            vec![
                "  ".to_owned() + item.verdict(),
                labelled("similarity", recalled.similarity),
                labelled("words", recalled.words),
                said,
            ]
        });
        app.output.print_table(&rows.collect::<Vec<_>>())?;
    }
    Ok(())
}

fn read_set(file: Option<&Path>) -> anyhow::Result<RecallSet> {
    let Some(path) = file else { return formats::read("hone's own set", OWN_SET) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    formats::read(&path.display().to_string(), &text)
}

/// Settings that replace those of the configuration for one measurement.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Replaced {
    threshold: Option<f32>,
    personal_threshold: Option<f32>,
    nearness: Option<f32>,
    words_threshold: Option<f32>,
    impersonal_words: Option<f32>,
    words_weight: Option<f32>,
    facts_weight: Option<f32>,
    duplicate: Option<f32>,
    same_statement: Option<f32>,
    changed_statement: Option<f32>,
}

impl Replaced {
    fn applied_to(&self, settings: &MemorySettings) -> MemorySettings {
        MemorySettings {
            threshold: self.threshold.unwrap_or(settings.threshold),
            personal_threshold: self.personal_threshold.unwrap_or(settings.personal_threshold),
            nearness: self.nearness.unwrap_or(settings.nearness),
            words_threshold: self.words_threshold.unwrap_or(settings.words_threshold),
            impersonal_words: self.impersonal_words.unwrap_or(settings.impersonal_words),
            words_weight: self.words_weight.unwrap_or(settings.words_weight),
            facts_weight: self.facts_weight.unwrap_or(settings.facts_weight),
            duplicate: self.duplicate.unwrap_or(settings.duplicate),
            same_statement: self.same_statement.unwrap_or(settings.same_statement),
            changed_statement: self.changed_statement.unwrap_or(settings.changed_statement),
            ..settings.clone()
        }
    }
}

/// The settings to measure: those of the configuration, or one for each line of the file.
fn settings(configured: &MemorySettings, file: Option<&Path>) -> anyhow::Result<Vec<MemorySettings>> {
    let Some(path) = file else { return Ok(vec![configured.clone()]) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = (1..).zip(text.trim_start_matches('\u{feff}').lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let replaced: Replaced =
                serde_json::from_str(line).with_context(|| format!("{}, line {number}", path.display()))?;
            let settings = replaced.applied_to(configured);
            settings.check().with_context(|| format!("{}, line {number}", path.display()))?;
            Ok(settings)
        })
        .collect()
}
