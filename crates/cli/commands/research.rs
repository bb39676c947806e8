//! `hone research`: an answer from files and memory, of which every claim is checked against the passage that it cites.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hone_agents::research::{
    self, Author, Document, NO_ANSWER, Passage, Research, ResearchSettings, ResearchStep, Skipped, SourceLimits,
    SourcePath, SourceReader, Sources,
};
use hone_protocol::{Embed, Generate, Lane};
use hone_quality::Support;
use hone_server::ServedMemory;
use serde::Serialize;

use crate::app::App;
use crate::arguments::ResearchArguments;
use crate::chat::attachments::{self, Attachment};
use crate::documents;
use crate::failure::{Outcome, usage};
use crate::judging::claims::ClaimJudge;
use crate::terminal::Output;
use crate::terminal::progress::{self, Steps};

/// The path that stands for stdin.
const STDIN: &str = "-";
/// The most skipped files that are named on the terminal.
const MOST_NAMED: usize = 8;

/// Researches.
///
/// # Errors
/// When a source that was named cannot be read, or the model cannot be run.
pub(crate) fn run(app: &App, arguments: &ResearchArguments) -> anyhow::Result<Outcome> {
    let question = arguments.question.trim();
    if question.is_empty() {
        return Err(usage("the question is empty: say what to find out"));
    }
    if arguments.files.is_empty() && arguments.no_memory {
        return Err(usage("there are no sources: name files with --file, or leave out --no-memory"));
    }
    app.installed(&app.config.engine.model)?;
    let sources = gather(app, &arguments.files)?;
    tell_skipped(app.output, &sources.skipped);
    let memory = if arguments.no_memory { None } else { app.served_memory() };
    let passages = passages(app, question, &sources.documents, memory.as_ref())?;
    let generator = app.generator()?;
    let research = answer(app, question, passages, &generator)?;
    tell_checks(app.output, &research);
    if arguments.json.json {
        app.output.print_json(&Printed { research: &research, skipped: &sources.skipped })?;
    } else if let Some(answer) = &research.answer {
        answer.lines().try_for_each(|line| app.output.print_line(line))?;
    }
    if research.answer.is_none() {
        app.output.error(NO_ANSWER);
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    research: &'a Research,
    skipped: &'a [Skipped],
}

/// Reads the files that were named.
fn gather(app: &App, files: &[String]) -> anyhow::Result<Sources> {
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
    let reader = SourceReader { largest_file: settings.largest_file_mib << 20, pdf: documents::pdf_process()? };
    let limits = SourceLimits { files: settings.most_files, text_bytes: settings.most_text_mib << 20 };
    let spinner = progress::spinner(app.output, "reading the sources");
    let sources = Sources::gather(&paths, &reader, limits, &mut |n| spinner.set_message(format!("{n} files are read")));
    spinner.finish_and_clear();
    let mut sources = sources?;
    sources.documents.extend(piped.map(|piped| Document::of_text("stdin", piped.text())));
    Ok(sources)
}

/// The passages that may answer the question, best first: those of memory, then those of files.
fn passages(
    app: &App,
    question: &str,
    documents: &[Document],
    memory: Option<&ServedMemory>,
) -> anyhow::Result<Vec<Passage>> {
    let settings = &app.config.research;
    let recaller = memory.and_then(|memory| memory.recaller.as_ref());
    let recalled = recaller.map(|recaller| recaller.search(question, &[], None)).unwrap_or_default();
    let mut found = research::recalled_passages(&recalled);
    found.truncate(settings.n_recalled.min(settings.n_passages));
    if documents.is_empty() {
        return Ok(found);
    }
    let embedder = app.embedder().inspect_err(|error| {
        app.output.note(&format!("passages are found by their words alone: {error:#}"));
    });
    let n = settings.n_passages - found.len();
    found.extend(of_files(app.output, question, documents, settings, embedder.ok().as_deref(), n)?);
    Ok(found)
}

/// The best passages of the files.
fn of_files(
    output: Output,
    question: &str,
    documents: &[Document],
    settings: &ResearchSettings,
    embedder: Option<&dyn Embed>,
    n: usize,
) -> anyhow::Result<Vec<Passage>> {
    let mut steps = Steps::new(output, "passages");
    let embedded = research::embedded_passages(documents, question, settings, embedder, &mut |done, total| {
        steps.show(done, total, "");
    });
    steps.clear();
    let (passages, vectors) = embedded?;
    Ok(research::best_passages(question, &passages, vectors.as_ref(), n))
}

/// Has the model answer, and the answer checked.
fn answer(
    app: &App,
    question: &str,
    passages: Vec<Passage>,
    generator: &Arc<dyn Generate>,
) -> anyhow::Result<Research> {
    let model = &app.config.engine.model;
    let judge = ClaimJudge::new(app, model, generator);
    let (key, fence) = (app.fence_key()?, &app.config.critic.fence);
    let author = Author { generator: &**generator, model, lane: Lane::Interactive, key: &key, fence };
    let spinner = progress::spinner(app.output, "answering");
    let research =
        research::research(question, passages, &app.config.research, author, &|task| judge.review(task), &mut |step| {
            match step {
                ResearchStep::Answering => {}
                ResearchStep::Checked(n) => spinner.set_message(format!("{n} claims are checked")),
            }
        });
    spinner.finish_and_clear();
    Ok(research?)
}

fn tell_skipped(output: Output, skipped: &[Skipped]) {
    for Skipped { file, reason } in skipped.iter().take(MOST_NAMED) {
        output.note(&format!("skipped: {file} {reason}"));
    }
    if skipped.len() > MOST_NAMED {
        output.note(&format!("skipped: {} more files, which --json names", skipped.len() - MOST_NAMED));
    }
}

/// Says which claims were not supported, and what else a reader must know.
fn tell_checks(output: Output, research: &Research) {
    for claim in research.claims.iter().filter(|claim| claim.support != Support::Supported) {
        output.note(&format!("{}: {:?}: {}", claim.support.name(), claim.text, claim.reasons.join("; ")));
    }
    research.remarks.iter().for_each(|remark| output.note(remark));
}
