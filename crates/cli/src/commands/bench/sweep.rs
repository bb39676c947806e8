//! Sweeps: inputs declared in a file, results as a dated CSV with the processor's name, so that figures from different
//! days and machines can be compared.

use std::path::Path;

use anyhow::Context;
use hone_engine::{BackendChoice, ModelOptions, SpeedTest, Work};
use serde::Deserialize;
use time::OffsetDateTime;

use super::{Row, Run, measure, print_text};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// The measurements to make: every test on every model with every backend and number of threads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    /// Names or paths; defaults to the configured one.
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    backends: Vec<String>,
    #[serde(default)]
    threads: Vec<usize>,
    #[serde(default = "five")]
    repetitions: usize,
    #[serde(rename = "test")]
    tests: Vec<Test>,
}

/// One test; either a prompt or a generation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    prompt_tokens: Option<usize>,
    generation_tokens: Option<usize>,
    #[serde(default)]
    depth: usize,
    #[serde(default = "one")]
    batch: usize,
}

fn one() -> usize {
    1
}

fn five() -> usize {
    5
}

/// Runs the measurements declared in a file, and writes the figures to a CSV named after it and today's date.
pub(super) fn run(app: &Invocation, file: &Path, folder: Option<&Path>) -> anyhow::Result<Outcome> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the sweep {shown}"))?;
    let sweep = Sweep::parse(&text).map_err(|reason| usage(format!("the sweep {shown} cannot be used: {reason}")))?;
    let tests: Vec<SpeedTest> = sweep.tests.iter().map(Test::speed_test).collect::<Result<_, _>>().map_err(usage)?;
    let mut rows = Vec::new();
    for (model, options) in sweep.runs(app)? {
        rows.extend(measure(app, &Run { model: &model, options, tests: &tests, repetitions: sweep.repetitions })?);
    }
    print_text(app, &rows)?;
    let date = OffsetDateTime::now_utc().date();
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let path = folder.unwrap_or(Path::new(".")).join(format!("{date}-{name}.csv"));
    std::fs::write(&path, csv(&date.to_string(), &rows)).with_context(|| format!("cannot write {}", path.display()))?;
    app.output.note(&format!("wrote {}", path.display()));
    Ok(Outcome::Done)
}

impl Sweep {
    fn parse(text: &str) -> Result<Sweep, String> {
        let sweep: Sweep = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match sweep {
            Sweep { repetitions: 0, .. } => Err("repetitions is 0: it must be 1 or more".to_owned()),
            Sweep { ref tests, .. } if tests.is_empty() => Err("it has no [[test]]".to_owned()),
            sweep => Ok(sweep),
        }
    }

    /// Every model with every backend and number of threads.
    fn runs(&self, app: &Invocation) -> anyhow::Result<Vec<(String, ModelOptions)>> {
        let configured = app.model_options()?;
        let models = or_one(self.models.clone(), app.config.engine.model.clone());
        let backends: Result<Vec<BackendChoice>, String> = self.backends.iter().map(|name| name.parse()).collect();
        let backends = or_one(backends.map_err(usage)?, configured.backend);
        let mut runs = Vec::new();
        for model in models {
            for backend in backends.iter().copied() {
                let threads = or_one(self.threads.iter().copied().map(Some).collect(), configured.n_threads);
                let options =
                    threads.into_iter().map(|n_threads| ModelOptions { backend, n_threads, ..configured.clone() });
                runs.extend(options.map(|options| (model.clone(), options)));
            }
        }
        Ok(runs)
    }
}

/// The given values, or else the configured one.
fn or_one<T>(given: Vec<T>, configured: T) -> Vec<T> {
    if given.is_empty() { vec![configured] } else { given }
}

impl Test {
    fn speed_test(&self) -> Result<SpeedTest, String> {
        let work = match (self.prompt_tokens, self.generation_tokens) {
            (Some(n_tokens @ 1..), None) => Work::Prompt(n_tokens),
            (None, Some(n_tokens @ 1..)) => Work::Generation(n_tokens),
            _ => return Err("a test of a sweep has either prompt_tokens or generation_tokens, 1 or more".to_owned()),
        };
        match self.batch {
            0 => Err("the batch of a test is 0: it must be 1 or more".to_owned()),
            batch => Ok(SpeedTest { work, depth: self.depth, batch }),
        }
    }
}

fn csv(date: &str, rows: &[Row]) -> String {
    let mut lines =
        vec!["date,processor,model,test,depth,batch,backend,device,threads,repetitions,median,min,max".to_owned()];
    lines.extend(rows.iter().map(|row| {
        let speeds = &row.tokens_per_second;
        let figures = [speeds.median, speeds.min, speeds.max].map(|speed| format!("{speed:.3}")).join(",");
        let (processor, model, test) = (field(&row.processor), field(&row.model), field(&row.test));
        let Row { depth, batch, backend, device, threads, samples, .. } = row;
        let n_samples = samples.len();
        format!("{date},{processor},{model},{test},{depth},{batch},{backend},{device},{threads},{n_samples},{figures}")
    }));
    lines.join("\n") + "\n"
}

/// A text as a field of a CSV file (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spread;
    use super::*;

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let error = Sweep::parse(text)
            .and_then(|sweep| sweep.tests.iter().map(Test::speed_test).collect::<Result<Vec<_>, _>>());
        let error = error.unwrap_err();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }

    #[test]
    fn a_sweep_says_what_is_measured() {
        let sweep = Sweep::parse("threads = [1, 2]\n[[test]]\nprompt_tokens = 512\n[[test]]\ngeneration_tokens = 64\ndepth = 2048\nbatch = 8").unwrap();
        let names: Vec<String> = sweep.tests.iter().map(|test| test.speed_test().unwrap().name()).collect();
        assert_eq!((names, sweep.repetitions), (vec!["pp512".to_owned(), "tg64 @ d2048 x8".to_owned()], 5));
        check_refused("[[test]]\nprompt = 5", "prompt");
        check_refused("test = []", "no [[test]]");
        check_refused("repetitions = 0\n[[test]]\nprompt_tokens = 5", "repetitions is 0");
        check_refused("[[test]]\ndepth = 5", "either prompt_tokens or generation_tokens");
        check_refused("[[test]]\nprompt_tokens = 5\ngeneration_tokens = 5", "either");
        check_refused("[[test]]\nprompt_tokens = 5\nbatch = 0", "batch");
    }

    #[test]
    fn figures_are_a_table_that_other_programs_read() {
        let row = Row {
            test: "pp512".into(),
            model: "a,b".into(),
            processor: "Some \"CPU\"".into(),
            device: "cpu".into(),
            backend: "native".into(),
            threads: 2,
            depth: 0,
            batch: 1,
            tokens_per_second: Spread { median: 2.0, min: 1.0, max: 3.0 },
            samples: vec![1.0, 2.0, 3.0],
            memory: None,
        };
        let expected = "date,processor,model,test,depth,batch,backend,device,threads,repetitions,median,min,max\n\
                        2026-01-31,\"Some \"\"CPU\"\"\",\"a,b\",pp512,0,1,native,cpu,2,3,2.000,1.000,3.000\n";
        assert_eq!(csv("2026-01-31", &[row]), expected);
    }
}
