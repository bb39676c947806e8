//! Memory as everybody sees it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hone_protocol::{Comparison, Envelope, Grade, QueryId, Rating, RecalledEngram, Timestamp};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::engram::Engram;
use crate::error::{MemoryError, TransferError};
use crate::files::STORAGE_FOLDER;
use crate::filters::{EventFilter, Filters};
use crate::local::parse_line;
use crate::options::{MemoryOptions, Ranking};
use crate::request::{ExportedEngram, Reply, Request, Standing, Update, Vector};
use crate::sharing::Shared;
use crate::statistics::{Statistics, Verification};

/// Engrams that are moved at once by an export or an import.
const LINES_AT_ONCE: usize = 64;

/// The most problems of an import that are listed.
const MOST_PROBLEMS: usize = 20;

/// Memory. Clones are the same memory.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    embedding_model: Arc<str>,
    ranking: Ranking,
    /// Whether what cannot be written now is kept and written later.
    keeps: bool,
    /// The folder of a copy that is read, to be removed after it was closed.
    _copy: Option<Arc<TempDir>>,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Engrams that were added.
    pub added: u64,
    /// Engrams that were there already, just so.
    pub already_there: u64,
}

macro_rules! expect {
    ($reply:expr, $pattern:pat => $result:expr) => {
        match $reply? {
            $pattern => Ok($result),
            other => Err(unexpected(&other)),
        }
    };
}

impl MemoryStore {
    /// Opens the memory in `folder`, or begins one there. Other processes may have it open too; where one of them does, its
    /// options count for the index and for the disk.
    ///
    /// # Errors
    /// When the folder cannot be read or written, holds the memory of a later hone, or is in use by a process that does not
    /// answer.
    pub fn open(folder: &Path, options: MemoryOptions) -> Result<MemoryStore, MemoryError> {
        let (embedding_model, ranking) = (options.embedding_model.as_str().into(), options.ranking);
        let shared = Arc::new(Shared::open(folder, options)?);
        Ok(MemoryStore { shared, embedding_model, ranking, keeps: false, _copy: None })
    }

    /// The memory in `folder` for somebody who only reads. Where it cannot be opened because nothing can be written to it, as
    /// on a disk that is full or mounted read-only, a copy among the system's temporary files is read, which is removed in the
    /// end. Gives too why that had to be.
    ///
    /// # Errors
    /// See [`MemoryStore::open`]; when there is no room for a copy either.
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

    /// The memory in `folder` for somebody who cannot wait for it: answers, grades, ratings, comparisons and events that it
    /// cannot take now, because its disk is full, its files are damaged or its owner hangs, are kept durably in the folder
    /// `due` and written by whoever owns memory next, in their order and each once. Those calls succeed then, with
    /// [`Update::Kept`] or the number 0. Gives too why memory cannot be reached at present, if that is so; it is tried again
    /// now and then.
    pub fn keeping(folder: &Path, options: MemoryOptions) -> (MemoryStore, Option<MemoryError>) {
        let (embedding_model, ranking) = (options.embedding_model.as_str().into(), options.ranking);
        let (shared, error) = Shared::open_or_stay_outside(folder, options);
        let shared = Arc::new(shared);
        (MemoryStore { shared, embedding_model, ranking, keeps: true, _copy: None }, error)
    }

    /// Makes a backup on a thread of its own, if the last one is a day old and this process owns memory. Nobody waits for it:
    /// whoever has nothing else to do may call this.
    pub fn back_up_if_due(&self, now: Timestamp) {
        self.shared.back_up_if_due(now);
    }

    /// Checks that something could be kept for later.
    ///
    /// # Errors
    /// When the folder of what is due cannot be written to.
    pub fn check_keeping(&self) -> io::Result<()> {
        self.shared.due().check()
    }

    /// Why something that was to be remembered was neither written nor kept, if that has happened in this process.
    pub fn loss(&self) -> Option<MemoryError> {
        self.shared.loss()
    }

    /// Remembers an answer, with the vector of the current embedding model; it is durable when this returns. Gives the
    /// engram's sequence number. To remember the same once more changes nothing. A vector without a direction is a warning
    /// in the log: the answer is remembered without it.
    ///
    /// An embedding model settles how many dimensions its vectors have, here, in [`MemoryStore::set_vector`] and in
    /// [`MemoryStore::search`]. Vectors of another number, which an import brought or a model of the same name made before,
    /// count as lacking from then on.
    ///
    /// # Errors
    /// [`MemoryError::Conflict`] where something else is remembered under its id.
    pub fn remember(&self, engram: Engram, vector: Option<Vec<f32>>) -> Result<u64, MemoryError> {
        let vector = vector.and_then(|values| {
            let vector = self.vector(values);
            let id = engram.query_id;
            vector.inspect_err(|error| tracing::warn!(%id, %error, "an answer is remembered without its vector")).ok()
        });
        self.number(Request::Remember { engram: Box::new(engram), vector })
    }

    /// Puts a vector of the current embedding model in place of the one that an engram has.
    ///
    /// # Errors
    /// When it has no direction.
    pub fn set_vector(&self, id: QueryId, vector: Vec<f32>) -> Result<Update, MemoryError> {
        self.update(Request::SetVector { id, vector: self.vector(vector)? })
    }

    /// The engram of that id.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, id: QueryId) -> Result<Option<Engram>, MemoryError> {
        expect!(self.ask(Request::Get { id }), Reply::Engram(engram) => engram.map(|engram| *engram))
    }

    /// All that stands on the engram of that id, also fields that this version does not know.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn fields(&self, id: QueryId) -> Result<Option<Map<String, Value>>, MemoryError> {
        expect!(self.ask(Request::Fields { id }), Reply::Fields(fields) => fields)
    }

    /// Puts a grade on an engram. A grade without a score changes nothing: the answer stays as unscored, or as scored, as it
    /// was.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is a warning in the log and no error.
    pub fn update_score(&self, id: QueryId, grade: &Grade) -> Result<Update, MemoryError> {
        self.update_or_keep(Request::UpdateScore { id, grade: grade.clone() })
    }

    /// Notes on A's and B's engram which of the two was better. After a tie neither is; a comparison without a verdict
    /// changes nothing.
    ///
    /// # Errors
    /// When they cannot be written; a missing engram is a warning in the log and no error.
    pub fn annotate_pairwise(&self, comparison: &Comparison) -> Result<[Update; 2], MemoryError> {
        let request = Request::AnnotatePairwise { comparison: comparison.clone() };
        let updates = match self.ask_or_keep(request)? {
            Reply::Updates(updates) => updates,
            Reply::Kept => vec![Update::Kept; 2],
            other => return Err(unexpected(&other)),
        };
        Ok([updates.first(), updates.get(1)].map(|update| update.copied().unwrap_or(Update::Missing)))
    }

    /// Notes on an engram what a person thinks of it.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is a warning in the log and no error.
    pub fn annotate_feedback(&self, id: QueryId, rating: Rating) -> Result<Update, MemoryError> {
        self.update_or_keep(Request::AnnotateFeedback { id, rating })
    }

    /// Notes on an engram what it is about.
    ///
    /// # Errors
    /// When it cannot be written; a missing engram is a warning in the log and no error.
    pub fn annotate_meaning(
        &self,
        id: QueryId,
        intent: Option<String>,
        entities: Vec<String>,
    ) -> Result<Update, MemoryError> {
        self.update(Request::AnnotateMeaning { id, intent, entities })
    }

    /// The `n` most relevant engrams that the filters accept, most relevant first; see [`Ranking`]. Only vectors of the
    /// current embedding model are compared.
    ///
    /// # Errors
    /// When the vector has no direction.
    pub fn search(&self, vector: &[f32], n: usize, filters: &Filters) -> Result<Vec<RecalledEngram>, MemoryError> {
        let (vector, filters, ranking) = (self.vector(vector.to_vec())?, filters.clone(), self.ranking);
        expect!(self.ask(Request::Search { vector, n, filters, ranking }), Reply::Recalled(found) => found)
    }

    /// The latest `n` engrams that the filters accept, latest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list(&self, filters: &Filters, n: usize) -> Result<Vec<Engram>, MemoryError> {
        expect!(self.ask(Request::List { filters: filters.clone(), n }), Reply::Engrams(engrams) => engrams)
    }

    /// Removes engrams, all of them at once, and their texts from the event log; those that are not there are `Missing`.
    ///
    /// # Errors
    /// When they cannot be removed; then all are still there.
    pub fn remove(&self, ids: &[QueryId]) -> Result<Vec<Update>, MemoryError> {
        expect!(self.ask(Request::Remove { ids: ids.to_vec() }), Reply::Updates(updates) => updates)
    }

    /// The first `n` engrams that have no vector of the embedding model of that name, or one of other dimensions than its
    /// vectors have, oldest first: what is to be embedded again after another model was chosen.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn engrams_without_vector(&self, model: &str, n: usize) -> Result<Vec<Engram>, MemoryError> {
        expect!(self.ask(Request::WithoutVector { model: model.to_owned(), n }), Reply::Engrams(engrams) => engrams)
    }

    /// The engram whose id begins with these digits, 6 of them or more; dashes do not count.
    ///
    /// # Errors
    /// [`MemoryError::Id`] where there is none, or more than one.
    pub fn resolve(&self, prefix: &str) -> Result<QueryId, MemoryError> {
        let ids = expect!(self.ask(Request::Resolve { prefix: prefix.to_owned() }), Reply::Ids(ids) => ids)?;
        let reason = match ids.as_slice() {
            [id] => return Ok(*id),
            [] => "no engram's id begins so".to_owned(),
            [first, second, ..] => format!("more than one begins so, such as {first} and {second}"),
        };
        Err(MemoryError::Id { text: prefix.to_owned(), reason })
    }

    /// How many hexadecimal digits of each id tell it from those of all other engrams, at least 6.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn abbreviate(&self, ids: &[QueryId]) -> Result<Vec<usize>, MemoryError> {
        expect!(self.ask(Request::Abbreviate { ids: ids.to_vec() }), Reply::Lengths(lengths) => lengths)
    }

    /// What memory holds, in numbers. Every engram is read for it.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn statistics(&self) -> Result<Statistics, MemoryError> {
        expect!(self.ask(Request::Statistics), Reply::Statistics(statistics) => *statistics)
    }

    /// Reads everything and compares it: every record with those that belong to it, and the index with the vectors.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn verify(&self) -> Result<Verification, MemoryError> {
        expect!(self.ask(Request::Verify), Reply::Verification(verification) => verification)
    }

    /// Writes every engram with its vector as a line of JSON, oldest first, and says how many they are.
    ///
    /// # Errors
    /// When they cannot be read, or not be written.
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

    /// Reads what [`MemoryStore::export`] wrote. All lines are checked before the first is written; an engram that is there
    /// already, just so, is left out.
    ///
    /// # Errors
    /// [`MemoryError::Import`] where any line makes no sense, says something else of an engram than memory does, or has a
    /// vector that cannot be compared with the others of its model.
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

    /// Appends to the event log and gives the event's number; it is durable when this returns.
    ///
    /// # Errors
    /// [`MemoryError::Chunk`] for a chunk of an answer, which is not kept.
    pub fn append_event(&self, envelope: &Envelope) -> Result<u64, MemoryError> {
        self.number(Request::AppendEvent { envelope: Box::new(envelope.clone()) })
    }

    /// The events after that number (or all) which the filter accepts, oldest first, each with its number.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn events(&self, filter: &EventFilter, after: Option<u64>) -> Result<Vec<(u64, Envelope)>, MemoryError> {
        expect!(self.ask(Request::Events { filter: filter.clone(), after }), Reply::Events(events) => events)
    }

    /// Follows the event log, from after that number on, or from now on.
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

    /// A number that memory gives; 0 where what it is for is kept for later.
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
            match seen.check(number, &line) {
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

/// What the lines of an import have in common.
#[derive(Default)]
struct SeenLines {
    numbers: BTreeMap<QueryId, usize>,
    dimensions: BTreeMap<String, usize>,
}

impl SeenLines {
    /// Reads a line, and checks it against those before.
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

/// The event log as it grows.
pub struct EventFollower {
    store: MemoryStore,
    filter: EventFilter,
    after: u64,
}

impl EventFollower {
    /// Waits for the next events, at most so long; gives none where none came.
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

/// A copy of what is remembered; `None` where there is nothing to be copied, or no room for it.
fn copy_of(folder: &Path) -> Option<TempDir> {
    let in_memory = Path::new("/dev/shm");
    let places = [std::env::temp_dir(), in_memory.to_owned()].into_iter().filter(|place| place.is_dir());
    places.filter_map(|place| tempfile::tempdir_in(place).ok()).find(|copy| {
        let copied = copy_files(folder, copy.path());
        copied.inspect_err(|error| tracing::debug!(%error, copy = %copy.path().display(), "no copy")).is_ok()
    })
}

fn copy_files(folder: &Path, copy: &Path) -> io::Result<()> {
    for inner in [STORAGE_FOLDER, &format!("{STORAGE_FOLDER}/blobs")] {
        fs::create_dir(copy.join(inner))?;
        for entry in fs::read_dir(folder.join(inner))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.join(inner).join(entry.file_name()))?;
            }
        }
    }
    Ok(())
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
    let reason = format!("{reply:?} is no answer to what was asked");
    MemoryError::Damaged { record: "an answer from the process that holds memory".to_owned(), reason }
}
