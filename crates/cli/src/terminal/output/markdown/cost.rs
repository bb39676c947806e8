//! The cost of rendering Markdown while it streams, compared with printing it verbatim.

use std::time::{Duration, Instant};

use super::*;
use crate::terminal::wrap::Wrap;

/// The tokens of an answer, and their usual length in bytes.
const N_TOKENS: usize = 2000;
const TOKEN_BYTES: usize = 4;

const PAGE: Page = Page { width: 79, height: 50, styles: true };

/// An answer of that many tokens made of lines.
fn answer(line: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= N_TOKENS * TOKEN_BYTES {
            break;
        }
        text += &line(number);
    }
    text.truncate(N_TOKENS * TOKEN_BYTES);
    text
}

/// The answers whose blocks differ the most: the block in progress is rendered again with every token.
fn answers() -> [(&'static str, String); 5] {
    let sentence = "The **quick** brown fox jumps over the `lazy` dog, and then it runs *away*. ";
    [
        ("paragraphs", answer(|number| if number % 6 == 5 { "\n\n".to_owned() } else { sentence.to_owned() })),
        ("one paragraph", answer(|_| sentence.to_owned())),
        ("one list", answer(|number| format!("{}. {sentence}\n", number + 1))),
        (
            "one table",
            answer(|number| if number == 1 { "|---|---|\n" } else { "| **fox** | jumps over `dogs` |\n" }.into()),
        ),
        (
            "code",
            answer(|number| {
                if number == 0 { "```rust\n" } else { "    let fox = dog.jump(\"over\"); // lazy\n" }.into()
            }),
        ),
    ]
}

/// The time of each token, and the bytes written for all of them.
fn measure(text: &str, mut feed: impl FnMut(&str) -> String) -> (Vec<Duration>, usize) {
    let mut n_written = 0;
    let pieces = (0..N_TOKENS).map(|token| &text[token * TOKEN_BYTES..(token + 1) * TOKEN_BYTES]);
    let times = pieces.map(|piece| {
        let began = Instant::now();
        n_written += feed(piece).len();
        began.elapsed()
    });
    (times.collect(), n_written)
}

/// Prints the figures of `benches/README.md`.
#[test]
#[ignore = "it measures: cargo test --bin hone streaming_costs -- --ignored --nocapture"]
fn streaming_costs() {
    println!("an answer of {N_TOKENS} tokens, in columns of {}; microseconds per token", PAGE.width);
    println!("answer          mean  median   worst  as it is  bytes written per byte");
    for (name, text) in answers() {
        let runs = (0..5).map(|_| {
            let mut markdown = Markdown::default();
            measure(&text, |piece| markdown.feed(piece, PAGE))
        });
        let (mut times, n_written) = runs.min_by_key(|(times, _)| times.iter().sum::<Duration>()).unwrap();
        let mut wrap = Wrap::default();
        let (plain, _) = measure(&text, |piece| wrap.feed(piece, PAGE.width));
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        let mean = |times: &[Duration]| micros(times.iter().sum::<Duration>()) / times.len() as f64;
        let (rendered, plain) = (mean(&times), mean(&plain));
        times.sort();
        let (median, worst) = (micros(times[N_TOKENS / 2]), micros(times[N_TOKENS - 1]));
        let per_byte = n_written as f64 / text.len() as f64;
        println!("{name:14} {rendered:5.1}   {median:5.1}   {worst:5.0}     {plain:5.2}  {per_byte:.1}");
    }
}
