//! Engrams, vectors, events, folders and processes for the tests.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hone_memory::{Engram, EngramKind, MemoryOptions, MemoryStore, Vetting};
use hone_protocol::{
    Envelope, Grade, Judging, Nothing, OwnerId, Payload, QueryId, RespondentId, SamplingOptions, SessionId, Timestamp,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tempfile::TempDir;

/// A timeout far longer than any test step, reached only on failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The embedding model of the tests.
pub(crate) const MODEL: &str = "all-minilm:l6-v2";

/// Memory in a folder of its own.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn open(&self) -> MemoryStore {
        self.open_with(MemoryOptions::default())
    }

    pub(crate) fn open_with(&self, options: MemoryOptions) -> MemoryStore {
        MemoryStore::open(self.folder.path(), options).unwrap()
    }

    /// The address of its database, if it is in one.
    pub(crate) fn url(&self) -> Option<String> {
        None
    }
}

/// An ungraded engram with this number.
pub(crate) fn engram(number: u64) -> Engram {
    Engram {
        query_id: id(number),
        kind: EngramKind::Episodic,
        sequence: 0,
        query: format!("What is {number}?"),
        answer: format!("A number, and it is {number}."),
        at: Timestamp(1_000 * number),
        session_id: SessionId::from_bits(u128::from(number % 3)),
        owner: (!number.is_multiple_of(2)).then(|| OwnerId::from_bits(7)),
        scope: number.is_multiple_of(3).then(|| "client".to_owned()),
        respondent_id: if number.is_multiple_of(2) { RespondentId::A } else { RespondentId::B },
        model: "smollm2:135m".to_owned(),
        sampling: SamplingOptions::default(),
        thinking: false,
        finish_reason: None,
        intent: None,
        entities: Vec::new(),
        grade: None,
        pairwise_winner: None,
        user_feedback: None,
        correlation_id: id(number),
        compared: None,
        due: None,
        source: None,
        is_update: false,
        facts_extracted: false,
        sources: Vec::new(),
        vetting: Vetting::default(),
    }
}

/// An id as in real use: ids have the same first digits, in ascending order.
pub(crate) fn id(number: u64) -> QueryId {
    QueryId::from_bits((0x0199_0000_0000_7000_8000_u128 << 48) | u128::from(number))
}

/// A grade with this score.
pub(crate) fn grade(score: Option<u8>) -> Grade {
    Grade {
        score,
        raw_score: score.map(|score| score.to_string()),
        feedback: format!("It deserves {score:?}."),
        expected_score: score.map(|score| f64::from(score) - 0.25),
        entropy: Some(0.5),
        rubric: "helpfulness".to_owned(),
        judging: Judging { judge: "prometheus:7b".to_owned(), tokens: 9, seconds: 1.5, ..Judging::default() },
        ..Grade::default()
    }
}

/// A vector in a random direction, the same for the same seed.
pub(crate) fn vector(seed: u64, dimensions: usize) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..dimensions).map(|_| random.next_u32() as f32 / u32::MAX as f32 - 0.5).collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.into_iter().map(|value| value / length).collect()
}

/// A vector of length 1 whose cosine with `(1, 0, 0)` is `cosine`.
pub(crate) fn with_cosine(cosine: f32) -> Vec<f32> {
    vec![cosine, (1.0 - cosine * cosine).sqrt(), 0.0]
}

/// An event about a question with this number.
pub(crate) fn event(number: u64) -> Envelope {
    let about = QueryId::from_bits(u128::from(number));
    let cancelled = Payload::QueryCancelled(Nothing {});
    Envelope::new("test", SessionId::from_bits(1), cancelled).about(about, about, RespondentId::A)
}

/// The number of an [`event`].
pub(crate) fn number_of(envelope: &Envelope) -> u64 {
    u64::from_be_bytes(envelope.query_id.unwrap().as_bytes()[8..].try_into().unwrap())
}

/// Copies a folder with its subfolders and regular files.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs an ignored test of this test program in a process of its own, whose stdout can be read.
pub(crate) fn start_child(folder: &Path, name: &str, variables: &[(&str, String)]) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--quiet", "--nocapture"])
        .env("HONE_TEST_FOLDER", folder)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Prints a line past the test harness, which would hold it back until the test ends.
pub(crate) fn say(text: &str) {
    std::io::stdout().lock().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Tells the parent process that everything about this number is acknowledged.
pub(crate) fn say_done(number: u64) {
    say(&format!("did {number}."));
}

/// The number in a line of [`say_done`]; `None` for a line that a kill cut short or that the test harness printed.
pub(crate) fn number_done(line: &str) -> Option<u64> {
    line.strip_prefix("did ")?.strip_suffix(".")?.parse().ok()
}

/// The process that owns the memory in a folder, if known.
pub(crate) fn owner_process(folder: &Path) -> Option<u32> {
    let note: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("owner.json")).ok()?).ok()?;
    u32::try_from(note["process"].as_u64()?).ok()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until `look` finds something, and returns that. Looking takes half of the time at most.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        let begun = Instant::now();
        if let Some(found) = look() {
            return found;
        }
        assert!(begun < until, "within {PATIENCE:?} it has not come about that {what}");
        std::thread::sleep(begun.elapsed().max(Duration::from_millis(1)));
    }
}

/// Sends a signal such as `-STOP` to a process.
pub(crate) fn signal(process: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}
