//! Research: an answer from files and memory whose every claim cites a passage and is checked against it.
//!
//! ```text
//! files ──► Sources ──► passages ──► best_passages ──┐
//! memory ──► recalled engrams ───────────────────────┴──► claims with citations ──► checks ──► Research
//! ```
//!
//! Files are data, never instructions: a model sees their passages in fences, and its claims are checked against them
//! without a model. This module has no threads and no clock; long operations report their progress to the caller.

mod answering;
mod checking;
mod details;
mod document;
mod entailment;
mod gathering;
mod html;
mod passages;
mod pdf;
mod reading;
mod remembering;
mod retrieval;
#[cfg(test)]
mod samples;
mod settings;

use hone_protocol::{Embed, EmbedError, RecalledEngram, Support, Timings};
use serde::Serialize;

pub use answering::{AnswerError, ResearchWriter};
pub use checking::{AskJudge, CheckedClaim, ClaimChecks};
pub use document::{Document, Passage, PassagePlace};
pub use gathering::{Skipped, SourceError, SourceLimits, SourcePath, Sources};
pub use pdf::{PdfProcess, is_pdf, serve_pdf};
pub use reading::{NotText, SourceReader, UnreadableSource, decode_text};
pub use retrieval::{PassageVectors, best_passages};
pub use settings::{ResearchSettings, Unsupported};

/// The number of texts given to an embedder at once.
const BATCH: usize = 32;

/// The message if every claim lacks support.
pub const NO_ANSWER: &str = "no answer found in these sources";

/// A question that was researched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Research {
    /// The question.
    pub question: String,
    /// The claims as a text, with their citations and with marks on unchecked ones; `None` if all of them lack support.
    pub answer: Option<String>,
    /// All claims in order, including those without support.
    pub claims: Vec<CheckedClaim>,
    /// The passages that the model was shown.
    pub passages: Vec<Passage>,
    /// The model that answered.
    pub model: String,
    /// Remarks that a reader must know.
    pub remarks: Vec<String>,
    /// The cost.
    pub timings: Timings,
}

/// The progress of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResearchStep {
    /// The model is answering.
    Answering,
    /// This many claims have been checked.
    Checked(usize),
}

/// The passages of documents, and, if there is an embedder, their vectors together with that of the question. `show`
/// gets the number of embedded passages and of all passages.
///
/// # Errors
/// When the embedder fails.
pub fn embedded_passages(
    documents: &[Document],
    question: &str,
    settings: &ResearchSettings,
    embedder: Option<&dyn Embed>,
    show: &mut dyn FnMut(usize, usize),
) -> Result<(Vec<Passage>, Option<PassageVectors>), EmbedError> {
    let size = settings.passage_size();
    let Some(embedder) = embedder else {
        return Ok((documents.iter().flat_map(|document| passages::passages(document, size)).collect(), None));
    };
    let mut found = Vec::new();
    for document in documents {
        found.extend(passages::passages_for(document, size, embedder)?);
    }
    let mut vectors = PassageVectors { question: embedder.embed_query(question)?, passages: Vec::new() };
    for batch in found.chunks(BATCH) {
        let texts: Vec<&str> = batch.iter().map(|passage| passage.text.as_str()).collect();
        vectors.passages.extend(embedder.embed(&texts)?);
        show(vectors.passages.len(), found.len());
    }
    Ok((found, Some(vectors)))
}

/// Recalled engrams as passages.
pub fn recalled_passages(engrams: &[RecalledEngram]) -> Vec<Passage> {
    let text = |engram: &RecalledEngram| match engram.is_fact {
        true => engram.query.clone(),
        false => format!("{}\n{}", engram.query, engram.answer),
    };
    engrams
        .iter()
        .map(|engram| Passage { place: PassagePlace::Memory { id: engram.query_id }, text: text(engram) })
        .collect()
}

/// Answers a question from these passages, best first, and checks the answer.
///
/// # Errors
/// When the model fails, or the person has stopped it.
pub fn research(
    question: &str,
    passages: Vec<Passage>,
    settings: &ResearchSettings,
    author: ResearchWriter<'_>,
    checks: ClaimChecks<'_>,
    show: &mut dyn FnMut(ResearchStep),
) -> Result<Research, AnswerError> {
    show(ResearchStep::Answering);
    let draft = match passages.is_empty() {
        true => answering::AnswerDraft::default(),
        false => answering::draft(author, settings, question, &passages)?,
    };
    let mut remarks = Vec::new();
    if draft.n_shown < passages.len() {
        remarks.push(format!(
            "the model's context holds {} of the {} passages that were found",
            draft.n_shown,
            passages.len()
        ));
    }
    let shown: Vec<Passage> = passages.into_iter().take(draft.n_shown).collect();
    let is_stopped = author.writer.is_stopped;
    let checked = checking::check(&draft.claims, &shown, settings, checks, &mut |done| {
        show(ResearchStep::Checked(done));
        !is_stopped()
    });
    if is_stopped() {
        return Err(AnswerError::Stopped);
    }
    remarks.extend(
        checked.unjudged.map(|reason| format!("the claims are checked by their words and figures alone: {reason}")),
    );
    Ok(Research {
        question: question.to_owned(),
        answer: answer(&checked.claims, settings.unsupported),
        claims: checked.claims,
        passages: shown,
        model: author.writer.model.clone(),
        remarks,
        timings: draft.timings,
    })
}

impl Research {
    /// Whether every claim was decided, by its words and figures or by a judge.
    pub fn is_checked(&self) -> bool {
        self.claims.iter().all(|claim| claim.support.is_some())
    }

    /// The context that a critic needs: the question, and the passages that the claims cite.
    pub fn context(&self) -> String {
        let is_cited = |passage: &&Passage| self.claims.iter().any(|claim| claim.citations.contains(&passage.place));
        let passages = self.passages.iter().filter(is_cited);
        let passages = passages.map(|passage| format!("\n\n[{}]\n{}", passage.place, passage.text));
        [format!("Question: {}", self.question)].into_iter().chain(passages).collect()
    }
}

/// The claims as a text, one on each line; `None` if all of them lack support.
fn answer(claims: &[CheckedClaim], unsupported: Unsupported) -> Option<String> {
    let may_hold = |claim: &&CheckedClaim| matches!(claim.support, Some(Support::Supported) | None);
    claims.iter().find(may_hold)?;
    let is_shown = |claim: &&CheckedClaim| unsupported == Unsupported::Mark || may_hold(claim);
    Some(claims.iter().filter(is_shown).map(written).collect::<Vec<_>>().join("\n"))
}

/// A claim with its citations, and a mark unless they are known to support it.
fn written(claim: &CheckedClaim) -> String {
    let citations: Vec<String> = claim.citations.iter().map(PassagePlace::to_string).collect();
    let mut text = claim.text.clone();
    if !citations.is_empty() {
        text.push_str(&format!(" [{}]", citations.join("; ")));
    }
    if claim.support != Some(Support::Supported) {
        text.push_str(&format!(" ({})", claim.verdict()));
    }
    text
}

#[cfg(test)]
mod tests;
