//! `hone bench`: how fast a model reads a prompt and generates.

use hone_engine::model::Model;
use hone_engine::speed::SpeedTest;
use serde::Serialize;

use super::doctor::processor_name;
use crate::app::App;
use crate::arguments::BenchArguments;
use crate::failure::{Outcome, usage};
use crate::output::table;
use crate::progress::Steps;

/// One test's figures, tokens per second.
#[derive(Debug, Serialize)]
struct Row {
    test: String,
    model: String,
    processor: String,
    device: String,
    backend: String,
    threads: usize,
    tokens_per_second: Spread,
    samples: Vec<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// Runs the tests and prints their speeds.
///
/// # Errors
/// When the model cannot be run, or has too short a context.
pub(crate) fn run(app: &App, arguments: &BenchArguments) -> anyhow::Result<Outcome> {
    let tests = tests(arguments)?;
    let longest = tests.iter().map(|test| test.n_tokens()).max().unwrap_or(0);
    let mut model = app.load_model(None)?;
    if longest > model.context_length() {
        return Err(usage(format!(
            "the model's context holds {} tokens, and {longest} are asked for",
            model.context_length()
        )));
    }
    let mut steps = Steps::new(app.output, "runs");
    let measure = |test| measure(app, arguments, &mut model, test, &mut steps);
    let rows = tests.into_iter().map(measure).collect::<anyhow::Result<Vec<Row>>>()?;
    steps.clear();
    if arguments.json.json {
        app.output.print_json(&rows)?
    } else {
        print_text(app, &rows)?
    }
    Ok(Outcome::Done)
}

fn tests(arguments: &BenchArguments) -> anyhow::Result<Vec<SpeedTest>> {
    let all = [SpeedTest::Prompt(arguments.prompt_tokens), SpeedTest::Generation(arguments.generation_tokens)];
    let tests: Vec<SpeedTest> = all.into_iter().filter(|test| test.n_tokens() > 0).collect();
    match (tests.is_empty(), arguments.repetitions) {
        (true, _) => Err(usage("-p 0 and -n 0 leave nothing to measure")),
        (_, 0) => Err(usage("-r 0 leaves nothing to measure")),
        _ => Ok(tests),
    }
}

fn measure(
    app: &App,
    arguments: &BenchArguments,
    model: &mut Model,
    test: SpeedTest,
    steps: &mut Steps,
) -> anyhow::Result<Row> {
    // The first run touches weights and makes buffers; it is not counted.
    test.run(model)?;
    let mut samples = Vec::new();
    for index in 0..arguments.repetitions {
        samples.push(test.run(model)?);
        steps.show(index + 1, arguments.repetitions, &test.name());
    }
    Ok(Row {
        test: test.name(),
        model: app.config.engine.model.clone(),
        processor: processor_name(),
        device: model.device_name(),
        backend: model.backend_name().to_string(),
        threads: model.n_threads(),
        tokens_per_second: Spread::of(&samples),
        samples,
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

fn print_text(app: &App, rows: &[Row]) -> anyhow::Result<()> {
    if let Some(row) = rows.first() {
        app.output
            .print_line(&format!("{}, {} threads, {} on {}", row.processor, row.threads, row.backend, row.device))?;
    }
    let header = ["model", "test", "tokens/s", "min", "max"].map(String::from).to_vec();
    let line = |row: &Row| {
        let speeds = &row.tokens_per_second;
        let figures = [speeds.median, speeds.min, speeds.max].map(|speed| format!("{speed:.2}"));
        [vec![row.model.clone(), row.test.clone()], figures.to_vec()].concat()
    };
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows.iter().map(line)).collect();
    app.output.print_line(&table(&lines))
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
