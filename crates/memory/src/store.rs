//! The public interface of memory.

// Placed above the modules below, so that they see it.
macro_rules! expect {
    ($reply:expr, $pattern:pat => $result:expr) => {
        match $reply? {
            $pattern => Ok($result),
            other => Err(unexpected(&other)),
        }
    };
}

mod backlog;
mod copy;
mod documents;
mod moving;
mod vetting;
mod walk;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hone_protocol::{Comparison, Envelope, Grade, HolderId, QueryId, Rating, RecalledEngram, Timestamp};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::engram::Engram;
use crate::error::{MemoryError, TransferError};
use crate::filters::{EventFilter, Filters, Whose};
use crate::local::parse_line;
use crate::options::{Matching, MemoryOptions, Ranking};
use crate::outline::Outline;
use crate::request::{ExportedEngram, Question, Reply, Request, Standing, StatedFact, Update, Vector};
use crate::sharing::Shared;
use crate::statistics::{Statistics, Verification};
pub use documents::Documents;
pub use moving::{MoveProgress, Moved};
pub use walk::WithVector;

use copy::copy_of;

/// Engrams per batch of an export or an import.
const LINES_AT_ONCE: usize = 64;

/// The most problems of an import that are listed.
const MOST_PROBLEMS: usize = 20;

/// A memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    embedding_model: Arc<str>,
    ranking: Ranking,
    /// Whether requests that fail now are kept and applied later.
    keeps: bool,
    /// How long a claim lasts without renewal.
    lease: Duration,
    /// The folder of a copy that is read, to be removed after it is closed.
    _copy: Option<Arc<TempDir>>,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Engrams that were added.
    pub added: u64,
    /// Engrams that were already there, unchanged.
    pub already_there: u64,
}

/// A statement of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The statement, in the user's words.
    pub text: String,
    /// Whether it says that something has changed.
    pub is_update: bool,
    /// Its vector by the current embedding model.
    pub vector: Option<Vec<f32>>,
}

/// A question to recall engrams for.
#[derive(Clone, Debug, PartialEq)]
pub struct RecallQuestion {
    /// The question.
    pub text: String,
    /// Its vector by the current embedding model.
    pub vector: Vec<f32>,
    /// Texts already in the conversation; statements made with them are not recalled.
    pub known: Vec<String>,
    /// The thresholds of similarity.
    pub matching: Matching,
    /// Whether an exchange and the facts stated in it may all be recalled, as may engrams that say the same.
    pub keeps_all: bool,
}

impl MemoryStore {
    /// Opens the memory in `folder`, or creates one there. Other processes may have it open too; the owner's options
    /// then apply to the index and the disk.
    ///
    /// # Errors
    /// When the folder cannot be read or written, holds the memory of a later version of hone, or is in use by a
    /// process that does not respond.
    pub fn open(folder: &Path, options: MemoryOptions) -> Result<MemoryStore, MemoryError> {
        let (embedding_model, ranking, lease) = parts_of(&options);
        let shared = Arc::new(Shared::open(folder, options)?);
        Ok(MemoryStore { shared, embedding_model, ranking, lease, keeps: false, _copy: None })
    }

    /// Opens the memory in `folder` for reading only. If it cannot be opened because nothing can be written to it, as
    /// on a full or read-only disk, a temporary copy is read instead, which is removed afterwards; the reason is
    /// returned as well.
    ///
    /// # Errors
    /// See [`MemoryStore::open`]; also when there is no room for a copy.
    pub fn open_to_read(
        folder: &Path,
        options: MemoryOptions,
    ) -> Result<(MemoryStore, Option<MemoryError>), MemoryError> {
        let reason = match MemoryStore::open(folder, options.clone()) {
            Err(error @ (MemoryError::DiskFull { .. } | MemoryError::Storage { .. })) => error,
            opened => return Ok((opened?, None)),
        };
        let Some(copy) = copy_of(folder) else { return Err(reason) };
        let store = MemoryStore::open(copy.path(), options)?;
        Ok((MemoryStore { _copy: Some(Arc::new(copy)), ..store }, Some(reason)))
    }

    /// Opens the memory in `folder` for a caller that cannot wait for it. Answers, grades, ratings, comparisons and
    /// events that memory cannot take now, because its disk is full, its files are damaged or its owner hangs, are kept
    /// durably in the folder `due`. The next owner applies them in order, each once. Those calls then succeed with
    /// [`Update::Kept`] or the number 0. If memory cannot be reached at present, the reason is returned as well;
    /// opening is retried from time to time.
    pub fn keeping(folder: &Path, options: MemoryOptions) -> (MemoryStore, Option<MemoryError>) {
        let (embedding_model, ranking, lease) = parts_of(&options);
        let (shared, error) = Shared::open_or_defer(folder, options);
        let shared = Arc::new(shared);
        (MemoryStore { shared, embedding_model, ranking, lease, keeps: true, _copy: None }, error)
    }

    /// Makes a backup on a background thread, if the last one is a day old and this process owns memory. It does not
    /// block, so a caller can use it whenever it is idle.
    pub fn back_up_if_due(&self, now: Timestamp) {
        self.shared.back_up_if_due(now);
    }

    /// Checks that requests could be kept for later.
    ///
    /// # Errors
    /// When the folder of the due list cannot be written to.
    pub fn check_keeping(&self) -> io::Result<()> {
        self.shared.due().check()
    }

    /// The reason why a request was neither applied nor kept, if that has happened in this process.
    pub fn loss(&self) -> Option<MemoryError> {
        self.shared.loss()
    }

    /// Remembers an answer with the vector of the current embedding model; it is durable when this returns. Returns the
    /// engram's sequence number. Remembering the same answer again changes nothing. A vector of length zero is logged
    /// as a warning, and the answer is remembered without it.
    ///
    /// An embedding model's latest vector determines the model's dimensions, here, in [`MemoryStore::set_vector`] and
    /// in [`MemoryStore::search`]. Vectors with other dimensions, from an import or from an earlier model of the same
    /// name, count as missing from then on.
    ///
    /// # Errors
    /// [`MemoryError::Conflict`] if another engram is remembered under its id.
    pub fn remember(&self, engram: Engram, vector: Option<Vec<f32>>) -> Result<u64, MemoryError> {
        self.remember_exchange(engram, vector, None, None)
    }

    /// Remembers an answer as [`MemoryStore::remember`] does, and in the same write the user's statements in its
    /// question, if it was searched for facts: each fact is an engram of its own, which is removed with the answer. If
    /// the grade of the answer is [due](Engram::due), `holder` works on it from the start.
    ///
    /// # Errors
    /// [`MemoryError::Conflict`] if another engram is remembered under its id.
    pub fn remember_exchange(
        &self,
        engram: Engram,
        vector: Option<Vec<f32>>,
        facts: Option<Vec<Fact>>,
        holder: Option<HolderId>,
    ) -> Result<u64, MemoryError> {
        let vector = vector.and_then(|values| self.usable_vector(engram.query_id, values));
        let facts = facts.map(|facts| self.stated(engram.query_id, facts));
        let lease = holder.map(|holder| self.lease_of(holder));
        self.number(Request::Remember { engram: Box::new(engram), vector, facts, lease })
    }

    /// Remembers the user's statements in the question of a remembered answer.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is only logged as a warning.
    pub fn add_facts(&self, id: QueryId, facts: Vec<Fact>) -> Result<Update, MemoryError> {
        self.update(Request::AddFacts { id, facts: self.stated(id, facts) })
    }

    /// The first `n` answers whose questions were not searched for facts, oldest first; an earlier version remembered
    /// them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn engrams_without_facts(&self, n: usize) -> Result<Vec<Engram>, MemoryError> {
        expect!(self.ask(Request::WithoutFacts { n }), Reply::Engrams(engrams) => engrams)
    }

    /// At most `n` engrams that may help to answer a question, best first: those that are similar to it in meaning or
    /// contain its words, each exchange once, the newest of statements about the same thing first.
    ///
    /// # Errors
    /// When the vector has length zero.
    pub fn recall(
        &self,
        question: RecallQuestion,
        n: usize,
        filters: &Filters,
    ) -> Result<Vec<RecalledEngram>, MemoryError> {
        let RecallQuestion { text, vector, known, matching, keeps_all } = question;
        let question = Box::new(Question { text, vector: self.vector(vector)?, known, matching, keeps_all });
        let (filters, ranking) = (filters.clone(), self.ranking);
        expect!(self.ask(Request::Recall { question, n, filters, ranking }), Reply::Recalled(found) => found)
    }

    /// Replaces the vector of an engram with one of the current embedding model.
    ///
    /// # Errors
    /// When the vector has length zero.
    pub fn set_vector(&self, id: QueryId, vector: Vec<f32>) -> Result<Update, MemoryError> {
        self.update(Request::SetVector { id, vector: self.vector(vector)? })
    }

    /// The engram with this id.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, id: QueryId) -> Result<Option<Engram>, MemoryError> {
        expect!(self.ask(Request::Get { id }), Reply::Engram(engram) => engram.map(|engram| *engram))
    }

    /// All fields of the engram with this id, including those that this version does not know.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn fields(&self, id: QueryId) -> Result<Option<Map<String, Value>>, MemoryError> {
        expect!(self.ask(Request::Fields { id }), Reply::Fields(fields) => fields)
    }

    /// Sets the grade of an engram, which is then no longer due. A grade without a score changes no earlier score: if
    /// the reason for its absence is final, it is stored on the engram; otherwise the answer stays in the backlog.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is only logged as a warning.
    pub fn update_score(&self, id: QueryId, grade: &Grade) -> Result<Update, MemoryError> {
        self.update_or_keep(Request::UpdateScore { id, grade: grade.clone() })
    }

    /// Records on A's and B's engrams which of the two was better, and why. After a tie neither is. A comparison
    /// without a verdict changes nothing, unless the reason is final.
    ///
    /// # Errors
    /// When they cannot be written; a missing engram is only logged as a warning.
    pub fn annotate_pairwise(&self, comparison: &Comparison) -> Result<[Update; 2], MemoryError> {
        let request = Request::AnnotatePairwise { comparison: comparison.clone() };
        let updates = match self.ask_or_keep(request)? {
            Reply::Updates(updates) => updates,
            Reply::Kept => vec![Update::Kept; 2],
            other => return Err(unexpected(&other)),
        };
        Ok([updates.first(), updates.get(1)].map(|update| update.copied().unwrap_or(Update::Missing)))
    }

    /// Records the user's rating on an engram, or with `None` takes it back.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is only logged as a warning.
    pub fn annotate_feedback(&self, id: QueryId, rating: Option<Rating>) -> Result<Update, MemoryError> {
        self.update_or_keep(Request::AnnotateFeedback { id, rating })
    }

    /// Records the intent and the entities of an engram.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is only logged as a warning.
    pub fn annotate_meaning(
        &self,
        id: QueryId,
        intent: Option<String>,
        entities: Vec<String>,
    ) -> Result<Update, MemoryError> {
        self.update(Request::AnnotateMeaning { id, intent, entities })
    }

    /// The `n` most relevant engrams that pass the filters, most relevant first; see [`Ranking`]. Only vectors of the
    /// current embedding model are compared.
    ///
    /// # Errors
    /// When the vector has length zero.
    pub fn search(&self, vector: &[f32], n: usize, filters: &Filters) -> Result<Vec<RecalledEngram>, MemoryError> {
        let (vector, filters, ranking) = (self.vector(vector.to_vec())?, filters.clone(), self.ranking);
        expect!(self.ask(Request::Search { vector, n, filters, ranking }), Reply::Recalled(found) => found)
    }

    /// The latest `n` engrams that pass the filters, latest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list(&self, filters: &Filters, n: usize) -> Result<Vec<Engram>, MemoryError> {
        expect!(self.ask(Request::List { filters: filters.clone(), n }), Reply::Engrams(engrams) => engrams)
    }

    /// Removes engrams, all at once, and their texts from the event log; missing ones are `Missing`.
    ///
    /// # Errors
    /// When they cannot be removed; then all of them still exist.
    pub fn remove(&self, ids: &[QueryId]) -> Result<Vec<Update>, MemoryError> {
        expect!(self.ask(Request::Remove { ids: ids.to_vec() }), Reply::Updates(updates) => updates)
    }

    /// Removes an engram, and for a fact also the exchange in which it was stated, which would state it again.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget(&self, engram: &Engram) -> Result<Update, MemoryError> {
        let ids: Vec<QueryId> = std::iter::once(engram.query_id).chain(engram.source).collect();
        Ok(self.remove(&ids)?.first().copied().unwrap_or(Update::Missing))
    }

    /// The first `n` engrams, oldest first, that have no vector of this embedding model, or one with other dimensions:
    /// those to embed after the model has changed.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn engrams_without_vector(&self, model: &str, n: usize) -> Result<Vec<Engram>, MemoryError> {
        expect!(self.ask(Request::WithoutVector { model: model.to_owned(), n }), Reply::Engrams(engrams) => engrams)
    }

    /// The engram whose id begins with these digits, of which there must be at least 6; dashes are ignored.
    ///
    /// # Errors
    /// [`MemoryError::Id`] if no engram has such an id, or several have.
    pub fn resolve(&self, prefix: &str) -> Result<QueryId, MemoryError> {
        let ids = expect!(self.ask(Request::Resolve { prefix: prefix.to_owned() }), Reply::Ids(ids) => ids)?;
        let reason = match ids.as_slice() {
            [id] => return Ok(*id),
            [] => "no id begins with these digits".to_owned(),
            [first, second, ..] => format!("several ids begin with these digits, such as {first} and {second}"),
        };
        Err(MemoryError::Id { text: prefix.to_owned(), reason })
    }

    /// The number of hexadecimal digits that distinguishes each id from those of all other engrams, at least 6.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn abbreviate(&self, ids: &[QueryId]) -> Result<Vec<usize>, MemoryError> {
        expect!(self.ask(Request::Abbreviate { ids: ids.to_vec() }), Reply::Lengths(lengths) => lengths)
    }

    /// Statistics of memory; for a single owner, those of storage and index are left out. This reads every engram.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn statistics(&self, whose: Whose) -> Result<Statistics, MemoryError> {
        expect!(self.ask(Request::Statistics { whose }), Reply::Statistics(statistics) => *statistics)
    }

    /// Every answer without its texts, in the order of the ids; with the judges' feedback on request.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn outlines(&self, whose: Whose, with_feedback: bool) -> Result<Vec<Outline>, MemoryError> {
        expect!(self.ask(Request::Outlines { whose, with_feedback }), Reply::Outlines(outlines) => outlines)
    }

    /// Reads everything and checks its consistency: records with related records, and the index with the vectors.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn verify(&self) -> Result<Verification, MemoryError> {
        expect!(self.ask(Request::Verify), Reply::Verification(verification) => verification)
    }

    /// Writes every engram with its vector as a line of JSON, oldest first, and returns their number.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn export(&self, mut writer: impl Write) -> Result<u64, TransferError> {
        let (mut n_exported, mut after) = (0, 0);
        loop {
            let request = Request::Export { after, n: LINES_AT_ONCE };
            let (engrams, last) = expect!(self.ask(request), Reply::Exported { engrams, last } => (engrams, last))?;
            if last == after {
                writer.flush()?;
                return Ok(n_exported);
            }
            for exported in &engrams {
                serde_json::to_writer(&mut writer, exported).map_err(io::Error::from)?;
                writer.write_all(b"\n")?;
            }
            n_exported += engrams.len() as u64;
            after = last;
        }
    }

    /// Imports the output of [`MemoryStore::export`]. All lines are checked before the first is written; engrams that
    /// are already there unchanged are skipped.
    ///
    /// # Errors
    /// [`MemoryError::Import`] if a line is invalid, contradicts an engram in memory, or has a vector that cannot be
    /// compared with the others of its model.
    pub fn import(&self, reader: impl BufRead) -> Result<Imported, TransferError> {
        let engrams = self.check_import(reader)?;
        let n_engrams = engrams.len() as u64;
        let mut added = 0;
        let mut rest = engrams.into_iter().peekable();
        while rest.peek().is_some() {
            let engrams = rest.by_ref().take(LINES_AT_ONCE).collect();
            added += expect!(self.ask(Request::Import { engrams }), Reply::Number(added) => added)?;
        }
        Ok(Imported { added, already_there: n_engrams - added })
    }

    /// Appends an event to the log, abridged ([`Envelope::abridged`]), and returns its number; it is durable when this
    /// returns.
    ///
    /// # Errors
    /// [`MemoryError::Chunk`] for a chunk of an answer, which is not kept.
    pub fn append_event(&self, envelope: &Envelope) -> Result<u64, MemoryError> {
        self.number(Request::AppendEvent { envelope: Box::new(envelope.abridged()) })
    }

    /// The events after this number (or all) that pass the filter, oldest first, each with its number.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn events(&self, filter: &EventFilter, after: Option<u64>) -> Result<Vec<(u64, Envelope)>, MemoryError> {
        expect!(self.ask(Request::Events { filter: filter.clone(), after }), Reply::Events(events) => events)
    }

    /// Follows the event log from this number on, or from now on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn follow_events(&self, filter: &EventFilter, after: Option<u64>) -> Result<EventFollower, MemoryError> {
        let after = match after {
            Some(after) => after,
            None => expect!(self.ask(Request::LastEvent), Reply::Number(last) => last)?,
        };
        Ok(EventFollower { store: self.clone(), filter: EventFilter { last: None, ..filter.clone() }, after })
    }

    /// A number that memory assigns; 0 if the request is kept for later.
    fn number(&self, request: Request) -> Result<u64, MemoryError> {
        match self.ask_or_keep(request)? {
            Reply::Number(number) => Ok(number),
            Reply::Kept => Ok(0),
            other => Err(unexpected(&other)),
        }
    }

    fn update_or_keep(&self, request: Request) -> Result<Update, MemoryError> {
        match self.ask_or_keep(request)? {
            Reply::Updates(updates) => Ok(updates.first().copied().unwrap_or(Update::Missing)),
            Reply::Kept => Ok(Update::Kept),
            other => Err(unexpected(&other)),
        }
    }

    fn update(&self, request: Request) -> Result<Update, MemoryError> {
        let updates = expect!(self.ask(request), Reply::Updates(updates) => updates)?;
        Ok(updates.first().copied().unwrap_or(Update::Missing))
    }

    fn usable_vector(&self, id: QueryId, values: Vec<f32>) -> Option<Vector> {
        let vector = self.vector(values);
        vector.inspect_err(|error| tracing::warn!(%id, %error, "an answer is remembered without its vector")).ok()
    }

    fn stated(&self, id: QueryId, facts: Vec<Fact>) -> Vec<StatedFact> {
        let stated = |Fact { text, is_update, vector }: Fact| {
            let vector = vector.and_then(|values| self.usable_vector(id, values));
            StatedFact { text, is_update, vector }
        };
        facts.into_iter().map(stated).collect()
    }

    fn vector(&self, values: Vec<f32>) -> Result<Vector, MemoryError> {
        Vector { model: self.embedding_model.to_string(), values }.normalized()
    }

    fn check_import(&self, reader: impl BufRead) -> Result<Vec<ExportedEngram>, TransferError> {
        let (mut engrams, mut numbers, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = SeenLines::default();
        for (number, line) in (1..).zip(reader.lines()) {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { &line };
            match seen.check(number, line) {
                Ok(exported) => {
                    engrams.push(exported);
                    numbers.push(number);
                }
                Err(problem) => problems.push(format!("line {number}: {problem}")),
            }
        }
        self.compare_import(&engrams, &numbers, &mut problems)?;
        if problems.is_empty() { Ok(engrams) } else { Err(import_error(problems).into()) }
    }

    fn compare_import(
        &self,
        engrams: &[ExportedEngram],
        numbers: &[usize],
        problems: &mut Vec<String>,
    ) -> Result<(), MemoryError> {
        for (engrams, numbers) in engrams.chunks(LINES_AT_ONCE).zip(numbers.chunks(LINES_AT_ONCE)) {
            let request = Request::Compare { engrams: engrams.to_vec() };
            let standings = expect!(self.ask(request), Reply::Standings(standings) => standings)?;
            problems.extend(numbers.iter().zip(standings).filter_map(|(number, standing)| match standing {
                Standing::Refused(reason) => Some(format!("line {number}: {reason}")),
                Standing::New | Standing::AlreadyThere => None,
            }));
        }
        Ok(())
    }

    fn ask(&self, request: Request) -> Result<Reply, MemoryError> {
        self.shared.ask(&request)
    }

    fn ask_or_keep(&self, request: Request) -> Result<Reply, MemoryError> {
        if self.keeps { self.shared.ask_or_keep(&request) } else { self.shared.ask(&request) }
    }
}

/// State shared by the lines of an import.
#[derive(Default)]
struct SeenLines {
    numbers: BTreeMap<QueryId, usize>,
    dimensions: BTreeMap<String, usize>,
}

impl SeenLines {
    /// Parses a line and checks it against the earlier ones.
    fn check(&mut self, number: usize, line: &str) -> Result<ExportedEngram, String> {
        let (id, exported) = parse_line(line)?;
        if let Some(first) = self.numbers.insert(id, number) {
            return Err(format!("line {first} is engram {id} already"));
        }
        if let Some(Vector { model, values }) = &exported.vector {
            let expected = *self.dimensions.entry(model.clone()).or_insert(values.len());
            if values.len() != expected {
                return Err(format!("its vector has {} dimensions, others have {expected}", values.len()));
            }
        }
        Ok(exported)
    }
}

/// A follower of the event log.
pub struct EventFollower {
    store: MemoryStore,
    filter: EventFilter,
    after: u64,
}

impl EventFollower {
    /// Waits until the next events or the end of the time limit; returns an empty list if none arrived.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn next(&mut self, at_most: Duration) -> Result<Vec<(u64, Envelope)>, MemoryError> {
        let milliseconds = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        let request = Request::AwaitEvents { filter: self.filter.clone(), after: self.after, milliseconds };
        let (events, seen) = expect!(self.store.ask(request), Reply::News { events, seen } => (events, seen))?;
        self.after = seen;
        Ok(events)
    }
}

/// The options that accompany requests, and do not depend on the owner of memory.
fn parts_of(options: &MemoryOptions) -> (Arc<str>, Ranking, Duration) {
    (options.embedding_model.as_str().into(), options.ranking, options.lease)
}

fn import_error(mut problems: Vec<String>) -> MemoryError {
    let n_problems = problems.len();
    problems.truncate(MOST_PROBLEMS);
    if n_problems > MOST_PROBLEMS {
        problems.push(format!("and {} more lines", n_problems - MOST_PROBLEMS));
    }
    MemoryError::Import { problems }
}

fn unexpected(reply: &Reply) -> MemoryError {
    let reason = format!("{reply:?} is not a reply to this request");
    MemoryError::Damaged { record: "a reply from the owner of memory".to_owned(), reason }
}
