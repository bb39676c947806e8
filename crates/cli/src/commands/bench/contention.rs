//! `hone bench contention`: how a judge that grades continuously slows down a chat.
//!
//! First both models run alone, then together. A simulated user asks, reads, and asks again; the judge grades one
//! answer after the other in the background. The prompts are random tokens, so that no prefix can be reused, and
//! speculation is off, so that every token takes a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use hone_engine::EngineHandle;
use hone_protocol::{Generate, GenerateError, GenerateRequest, GenerationEvent, Lane, Prompt};
use serde::Serialize;

use super::super::doctor::processor_name;
use super::{arbitrary_tokens, engine};
use crate::arguments::ContentionArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// A request of the chat, in tokens of the prompt and of the answer.
const QUESTION: Size = Size { prompt: 90, answer: 64 };
/// A request to the judge: a rubric, a question and an answer, with a short feedback.
const GRADING: Size = Size { prompt: 300, answer: 40 };
/// The shortest and the longest reading time before the next question, in milliseconds.
const READING: (u32, u32) = (150, 550);

/// The figures.
#[derive(Debug, Serialize)]
struct ContentionReport {
    processor: String,
    generator: String,
    judge_model: String,
    requests: usize,
    alone: Latencies,
    while_grading: Latencies,
    judge: JudgeReport,
    throughput: Throughput,
}

#[derive(Debug, Serialize)]
struct Latencies {
    time_to_first_token_ms: Quantiles,
    time_between_tokens_ms: Quantiles,
}

#[derive(Debug, PartialEq, Serialize)]
struct Quantiles {
    p50: f64,
    p95: f64,
    p99: f64,
}

/// Tokens read and written per second.
#[derive(Debug, Serialize)]
struct JudgeReport {
    tokens_per_second: AloneAndBeside,
}

#[derive(Debug, Serialize)]
struct AloneAndBeside {
    alone: f64,
    beside: f64,
}

/// The combined work of both models, without pauses for reading.
#[derive(Debug, Serialize)]
struct Throughput {
    one_after_another_seconds: f64,
    together_seconds: f64,
    /// Throughput of both together, relative to one after the other.
    ratio: f64,
}

/// The size of a request.
#[derive(Clone, Copy)]
struct Size {
    prompt: usize,
    answer: usize,
}

/// A model of the engine, and the requests it gets.
struct Role<'a> {
    engine: &'a EngineHandle,
    model: &'a str,
    size: Size,
    lane: Lane,
    /// The number of requests so far.
    n_asked: u32,
}

/// When the tokens of an answer arrived.
struct Answered {
    asked: Instant,
    tokens: Vec<Instant>,
}

impl Role<'_> {
    /// Sends a new request and waits for the answer. `on_progress` gets the number of tokens processed or generated at
    /// each step, and stops the waiting by returning false.
    fn ask(&mut self, mut on_progress: impl FnMut(usize) -> bool) -> Result<Answered, GenerateError> {
        self.n_asked += 1;
        let request = GenerateRequest {
            max_tokens: Some(self.size.answer),
            lane: self.lane,
            ..GenerateRequest::new(self.model, Prompt::Tokens(arbitrary_tokens(self.n_asked, self.size.prompt)))
        };
        let mut answered = Answered { asked: Instant::now(), tokens: Vec::new() };
        let generation = self.engine.generate(request)?;
        let mut n_read = 0;
        for event in generation.events() {
            let goes_on = match event {
                GenerationEvent::Failed(error) => return Err(error),
                GenerationEvent::Token { .. } => {
                    answered.tokens.push(Instant::now());
                    on_progress(1)
                }
                GenerationEvent::Prefill { done, .. } => {
                    on_progress(done.saturating_sub(std::mem::replace(&mut n_read, done)))
                }
                GenerationEvent::Loading { .. }
                | GenerationEvent::OfPrompt(_)
                | GenerationEvent::Reward(_)
                | GenerationEvent::StoppedBy(_)
                | GenerationEvent::Started { .. }
                | GenerationEvent::Finished { .. } => true,
            };
            if !goes_on {
                break;
            }
        }
        Ok(answered)
    }

    /// Sends `n` requests without pauses, and returns how long they took.
    fn work(&mut self, n: usize) -> Result<Duration, GenerateError> {
        let began = Instant::now();
        for _ in 0..n {
            self.ask(|_| true)?;
        }
        Ok(began.elapsed())
    }

    /// Asks, reads, and asks again.
    fn chat(&mut self, n: usize, steps: &Steps, what: &str) -> Result<Latencies, GenerateError> {
        let (mut first, mut between) = (Vec::new(), Vec::new());
        for done in 0..n {
            steps.show(done, n, what);
            let (shortest, longest) = READING;
            let reading = shortest + self.n_asked * 37 % (longest - shortest);
            thread::sleep(Duration::from_millis(reading.into()));
            let Answered { asked, tokens } = self.ask(|_| true)?;
            first.extend(tokens.first().map(|token| (*token - asked).as_secs_f64()));
            between.extend(tokens.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()));
        }
        Ok(Latencies { time_to_first_token_ms: Quantiles::of(first), time_between_tokens_ms: Quantiles::of(between) })
    }

    /// Works until `stop` is set, and returns the tokens per second.
    fn work_until(&mut self, stop: &AtomicBool) -> Result<f64, GenerateError> {
        let (began, mut n_tokens) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            self.ask(|n| {
                n_tokens += n;
                !stop.load(Ordering::Relaxed)
            })?;
        }
        Ok(n_tokens as f64 / began.elapsed().as_secs_f64())
    }
}

impl Quantiles {
    /// Quantiles of seconds, in milliseconds, by nearest rank; zeros without any.
    fn of(mut seconds: Vec<f64>) -> Quantiles {
        seconds.sort_unstable_by(f64::total_cmp);
        let rank = |share: f64| ((seconds.len() as f64 * share).ceil() as usize).max(1) - 1;
        let at = |share| seconds.get(rank(share)).map_or(0.0, |seconds| seconds * 1e3);
        Quantiles { p50: at(0.50), p95: at(0.95), p99: at(0.99) }
    }
}

/// Measures, and prints the figures.
///
/// # Errors
/// When a model cannot be run.
pub(super) fn run(app: &Invocation, arguments: &ContentionArguments) -> anyhow::Result<Outcome> {
    if arguments.requests == 0 || arguments.gradings == 0 {
        return Err(usage("nothing is left to measure: --requests and --gradings must be 1 or more"));
    }
    let generator = arguments.generator.as_ref().unwrap_or(&app.config.engine.model);
    let judge = &arguments.judge;
    for model in [generator, judge] {
        app.model_file(model)?;
    }
    let engine = engine(app)?;
    let role = |model, size, lane| Role { engine: &engine, model, size, lane, n_asked: 0 };
    let person = role(generator.as_str(), QUESTION, Lane::Interactive);
    let judging = role(judge.as_str(), GRADING, Lane::Background);
    let report = measure(app, arguments, person, judging)?;
    match arguments.json.json {
        true => app.output.print_json(&report)?,
        false => print_text(app, &report)?,
    }
    Ok(Outcome::Done)
}

fn measure(
    app: &Invocation,
    arguments: &ContentionArguments,
    mut person: Role<'_>,
    mut judging: Role<'_>,
) -> anyhow::Result<ContentionReport> {
    let steps = Steps::new(app.output, "requests");
    let (n, n_gradings) = (arguments.requests, arguments.gradings);
    // Lets the engine learn the cost of steps, and touches the models' pages.
    person.work(2)?;
    judging.work(1)?;
    let alone = person.chat(n, &steps, "alone")?;
    let gradings_alone = judging.work(n_gradings)?;
    let n_tokens = n_gradings * (GRADING.prompt + GRADING.answer);
    let stop = Arc::new(AtomicBool::new(false));
    let (while_grading, beside) = thread::scope(|scope| {
        let grading = scope.spawn(|| judging.work_until(&stop));
        let chatted = person.chat(n, &steps, "while the judge grades");
        stop.store(true, Ordering::Relaxed);
        Ok::<_, anyhow::Error>((chatted?, joined(grading.join())??))
    })?;
    let answers_alone = person.work(n)?;
    let began = Instant::now();
    thread::scope(|scope| {
        let grading = scope.spawn(|| judging.work(n_gradings));
        person.work(n)?;
        joined(grading.join())??;
        Ok::<_, anyhow::Error>(())
    })?;
    let together = began.elapsed().as_secs_f64();
    steps.clear();
    let one_after_another = (gradings_alone + answers_alone).as_secs_f64();
    Ok(ContentionReport {
        processor: processor_name(),
        generator: person.model.to_owned(),
        judge_model: judging.model.to_owned(),
        requests: n,
        alone,
        while_grading,
        judge: JudgeReport {
            tokens_per_second: AloneAndBeside { alone: n_tokens as f64 / gradings_alone.as_secs_f64(), beside },
        },
        throughput: Throughput {
            one_after_another_seconds: one_after_another,
            together_seconds: together,
            ratio: one_after_another / together,
        },
    })
}

fn joined<T>(outcome: thread::Result<T>) -> anyhow::Result<T> {
    outcome.map_err(|_| anyhow!("the thread of the judge's requests panicked")).context("the measurement failed")
}

fn print_text(app: &Invocation, report: &ContentionReport) -> anyhow::Result<()> {
    let ContentionReport { processor, generator, judge_model, alone, while_grading, judge, throughput, .. } = report;
    app.output.print_line(&format!("{processor}; {generator} answers, {judge_model} grades"))?;
    let titles = ["", "alone p50", "p95", "p99", "while grading p50", "p95", "p99"];
    let row = |name: &str, quantiles: fn(&Latencies) -> &Quantiles| {
        let figures = [alone, while_grading].map(quantiles).into_iter().flat_map(|q| [q.p50, q.p95, q.p99]);
        std::iter::once(name.to_owned()).chain(figures.map(|figure| format!("{figure:.1}"))).collect()
    };
    let rows = [
        row("time to first token, ms", |latencies| &latencies.time_to_first_token_ms),
        row("time between tokens, ms", |latencies| &latencies.time_between_tokens_ms),
    ];
    app.output.print_titled(&titles, rows)?;
    let AloneAndBeside { alone, beside } = judge.tokens_per_second;
    app.output.print_line(&format!("judge: {alone:.1} tokens/s alone, {beside:.1} in the gaps"))?;
    let Throughput { one_after_another_seconds, together_seconds, ratio } = throughput;
    app.output.print_line(&format!(
        "the same work: {one_after_another_seconds:.1} s one after another, {together_seconds:.1} s together ({ratio:.2})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let seconds = |n: u32| (1..=n).rev().map(|n| f64::from(n) / 1e3).collect();
        let check = |n, p50, p95, p99| {
            let found = Quantiles::of(seconds(n));
            let expected = Quantiles { p50, p95, p99 };
            for (found, expected) in [(found.p50, expected.p50), (found.p95, expected.p95), (found.p99, expected.p99)] {
                assert!((found - expected).abs() < 1e-9, "{n}: {found} is not {expected}");
            }
        };
        check(0, 0.0, 0.0, 0.0);
        check(1, 1.0, 1.0, 1.0);
        check(20, 10.0, 19.0, 20.0);
        check(200, 100.0, 190.0, 198.0);
    }
}
