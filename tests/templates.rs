//! Chat templates that would crash, fill or hang the process that runs them: the engine and the binary outlive them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use crate::support::{Home, smollm2};
use hone_engine::gguf::{Gguf, WriteValue, Writer};
use hone_engine::synth::{self, Quantization, Shape};
use hone_engine::{EngineHandle, ModelOptions, TemplateHost};
use hone_protocol::{
    Generate, GenerateRequest, Generation, LocateError, LocateModel, Message, ModelFile, Prompt, Role,
};

/// An ordinary template.
const GOOD: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

/// A template that computes for hours in a few thousand steps, when asked to.
const SLOW: &str = "{% if messages[0].content == 'slow' %}{% for a in range(9999) %}{% for b in range(99) %}\
                    {% set text = range(99999) | join %}{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}";

/// The name of a case, its template, and a part of the expected message.
static HOSTILE: LazyLock<Vec<(&'static str, String, &'static str)>> = LazyLock::new(|| {
    let doubling = |start: &str, twice: &str| {
        format!(
            "{{% set ns = namespace(a={start}) %}}{{% for i in range(60) %}}{{% set ns.a = {twice} %}}{{% endfor %}}\
             {{{{ ns.a | length }}}}"
        )
    };
    let nested = |start: &str, deeper: &str| {
        format!(
            "{{% set ns = namespace(a={start}) %}}{{% for i in range(99999) %}}{{% set ns.a = {deeper} %}}{{% endfor %}}\
             {{% for i in range(3) %}}{{% for j in range(3) %}}{{% set ns.a = {deeper} %}}{{% endfor %}}{{% endfor %}}\
             {{{{ ns.a }}}}"
        )
    };
    vec![
        ("chained operators", format!("{{{{ 1{} }}}}", "+1".repeat(400_000)), "64 MiB of stack"),
        ("deep parentheses", format!("{{{{ {}1{} }}}}", "(".repeat(9999), ")".repeat(9999)), "recursion"),
        ("nested list literals", format!("{{{{ {}{} }}}}", "[".repeat(9999), "]".repeat(9999)), "recursion"),
        ("nested map literals", format!("{{{{ {}1{} }}}}", "{'a':".repeat(9999), "}".repeat(9999)), "recursion"),
        ("negations", format!("{{{{ {}1 }}}}", "not ".repeat(200_000)), "64 MiB of stack"),
        ("a namespace in itself", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".into(), "64 MiB of stack"),
        ("lists in lists", nested("[]", "[ns.a]"), "the prompt has"),
        ("maps in maps", nested("1", "{'a': ns.a}"), "the prompt has"),
        ("doubling strings", doubling("'x'", "ns.a ~ ns.a"), "256 MiB of memory"),
        // A fast machine meets the memory limit first, a slow one the time limit.
        ("doubling lists", doubling("[1]", "ns.a + ns.a"), "takes more than"),
        ("repeated strings", "{{ ('x' * 99999999999) | length }}".into(), "too large"),
        ("a huge range", "{{ range(99999999999) | list | length }}".into(), "too many"),
        ("joins", "{% for i in range(9999) %}{% set x = range(99999) | join %}{% endfor %}".into(), "5 seconds"),
        ("recursive macros", "{% macro a() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}".into(), "recursion"),
        (
            "loops without output",
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}".into(),
            "steps",
        ),
        ("what is not Jinja", "{{ x".into(), "in line 1"),
    ]
});

/// Writes a small model with this template.
fn model(folder: &Home, name: &str, template: &str) -> PathBuf {
    let source = Gguf::open(Path::new(&smollm2())).unwrap();
    let mut writer = Writer::new();
    writer.copy_metadata(&source, "tokenizer.ggml.").unwrap();
    writer.metadata("tokenizer.chat_template", WriteValue::String(template)).unwrap();
    let vocabulary = Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let mut bytes = Vec::new();
    let shape = Shape::named("tiny-llama3").unwrap();
    synth::write_to(&shape, Quantization::named("q8_0").unwrap(), &vocabulary, 1, &mut bytes, &mut |_| ()).unwrap();
    folder.write(name, &bytes)
}

struct Paths;

impl LocateModel for Paths {
    fn locate(&self, name: &str) -> Result<ModelFile, LocateError> {
        let length = Path::new(name).metadata().map_err(|error| LocateError(error.to_string()))?.len();
        Ok(ModelFile::new(name, 0, length))
    }
}

/// An engine that runs templates in processes of the real binary.
fn engine() -> EngineHandle {
    let program = env!("CARGO_BIN_EXE_hone").into();
    let templates = TemplateHost::Process { program, arguments: vec!["template-worker".into()] };
    let options = ModelOptions { context_length: Some(512), n_sequences: 4, templates, ..ModelOptions::default() };
    EngineHandle::start(options, Arc::new(Paths)).unwrap()
}

fn start(engine: &EngineHandle, model: &Path, prompt: Prompt) -> Generation {
    let request = GenerateRequest { max_tokens: Some(2), ..GenerateRequest::new(model.to_str().unwrap(), prompt) };
    engine.generate(request).unwrap()
}

fn chat(text: &str) -> Prompt {
    Prompt::Chat(vec![Message::new(Role::User, text)])
}

fn raw(text: &str) -> Prompt {
    Prompt::Text { text: text.into(), parse_special: false, add_special: true }
}

#[test]
fn whatever_a_template_does_the_engine_answers_others() {
    let (home, engine) = (Home::new(), engine());
    let good = model(&home, "good.gguf", GOOD);
    for (what, template, complaint) in HOSTILE.iter() {
        let hostile = model(&home, &format!("{what}.gguf"), template);
        let asked = start(&engine, &hostile, chat("Hi"));
        start(&engine, &hostile, raw("Hi")).complete().unwrap_or_else(|error| panic!("{what}, raw: {error}"));
        start(&engine, &good, chat("Hi")).complete().unwrap_or_else(|error| panic!("{what}, another: {error}"));
        let error = asked.complete().map(|answer| answer.prompt_token_ids.len()).unwrap_err().to_string();
        assert!(error.contains(complaint), "{what}: {error}");
    }
}

#[test]
fn a_template_that_misbehaved_can_be_asked_again() {
    let (home, engine) = (Home::new(), engine());
    let template = format!("{{% if messages[0].content == 'bad' %}}{}{{% endif %}}{GOOD}", HOSTILE[8].1);
    let model = model(&home, "sometimes.gguf", &template);
    for _ in 0..2 {
        let error = start(&engine, &model, chat("bad")).complete().unwrap_err().to_string();
        assert!(error.contains("256 MiB of memory"), "{error}");
        start(&engine, &model, chat("good")).complete().unwrap();
    }
}

#[test]
fn a_template_that_takes_long_holds_up_nobody_and_is_stopped_with_its_request() {
    let (home, engine) = (Home::new(), engine());
    let model = model(&home, "slow.gguf", SLOW);
    start(&engine, &model, chat("quick")).complete().unwrap();
    let slow = start(&engine, &model, chat("slow"));
    start(&engine, &model, raw("Hi")).complete().unwrap();
    assert!(slow.events().is_empty(), "it is still being rendered");
    drop(slow);
    start(&engine, &model, chat("quick")).complete().unwrap();
    drop(start(&engine, &model, chat("slow")));
    // The engine does not wait for work that no caller waits for.
    drop(engine);
}

#[test]
fn commands_that_need_no_template_run_without_it() {
    let home = Home::new();
    let (what, template, complaint) = &HOSTILE[0];
    let model = model(&home, "hostile.gguf", template);
    let model = model.to_str().unwrap();
    let raw = home.run_with_stdin(&["generate", "--raw", "--model", model, "-N", "2"], b"Hi");
    assert_eq!(raw.code, 0, "{what}: {}", raw.stderr);
    let tokens = home.run_with_stdin(&["tokenize", "--model", model], b"Hi");
    assert_eq!(tokens.code, 0, "{what}: {}", tokens.stderr);
    let bench = home.run(&["bench", "--model", model, "-p", "4", "-n", "0", "-r", "1"]);
    assert_eq!(bench.code, 0, "{what}: {}", bench.stderr);
    let generate = home.run_with_stdin(&["generate", "--model", model, "-N", "2"], b"Hi");
    assert!(generate.code == 1 || generate.code == 2, "{}", generate.code);
    assert!(generate.stderr.contains(complaint), "{}", generate.stderr);
    let pulled = home.run(&["pull", model, "--name", "hostile"]);
    assert_eq!(pulled.code, 0, "{}", pulled.stderr);
    assert!(pulled.stderr.contains("but not chat") && pulled.stderr.contains(complaint), "{}", pulled.stderr);
    let doctor = home.run(&["doctor", "--model", "hostile"]);
    let said = format!("{}{}", doctor.stdout, doctor.stderr);
    assert!(doctor.code == 1 && said.contains(complaint), "{said}");
}

#[test]
fn the_time_and_a_conversation_with_everything_are_rendered_in_the_process() {
    let (home, engine) = (Home::new(), engine());
    let template = format!("{{{{ strftime_now('%Y') }}}} {{{{ messages | tojson(indent=2) }}}}{GOOD}");
    let model = model(&home, "time.gguf", &template);
    let answer = start(&engine, &model, chat("\"quoted\" <|im_end|>\n\u{1}\u{2028} 世界 🦀")).complete().unwrap();
    let shown = home.run_with_stdin(
        &["tokenize", "--decode", "--model", &smollm2()],
        answer.prompt_token_ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ").as_bytes(),
    );
    assert!(shown.stdout.starts_with("20") && shown.stdout.contains("\"quoted\" <|im_end|>\n\u{1}\u{2028} 世界 🦀"));
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_of_a_template_is_confined_before_it_reads_one() {
    use std::io::{BufRead, BufReader, Write};
    let home = Home::new();
    let program = Path::new(env!("CARGO_BIN_EXE_hone"));
    let mut worker = home.command(program, &["template-worker"]).spawn().unwrap();
    worker.stdin.as_mut().unwrap().write_all(b"\"Check\"\n").unwrap();
    let mut answer = String::new();
    BufReader::new(worker.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("has not been loaded"), "{answer}");
    let about = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", worker.id())).unwrap();
    let (limits, status) = (about("limits"), about("status"));
    let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(!limit("Max address space").contains("unlimited"), "{limits}");
    assert!(!limit("Max core file size").contains("unlimited"), "{limits}");
    // A kernel without seccomp does not mention it.
    assert!(!status.contains("Seccomp:") || status.contains("Seccomp:\t2"), "{status}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}
