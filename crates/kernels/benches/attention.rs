//! Speed of attention: GMAC/s by format of the cache and number of tokens.
//!
//! ```text
//! cargo bench -p hone-kernels --bench attention -- [--set AVX2] [--formats F16,Q8_0] [--heads 32x8x128]
//!     [--context 1024] [--tokens 1,128] [--repeats 3]
//! ```
//!
//! `--heads` gives the number of query heads, the number of key/value heads, and the width of a head. The new tokens
//! are the last ones of the context. Multiply-accumulates are counted over the visible positions, for scores and
//! weighted values alike. With `--repeats`, every step is computed that many times without measuring, for external
//! tools that count instructions.
//!
//! Runs on one thread, with the processor's best instruction set unless `--set` names another. Every figure is the best
//! of many runs, because other processes only ever slow a run down.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use hone_kernels::platform::{self, InstructionSet, Kernels};
use hone_kernels::pool::Pool;
use hone_kernels::step::{AttentionOptions, Program, ProgramBuilder, RowOperation, RowSet, Sequence};
use hone_kernels::{BLOCK_TOKENS, KvFormat, Matrix, TensorType};

/// Measurement time per figure.
const TIME_PER_FIGURE: Duration = Duration::from_millis(400);

struct Settings {
    formats: Vec<KvFormat>,
    heads: Heads,
    context: usize,
    tokens: Vec<usize>,
    /// How many times to compute every step without measuring it.
    repeats: Option<usize>,
}

struct Heads {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

impl Settings {
    fn read() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1).cloned()
        };
        let numbers = |text: &str, separator: char| -> Vec<usize> {
            text.split(separator).map(|number| number.parse().unwrap()).collect()
        };
        if let Some(name) = value("--set") {
            let set = InstructionSet::ALL.into_iter().find(|set| set.name() == name).unwrap();
            platform::choose(Kernels::of(set).unwrap());
        }
        let wanted = value("--formats");
        let is_wanted =
            |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.split(',').any(|format| format == name));
        let heads = numbers(&value("--heads").unwrap_or("32x8x128".into()), 'x');
        Settings {
            formats: [("F16", KvFormat::F16), ("Q8_0", KvFormat::Q8_0)]
                .into_iter()
                .filter_map(|(name, format)| is_wanted(name).then_some(format))
                .collect(),
            heads: Heads { n_heads: heads[0], n_kv_heads: heads[1], head_dim: heads[2] },
            context: value("--context").map_or(1024, |number| number.parse().unwrap()),
            tokens: numbers(&value("--tokens").unwrap_or("1,128".into()), ','),
            repeats: value("--repeats").map(|number| number.parse().unwrap()),
        }
    }
}

fn main() {
    let settings = Settings::read();
    let mut pool = Pool::new(NonZeroUsize::MIN);
    if settings.repeats.is_none() {
        println!("{:<8} {:>8} {:>6} {:>8}", "format", "context", "tokens", "GMAC/s");
    }
    for &format in &settings.formats {
        let mut context = Context::new(format, &settings);
        for &n_tokens in &settings.tokens {
            match settings.repeats {
                Some(repeats) => (0..repeats).for_each(|_| context.attend(&mut pool, n_tokens)),
                None => println!(
                    "{:<8} {:>8} {:>6} {:>8.1}",
                    format!("{format:?}"),
                    settings.context,
                    n_tokens,
                    context.products(&settings, n_tokens) as f64 / context.best_time(&mut pool, n_tokens) / 1e9,
                ),
            }
        }
    }
}

/// A filled cache, and a program that attends to it.
struct Context {
    program: Program,
    n_positions: usize,
    blocks: Vec<u32>,
}

impl Context {
    fn new(format: KvFormat, settings: &Settings) -> Self {
        let blocks: Vec<u32> = (0..settings.context.div_ceil(BLOCK_TOKENS) as u32).collect();
        let mut context = Context { program: program(format, &settings.heads), n_positions: settings.context, blocks };
        let (mut pool, n_tokens) = (Pool::new(NonZeroUsize::MIN), BLOCK_TOKENS.min(settings.context));
        // All blocks share the keys and values of the first.
        context.attend_from(&mut pool, 0, n_tokens);
        for block in 1..context.blocks.len() as u32 {
            context.program.copy_block(0, block);
        }
        context
    }

    /// Computes the last tokens of the context.
    fn attend(&mut self, pool: &mut Pool, n_tokens: usize) {
        self.attend_from(pool, self.n_positions - n_tokens, n_tokens);
    }

    fn attend_from(&mut self, pool: &mut Pool, position: usize, n_tokens: usize) {
        let tokens = vec![0; n_tokens];
        let sequence = Sequence {
            tokens: &tokens,
            position,
            blocks: &self.blocks,
            first_selected: n_tokens - 1,
            n_selected: 1,
            states: None,
        };
        black_box(self.program.run(pool, [sequence]).unwrap());
    }

    /// Multiply-accumulates of a step.
    fn products(&self, settings: &Settings, n_tokens: usize) -> usize {
        let n_seen: usize = (self.n_positions - n_tokens..self.n_positions).map(|position| position + 1).sum();
        2 * n_seen * settings.heads.n_heads * settings.heads.head_dim
    }

    /// Seconds of a step: the best time.
    fn best_time(&mut self, pool: &mut Pool, n_tokens: usize) -> f64 {
        let mut best = f64::INFINITY;
        let start = Instant::now();
        while best.is_infinite() || start.elapsed() < TIME_PER_FIGURE {
            let step = Instant::now();
            self.attend(pool, n_tokens);
            best = best.min(step.elapsed().as_secs_f64());
        }
        best
    }
}

/// Attention of one layer, and almost nothing else.
fn program(format: KvFormat, heads: &Heads) -> Program {
    let (width, kv_width) = (heads.n_heads * heads.head_dim, heads.n_kv_heads * heads.head_dim);
    let mut builder = ProgramBuilder::new();
    let row = (0..width + 2 * kv_width).map(|idx| (idx * 37 % 101) as f32 / 50.0 - 1.0);
    let bytes: Vec<u8> = row.flat_map(f32::to_le_bytes).collect();
    let table = builder.matrix(Matrix::pack(TensorType::F32, 1, width + 2 * kv_width, &bytes).unwrap());
    let layer = builder.kv_layer(format, heads.n_kv_heads, heads.head_dim);
    let embedded = builder.rows(RowSet::Tokens, width + 2 * kv_width);
    let (keys, values) = (embedded.part(width, kv_width), embedded.part(width + kv_width, kv_width));
    builder.for_each_row(
        RowSet::Tokens,
        vec![RowOperation::Embed { table, scale: 1.0, to: embedded }, RowOperation::WriteKv { layer, keys, values }],
    );
    let attended = builder.rows(RowSet::Tokens, width);
    builder.attention(&AttentionOptions {
        layer,
        queries: embedded.part(0, width),
        to: attended.all(),
        scale: 1.0 / (heads.head_dim as f32).sqrt(),
        soft_cap: None,
        window: None,
        sinks: None,
    });
    let selected = builder.rows(RowSet::Selected, width);
    let operations = vec![RowOperation::Gather { from: attended.all(), to: selected.all() }];
    builder.for_each_row(RowSet::Selected, operations);
    builder.finish(selected)
}
