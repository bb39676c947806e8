//! `hone research`: an answer from files and memory, with every claim checked against the passage that it cites.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hone_agents::research::{
    self, AnswerError, ClaimChecks, Document, NO_ANSWER, Passage, Research, ResearchStep, ResearchWriter, Skipped,
    SourceLimits, SourcePath, SourceReader, Sources,
};
use hone_agents::{ModelWriter, NoteError, Recaller};
use hone_app::decisions::decider_for;
use hone_app::judging::ClaimJudge;
use hone_judging::{FenceKey, Purpose, PurposeDecider, ReviewTask};
use hone_protocol::{CritiqueResult, Lane, Query, QueryId, Support, VettingState};
use serde::Serialize;

use super::gates::{Gate, outcome, said};
use crate::arguments::ResearchArguments;
use crate::chat::attachments::{self, Attachment};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::Output;
use crate::terminal::interrupt;
use crate::terminal::progress::{self, Steps};

/// The path that stands for stdin.
const STDIN: &str = "-";
/// Maximum number of skipped files named on the terminal.
const MOST_NAMED: usize = 8;

/// Researches.
///
/// # Errors
/// When a source that was named cannot be read, or the model or memory fails.
pub(crate) fn run(app: &Invocation, arguments: &ResearchArguments) -> anyhow::Result<Outcome> {
    let question = arguments.question.trim();
    if question.is_empty() {
        return Err(usage("the question is empty: say what to find out"));
    }
    let uses_memory = !arguments.no_memory && app.config.memory.remember;
    let recalls = uses_memory && app.config.memory.recalls();
    if arguments.files.is_empty() && !recalls {
        return Err(usage("there are no sources: name files with --file, or use memory"));
    }
    app.obtain(&app.config.engine.model)?;
    let sources = gather(app, &arguments.files)?;
    tell_skipped(app.output, &sources.skipped);
    let found = of_files(app, question, &sources.documents)?;
    let gate = uses_memory.then(|| Gate::open(app, Lane::Interactive)).transpose()?;
    let (generator, interrupt) = match &gate {
        Some(gate) => (Arc::clone(&gate.generator), gate.interrupt.clone()),
        None => (app.generator()?, interrupt::install()?),
    };
    let listening = interrupt.listen();
    let writer = ModelWriter {
        generator,
        model: app.config.engine.model.clone(),
        sampling: app.config.research.sampling(),
        lane: Lane::Interactive,
        is_stopped: &|| !listening.pressed().is_empty(),
    };
    let recalled = match &gate {
        Some(gate) if recalls => recalled(app, question, gate),
        _ => Vec::new(),
    };
    let passages = recalled.into_iter().chain(found).take(app.config.research.n_passages).collect();
    let research = match answer(app, question, passages, &writer, &app.fence_key()?) {
        Err(AnswerError::Stopped) => return Ok(Outcome::Interrupted),
        answered => answered?,
    };
    tell_checks(app.output, &research);
    let kept = gate.map_or(Ok(Kept::default()), |gate| Kept::at(&gate, &research, &writer))?;
    if arguments.json.json {
        app.output.print_json(&Printed { research: &research, kept: &kept, skipped: &sources.skipped })?;
    } else if let Some(answer) = &research.answer {
        answer.lines().try_for_each(|line| app.output.print_line(line))?;
    }
    if research.answer.is_none() {
        app.output.error(NO_ANSWER);
        return Ok(Outcome::Failed);
    }
    kept.said.iter().for_each(|said| app.output.note(said));
    Ok(if research.is_checked() { kept.outcome } else { Outcome::BelowThreshold })
}

/// How an answer was kept in memory.
#[derive(Serialize)]
struct Kept {
    /// Its engram.
    query_id: Option<QueryId>,
    state: Option<VettingState>,
    /// Why it is unreviewed, blocked or not remembered.
    reason: Option<String>,
    critique: Option<CritiqueResult>,
    /// The message for the user.
    #[serde(skip)]
    said: Option<String>,
    #[serde(skip)]
    outcome: Outcome,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { query_id: None, state: None, reason: None, critique: None, said: None, outcome: Outcome::Done }
    }
}

impl Kept {
    /// Remembers the answer as far as the gate lets it.
    ///
    /// # Errors
    /// When memory fails.
    fn at(gate: &Gate<'_>, research: &Research, writer: &ModelWriter<'_>) -> anyhow::Result<Kept> {
        let remembered = match research.remember(writer, &gate.rememberer(), &gate.keeper()) {
            Err(NoteError::Refused(refusal)) => {
                let said = Some(format!("not remembered: {}", refusal.reason));
                return Ok(Kept { reason: Some(refusal.reason), said, outcome: Outcome::Failed, ..Kept::default() });
            }
            remembered => remembered?,
        };
        let Some((note, decided)) = remembered else { return Ok(Kept::default()) };
        gate.write_statistics()?;
        Ok(Kept {
            query_id: Some(note.query_id),
            state: Some(decided.state),
            said: Some(said(&decided)),
            outcome: outcome(&decided),
            reason: decided.reason,
            critique: decided.critique,
        })
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    research: &'a Research,
    #[serde(flatten)]
    kept: &'a Kept,
    skipped: &'a [Skipped],
}

/// Reads the files that were named.
fn gather(app: &Invocation, files: &[String]) -> anyhow::Result<Sources> {
    let settings = &app.config.research;
    let mut paths = Vec::new();
    let mut piped = None;
    for file in files {
        if file == STDIN {
            piped = Some(Attachment::stdin()?.context("stdin, which --file - names, is empty")?);
            continue;
        }
        let found = attachments::paths(file)?;
        let is_pattern = found != [PathBuf::from(file)];
        let path = |path| if is_pattern { SourcePath::Found(path) } else { SourcePath::Named(path) };
        paths.extend(found.into_iter().map(path));
    }
    let reader = SourceReader {
        largest_file: settings.largest_file_mib << 20,
        pdf: hone_app::workers::documents::pdf_process()?,
    };
    let limits = SourceLimits { files: settings.most_files, text_bytes: settings.most_text_mib << 20 };
    let spinner = progress::spinner(app.output, "reading the sources");
    let sources = Sources::gather(&paths, &reader, limits, &mut |n| spinner.set_message(format!("{n} files are read")));
    spinner.finish_and_clear();
    let mut sources = sources?;
    sources.documents.extend(piped.map(|piped| Document::of_text("stdin", piped.text())));
    Ok(sources)
}

/// The engrams about the question.
fn recalled(app: &Invocation, question: &str, gate: &Gate<'_>) -> Vec<Passage> {
    let Ok(embedder) = app.embedder() else { return Vec::new() };
    let (store, settings) = (gate.store.clone(), Arc::new(app.config.memory.settings.clone()));
    let recaller = Recaller { store, embedder, settings };
    let engrams = recaller.search(question, &Query::new(question, ""), None);
    let passages = research::recalled_passages(&engrams).into_iter().take(app.config.research.n_recalled);
    match decider_for(app, &gate.generator, Purpose::Relevance, Lane::Interactive, |_| true) {
        None => passages.collect(),
        Some(decider) => passages.filter(|passage| is_relevant(&decider, question, passage)).collect(),
    }
}

/// Whether a passage helps to answer a question; one that cannot be decided about does.
fn is_relevant(decider: &PurposeDecider, question: &str, passage: &Passage) -> bool {
    decider.decide(question, &passage.text, &|| false).unwrap_or_else(|error| {
        tracing::warn!("{} has not decided about a passage: {error}", decider.model);
        true
    })
}

/// The passages of the files that may answer the question, best first.
fn of_files(app: &Invocation, question: &str, documents: &[Document]) -> anyhow::Result<Vec<Passage>> {
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let settings = &app.config.research;
    let embedder = app.embedder().inspect_err(|error| {
        app.output.note(&format!("passages are found by their words alone: {error:#}"));
    });
    let steps = Steps::new(app.output, "passages");
    let embedder = embedder.ok();
    let embedded =
        research::embedded_passages(documents, question, settings, embedder.as_deref(), &mut |done, total| {
            steps.show(done, total, "");
        });
    steps.clear();
    let (passages, vectors) = embedded?;
    Ok(research::best_passages(question, &passages, vectors.as_ref(), settings.n_passages))
}

/// Has the model answer, and the answer checked.
///
/// # Errors
/// When the model fails, or the person has stopped it.
fn answer(
    app: &Invocation,
    question: &str,
    passages: Vec<Passage>,
    writer: &ModelWriter<'_>,
    key: &FenceKey,
) -> Result<Research, AnswerError> {
    let judge = ClaimJudge::new(app, &writer.model, &writer.generator);
    let author = ResearchWriter { writer, key, fence: &app.config.judge.fence };
    let spinner = progress::spinner(app.output, "answering");
    let mut show = |step| {
        if let ResearchStep::Checked(n) = step {
            spinner.set_message(format!("{n} claims are checked"));
        }
    };
    let review = |task: &ReviewTask| judge.review(task);
    let checks = ClaimChecks { decider: judge.decider.as_ref(), judge: &review, is_stopped: writer.is_stopped };
    let answered = research::research(question, passages, &app.config.research, author, checks, &mut show);
    spinner.finish_and_clear();
    answered
}

fn tell_skipped(output: Output, skipped: &[Skipped]) {
    for Skipped { file, reason } in skipped.iter().take(MOST_NAMED) {
        output.note(&format!("skipped: {file} {reason}"));
    }
    if skipped.len() > MOST_NAMED {
        output.note(&format!("skipped: {} more files, which --json names", skipped.len() - MOST_NAMED));
    }
}

/// Reports claims that are not supported or not checked, and other caveats.
fn tell_checks(output: Output, research: &Research) {
    for claim in research.claims.iter().filter(|claim| claim.support != Some(Support::Supported)) {
        output.note(&format!("{}: {:?}: {}", claim.verdict(), claim.text, claim.reasons.join("; ")));
    }
    research.remarks.iter().for_each(|remark| output.note(remark));
}
