//! `hone bench`: the speed of prompt processing and generation.

mod contention;
mod sharing;
mod sweep;

use anyhow::Context;
use hone_app::config::Source;
use hone_app::machine::{BUFFER_BYTES, memory_bandwidth};
use hone_engine::gguf::Gguf;
use hone_engine::{
    Card, DeviceChoice, EngineHandle, EngineOptions, LoadOptions, LoadProgress, Model, ModelOptions, Speculation,
    SpeedTest, Work, bytes_per_token,
};
use hone_protocol::LocateModel;
use serde::Serialize;

use super::doctor::processor_name;
use crate::arguments::{BenchArguments, BenchCommand};
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// Token ids of arbitrary prompts are below this, which is within every vocabulary.
const VOCABULARY: u32 = 30_000;

/// The default context length of models that share the engine.
const CONTEXT: usize = 4096;

/// One test's figures, tokens per second.
#[derive(Debug, Serialize)]
struct Row {
    test: String,
    model: String,
    processor: String,
    device: String,
    backend: String,
    threads: usize,
    depth: usize,
    batch: usize,
    tokens_per_second: Spread,
    samples: Vec<f64>,
    /// The limit on one sequence that generates without much context, on one device.
    memory: Option<MemoryLimit>,
}

/// The speed of memory, measured before and after a test, and the resulting limit.
#[derive(Debug, Serialize)]
struct MemoryLimit {
    /// The faster of both measurements.
    bytes_per_second: f64,
    /// Weights that a token reads.
    bytes_per_token: u64,
    /// Tokens per second at that speed.
    tokens_per_second: f64,
    /// The measured share of them.
    share: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// Tests that are run on one model.
struct Run<'a> {
    model: &'a str,
    options: ModelOptions,
    tests: &'a [SpeedTest],
    repetitions: usize,
}

/// Runs the tests and prints their speeds, or writes those of a sweep into a file.
///
/// # Errors
/// When the model cannot be run, or has too short a context.
pub(crate) fn run(app: &Invocation, arguments: &BenchArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        Some(BenchCommand::Contention(arguments)) => return contention::run(app, arguments),
        Some(BenchCommand::Sharing(arguments)) => return sharing::run(app, arguments),
        None => {}
    }
    if let Some(file) = &arguments.sweep {
        return sweep::run(app, file, arguments.output.as_deref());
    }
    let tests = tests(arguments)?;
    let (model, repetitions) = (app.config.engine.model.as_str(), arguments.repetitions);
    let rows = measure(app, &Run { model, options: app.model_options()?, tests: &tests, repetitions })?;
    if arguments.json.json {
        app.output.print_json(&rows)?
    } else {
        print_text(app, &rows)?
    }
    Ok(Outcome::Done)
}

fn tests(arguments: &BenchArguments) -> anyhow::Result<Vec<SpeedTest>> {
    let &BenchArguments { depth, batch, .. } = arguments;
    let all = [Work::Prompt(arguments.prompt_tokens), Work::Generation(arguments.generation_tokens)];
    let all = all.into_iter().map(|work| SpeedTest { work, depth, batch });
    let tests: Vec<SpeedTest> = all.filter(|test| test.n_tokens() > 0).collect();
    match (tests.is_empty(), arguments.repetitions, batch) {
        (true, ..) => Err(usage("-p 0 and -n 0 leave nothing to measure")),
        (_, 0, _) => Err(usage("-r 0 leaves nothing to measure")),
        (.., 0) => Err(usage("--batch 0 leaves nothing to measure")),
        _ => Ok(tests),
    }
}

/// Loads the model, with a cache that is large enough, and runs the tests.
fn measure(app: &Invocation, run: &Run<'_>) -> anyhow::Result<Vec<Row>> {
    let n_positions = run.tests.iter().map(SpeedTest::n_positions).max().unwrap_or(0);
    let n_sequences = run.tests.iter().map(|test| test.batch).max().unwrap_or(1);
    let options = ModelOptions { context_length: None, n_sequences, ..run.options.clone() };
    let file = app.model_file(run.model)?;
    app.store.verify(&file)?;
    let gguf = Gguf::open_region(&file)?;
    let loading = LoadProgress::told_to(app.progress.loading());
    let load = LoadOptions::from(options).with_progress(loading);
    let mut model = Model::load(&file, load).with_context(|| format!("cannot load model {:?}", run.model))?;
    if n_positions > model.context_length() {
        let context = model.context_length();
        return Err(usage(format!("the model's context holds {context} tokens, but {n_positions} are needed")));
    }
    let steps = Steps::new(app.output, "runs");
    let bytes_per_token = bytes_per_token(&gguf, model.spec());
    // Weights that fit the processor's caches do not wait for memory.
    let may_be_cached = model.device_name() == "cpu" && file.size() < BUFFER_BYTES;
    let mut measure = |test: &SpeedTest| {
        let is_limited =
            matches!(test.work, Work::Generation(_)) && (test.depth, test.batch) == (0, 1) && !may_be_cached;
        let before = is_limited.then(|| bandwidth_for(&model, &run.options)).flatten();
        let row = measure_test(run, &mut model, test, &steps)?;
        let after = before.and_then(|_| bandwidth_for(&model, &run.options));
        let limit = before.zip(after).map(|(before, after)| before.max(after));
        let memory = limit.map(|bytes_per_second| {
            let tokens_per_second = bytes_per_second / bytes_per_token.max(1) as f64;
            let share = row.tokens_per_second.median / tokens_per_second;
            MemoryLimit { bytes_per_second, bytes_per_token, tokens_per_second, share }
        });
        Ok(Row { memory, ..row })
    };
    let rows = run.tests.iter().map(&mut measure).collect();
    steps.clear();
    rows
}

/// The bandwidth of the memory that a model is in, measured now; `None` if it is divided, or the memory is full.
fn bandwidth_for(model: &Model, options: &ModelOptions) -> Option<f64> {
    match model.device_name().parse() {
        Ok(DeviceChoice::Cpu) => Some(memory_bandwidth(model.n_threads())),
        Ok(DeviceChoice::Cuda(_)) => Card::of(options)?.measure_bandwidth(),
        _ => None,
    }
}

fn measure_test(run: &Run<'_>, model: &mut Model, test: &SpeedTest, steps: &Steps) -> anyhow::Result<Row> {
    let samples = test.run(model, run.repetitions, |done| steps.show(done, run.repetitions, &test.name()))?;
    Ok(Row {
        test: test.name(),
        model: run.model.to_owned(),
        processor: processor_name(),
        device: model.device_name(),
        backend: model.backend_name().to_string(),
        threads: model.n_threads(),
        depth: test.depth,
        batch: test.batch,
        tokens_per_second: Spread::of(&samples),
        samples,
        memory: None,
    })
}

impl Spread {
    fn of(samples: &[f64]) -> Spread {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] };
        Spread { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// A prompt of arbitrary tokens, which depend on the seed.
fn arbitrary_tokens(seed: u32, n: usize) -> Vec<u32> {
    let token = |place: u32| seed.wrapping_mul(7919).wrapping_add(place * 104_729) % VOCABULARY;
    (0..n as u32).map(token).collect()
}

/// The engine that requests are measured with: two contexts of [`CONTEXT`] tokens unless another size is configured,
/// without speculation, so that every token is a step.
fn engine(app: &Invocation) -> anyhow::Result<EngineHandle> {
    let is_chosen = app.config.source_of("engine.context") != Some(&Source::Default);
    let model = ModelOptions {
        context_length: if is_chosen { app.config.engine.options.model.context_length } else { Some(CONTEXT) },
        n_sequences: 2,
        speculation: Speculation::Off,
        ..app.model_options()?
    };
    Ok(EngineHandle::start(EngineOptions { model, ..app.engine_options()? }, app.store.clone())?)
}

fn print_text(app: &Invocation, rows: &[Row]) -> anyhow::Result<()> {
    if let Some(row) = rows.first() {
        app.output
            .print_line(&format!("{}, {} threads, {} on {}", row.processor, row.threads, row.backend, row.device))?;
    }
    let titles = ["model", "test", "tokens/s", "min", "max", "memory allows", "share"];
    let line = |row: &Row| {
        let speeds = &row.tokens_per_second;
        let figures = [speeds.median, speeds.min, speeds.max].map(|speed| format!("{speed:.2}"));
        let limit = match &row.memory {
            Some(memory) => [format!("{:.2}", memory.tokens_per_second), format!("{:.0} %", 100.0 * memory.share)],
            None => ["-", "-"].map(String::from),
        };
        [vec![row.model.clone(), row.test.clone()], figures.to_vec(), limit.to_vec()].concat()
    };
    app.output.print_titled(&titles, rows.iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(samples: &[f64], median: f64, min: f64, max: f64) {
        assert_eq!(Spread::of(samples), Spread { median, min, max });
    }

    #[test]
    fn the_median_is_the_middle() {
        check(&[3.0], 3.0, 3.0, 3.0);
        check(&[3.0, 1.0, 2.0], 2.0, 1.0, 3.0);
        check(&[4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0);
    }
}
