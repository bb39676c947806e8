//! The frame of every ordeal: its duration, seed and outcome.

use std::collections::BTreeMap;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::json;

use crate::support::{Home, Run};

/// The default duration of an ordeal, in seconds.
const SECONDS: u64 = 20;

/// A running ordeal.
pub(crate) struct Ordeal {
    name: &'static str,
    seed: u64,
    random: ChaCha8Rng,
    begun: Instant,
    until: Instant,
    counts: BTreeMap<&'static str, u64>,
}

impl Ordeal {
    pub(crate) fn begin(name: &'static str) -> Ordeal {
        let number = |variable: &str| env::var(variable).ok().and_then(|value| value.parse().ok());
        let seed = number("HONE_TORTURE_SEED").unwrap_or(1);
        let begun = Instant::now();
        let until = begun + Duration::from_secs(number("HONE_TORTURE_SECONDS").unwrap_or(SECONDS));
        Ordeal { name, seed, random: ChaCha8Rng::seed_from_u64(seed), begun, until, counts: BTreeMap::new() }
    }

    /// Whether there is time for another round; the first is always taken.
    pub(crate) fn goes_on(&mut self) -> bool {
        let rounds = self.counts.entry("rounds").or_default();
        *rounds += 1;
        *rounds == 1 || Instant::now() < self.until
    }

    /// Counts an action or an event.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    /// One of these.
    pub(crate) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

impl Drop for Ordeal {
    /// Reports the counts, even after a failure.
    fn drop(&mut self) {
        let seconds = self.begun.elapsed().as_secs();
        let survived = !std::thread::panicking();
        let report = json!({
            "ordeal": self.name, "seed": self.seed, "seconds": seconds, "survived": survived, "counts": self.counts,
        });
        println!("{report}");
        if let Some(path) = env::var_os("HONE_TORTURE_REPORT") {
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            writeln!(file, "{report}").unwrap();
        }
    }
}

/// Asserts that a command ended by itself, with a meaningful exit code and without a panic.
#[track_caller]
pub(crate) fn assert_sane(run: &Run, what: &str) {
    let is_told = run.code == 0 || !run.stderr.trim().is_empty() || !run.stdout.trim().is_empty();
    let sane = (0..=3).contains(&run.code) && is_told && !run.stderr.contains("panicked at");
    assert!(sane, "{what} ended with {}: {}\n{}", run.code, run.stderr, run.stdout);
}

/// Runs a command, whatever the state of its home.
#[track_caller]
pub(crate) fn run_sane(home: &Home, arguments: &[&str]) -> Run {
    let run = home.run(arguments);
    assert_sane(&run, &format!("hone {arguments:?}"));
    run
}
