//! `hone bench sharing`: the gain from prompts with a common prefix.
//!
//! Every case is measured with and without sharing, in turn, on fresh prompts and without speculation.

use std::time::Instant;

use hone_engine::EngineHandle;
use hone_protocol::{Completion, Generate, GenerateError, GenerateRequest, Lane, Prompt};
use serde::Serialize;

use super::super::doctor::processor_name;
use super::{Spread, arbitrary_tokens, engine};
use crate::arguments::SharingArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::terminal::progress::Steps;

/// A conversation, in tokens of the first prompt, of every answer, and of the next question.
const CONVERSATION: [usize; 3] = [2000, 16, 30];
/// A question for two respondents, in tokens of the prompt and of each answer.
const QUESTION: [usize; 2] = [90, 64];
/// A comparison, in tokens of the instructions, which the judge has processed before; of the question, of each answer,
/// and of the verdict.
const COMPARISON: [usize; 4] = [120, 40, 64, 40];
/// The prompt of a task, with the files that it shows, and each of its candidates, in tokens.
const WORK: [usize; 2] = [1200, 256];

/// The figures.
#[derive(Debug, Serialize)]
struct SharingReport {
    processor: String,
    generator: String,
    judge_model: String,
    /// Time to the first token of a conversation's second turn, against the same prompt processed from its beginning.
    second_turn: Case,
    /// Both respondents' answers, against one respondent's.
    respondent_b: Case,
    /// A comparison in both orders, against one order.
    both_orders: Case,
    /// Number of candidates written.
    n_candidates: usize,
    /// All candidates for a task, against one.
    candidates: Case,
}

/// One quantity measured in two ways, in seconds.
#[derive(Debug, Serialize)]
struct Case {
    base_seconds: Spread,
    seconds: Spread,
    /// Median of the ratios of the repetitions.
    ratio: f64,
}

impl Case {
    fn of(pairs: &[(f64, f64)]) -> Case {
        let spread = |figure: fn(&(f64, f64)) -> f64| Spread::of(&pairs.iter().map(figure).collect::<Vec<_>>());
        Case {
            base_seconds: spread(|pair| pair.0),
            seconds: spread(|pair| pair.1),
            ratio: spread(|pair| pair.1 / pair.0).median,
        }
    }
}

/// Sends requests to one model.
struct Asking<'a> {
    engine: &'a EngineHandle,
    model: &'a str,
    lane: Lane,
    /// The seed of tokens that no earlier prompt has begun with.
    seed: u32,
}

impl Asking<'_> {
    fn new_tokens(&mut self, n: usize) -> Vec<u32> {
        self.seed += 1;
        arbitrary_tokens(self.seed, n)
    }

    fn request(&self, prompt: Vec<u32>, answer: usize) -> GenerateRequest {
        GenerateRequest {
            lane: self.lane,
            max_tokens: Some(answer),
            ..GenerateRequest::new(self.model, Prompt::Tokens(prompt))
        }
    }

    fn complete(&self, prompt: Vec<u32>, answer: usize) -> Result<Completion, GenerateError> {
        self.engine.generate(self.request(prompt, answer))?.complete()
    }

    /// Seconds until all prompts, which are sent at once, are answered.
    fn seconds(&self, prompts: Vec<Vec<u32>>, answer: usize) -> Result<f64, GenerateError> {
        let began = Instant::now();
        let asked: Vec<_> =
            prompts.into_iter().map(|prompt| self.engine.generate(self.request(prompt, answer))).collect();
        for generation in asked {
            generation?.complete()?;
        }
        Ok(began.elapsed().as_secs_f64())
    }

    fn second_turn(&mut self) -> Result<(f64, f64), GenerateError> {
        let [first, answer, next] = CONVERSATION;
        let anew = self.new_tokens(first + answer + next);
        let base = self.complete(anew, 1)?.timings.prompt_seconds;
        let first = self.new_tokens(first);
        let said = self.complete(first.clone(), answer)?.token_ids;
        let next = self.new_tokens(next);
        let second = self.complete([first, said, next].concat(), 1)?;
        Ok((base, second.timings.prompt_seconds))
    }

    fn respondent_b(&mut self) -> Result<(f64, f64), GenerateError> {
        let [question, answer] = QUESTION;
        let alone = self.new_tokens(question);
        let base = self.seconds(vec![alone], answer)?;
        let both = self.new_tokens(question);
        Ok((base, self.seconds(vec![both.clone(), both], answer)?))
    }

    fn candidates(&mut self, n: usize) -> Result<(f64, f64), GenerateError> {
        let [prompt, answer] = WORK;
        let alone = self.new_tokens(prompt);
        let base = self.seconds(vec![alone], answer)?;
        let shared = self.new_tokens(prompt);
        Ok((base, self.seconds(vec![shared; n], answer)?))
    }

    fn both_orders(&mut self, instructions: &[u32]) -> Result<(f64, f64), GenerateError> {
        let [_, question, answer, verdict] = COMPARISON;
        let mut orders = || {
            let question = self.new_tokens(question);
            let (a, b) = (self.new_tokens(answer), self.new_tokens(answer));
            [[&a, &b], [&b, &a]].map(|[first, second]| [instructions, &question, first, second].concat())
        };
        let ([one, _], both) = (orders(), orders());
        Ok((self.seconds(vec![one], verdict)?, self.seconds(both.to_vec(), verdict)?))
    }
}

/// Measures, and prints the figures.
///
/// # Errors
/// When a model cannot be run.
pub(super) fn run(app: &Invocation, arguments: &SharingArguments) -> anyhow::Result<Outcome> {
    if arguments.candidates == 0 {
        return Err(usage("--candidates 0 leaves nothing to measure"));
    }
    if arguments.repetitions == 0 {
        return Err(usage("-r 0 leaves nothing to measure"));
    }
    let generator = arguments.generator.as_ref().unwrap_or(&app.config.engine.model);
    let judge = arguments.judge.as_ref().unwrap_or(generator);
    for model in [generator, judge] {
        app.model_file(model)?;
    }
    let engine = engine(app)?;
    let asking = |model, lane| Asking { engine: &engine, model, lane, seed: 0 };
    let (person, judging) = (asking(generator.as_str(), Lane::Interactive), asking(judge.as_str(), Lane::Background));
    let report = measure(app, arguments, person, judging)?;
    match arguments.json.json {
        true => app.output.print_json(&report)?,
        false => print_text(app, &report)?,
    }
    Ok(Outcome::Done)
}

fn measure(
    app: &Invocation,
    arguments: &SharingArguments,
    mut person: Asking<'_>,
    mut judging: Asking<'_>,
) -> Result<SharingReport, GenerateError> {
    let (n, n_candidates) = (arguments.repetitions, arguments.candidates);
    let steps = Steps::new(app.output, "measurements");
    let instructions = judging.new_tokens(COMPARISON[0]);
    let repeat = |what: &str, measure: &mut dyn FnMut() -> Result<(f64, f64), GenerateError>| {
        // The first run touches weights and buffers, and does not count.
        measure()?;
        let pairs: Result<Vec<_>, _> = (0..n)
            .map(|done| {
                steps.show(done, n, what);
                measure()
            })
            .collect();
        Ok::<_, GenerateError>(Case::of(&pairs?))
    };
    let report = SharingReport {
        processor: processor_name(),
        generator: person.model.to_owned(),
        judge_model: judging.model.to_owned(),
        second_turn: repeat("second turn", &mut || person.second_turn())?,
        respondent_b: repeat("respondent B", &mut || person.respondent_b())?,
        both_orders: repeat("both orders", &mut || judging.both_orders(&instructions))?,
        n_candidates,
        candidates: repeat("candidates", &mut || person.candidates(n_candidates))?,
    };
    steps.clear();
    Ok(report)
}

fn print_text(app: &Invocation, report: &SharingReport) -> anyhow::Result<()> {
    let SharingReport { processor, generator, judge_model, second_turn, respondent_b, both_orders, .. } = report;
    app.output.print_line(&format!("{processor}; {generator} answers, {judge_model} compares"))?;
    let titles = ["", "without, ms", "with, ms", "min", "max", "ratio"];
    let row = |name: &str, case: &Case| {
        let figures = [case.base_seconds.median, case.seconds.median, case.seconds.min, case.seconds.max];
        let figures = figures.map(|seconds| format!("{:.1}", seconds * 1e3));
        [&[name.to_owned()], &figures[..], &[format!("{:.3}", case.ratio)]].concat()
    };
    let rows = [
        row("first token of a second turn (without: no prefix)", second_turn),
        row("respondents A and B (without: A)", respondent_b),
        row("both orders of a comparison (without: one)", both_orders),
        row(&format!("{} candidates for a task (without: one)", report.n_candidates), &report.candidates),
    ];
    app.output.print_titled(&titles, rows)
}
