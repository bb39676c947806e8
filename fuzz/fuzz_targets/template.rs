//! Gives any template and any conversation to the code that runs in a template's process:
//! `cargo +nightly fuzz run template -- -rss_limit_mb=512 -timeout=5`.
//!
//! Memory, time and stack are limited from outside that process, here by libFuzzer. Findings beyond those limits are a
//! panic, or an answer that is not a line of JSON. Sources are short, so that deep nesting is left to the limits' own
//! tests.
#![no_main]

use hone_engine::template_worker;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const LONGEST_SOURCE: usize = 2048;

fuzz_target!(|input: (&str, &str, &str)| {
    let (source, content, frame) = input;
    if source.len() > LONGEST_SOURCE {
        return;
    }
    let load = json!({"Load": {"text": source, "bos": "<s>", "eos": "</s>"}});
    let tool = json!({"name": content, "description": content, "parameters": {content: [content]}});
    let messages = json!([{"role": "system", "content": content}, {"role": "user", "content": content}]);
    let render = json!({"Render": {"messages": messages, "tools": [tool]}});
    let frame = frame.replace('\n', " ");
    let mut answers = Vec::new();
    let requests = format!("{load}\n{render}\n{frame}\n{render}\n");
    template_worker::run(requests.as_bytes(), &mut answers).expect("memory takes and gives every byte");
    let answers: Vec<Value> = answers
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| serde_json::from_slice(line).expect("an answer is a line of JSON"))
        .collect();
    assert_eq!(answers.len(), 4, "every request has one answer");
});
