//! `hone serve` as clients meet it: the real binary with the built-in model.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use crate::support::served::wait_for_requests;
use crate::support::served::{Served, body_of, connect, status_of};
#[cfg(unix)]
use crate::support::terminal::Terminal;
use crate::support::{Home, embedder, smollm2, wait_until};
use serde_json::{Value, json};

/// A hub to pull from.
#[path = "../crates/models/tests/it/server.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod hub;

#[test]
fn the_built_in_model_answers_over_http() {
    let served = Served::start(&[]);
    let messages = json!([{"role": "user", "content": "In which city is the Eiffel Tower?"}]);
    let ask = json!({"messages": messages, "temperature": 0, "max_tokens": 16});
    let answer = served.post("/v1/chat/completions", &ask);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = body_of(&answer);
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 20, "{answer}");
    let schema = json!({"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "city", "schema": schema}});
    let answer = body_of(&served.post(
        "/v1/chat/completions",
        &json!({"messages": messages, "temperature": 0, "max_tokens": 40, "response_format": format}),
    ));
    let object: Value = serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(object["city"] == "Paris" || object["city"] == "Rome", "{answer}");
    let options = json!({"temperature": 0, "num_predict": 16});
    let answer =
        body_of(&served.post("/api/chat", &json!({"messages": messages, "options": options, "stream": false})));
    assert!(answer["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
    assert!(answer["eval_duration"].as_u64().unwrap() > 0, "{answer}");
}

#[test]
fn texts_become_tokens_and_conversations_prompts() {
    let served = Served::start(&[]);
    let post = |path: &str, body: Value| body_of(&served.post(path, &body));
    let text = "<|im_start|>Grüße";
    let tokens = post("/tokenize", json!({"content": text}));
    assert_eq!((&tokens["tokens"][0], &tokens["max_model_len"]), (&json!(1), &json!(8192)), "{tokens}");
    assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
    let back = post("/detokenize", json!({"tokens": tokens["tokens"]}));
    assert_eq!(back, json!({"content": text, "prompt": text}));
    let plain = post("/tokenize", json!({"prompt": text, "parse_special": false, "with_pieces": true}));
    assert_eq!(plain["tokens"][0]["piece"], "<", "{plain}");
    assert!(post("/detokenize", json!({"tokens": [999999]})).to_string().contains("not in the vocabulary of 49152"));
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let prompt = post("/apply-template", json!({"messages": messages}))["prompt"].as_str().unwrap().to_owned();
    let ask = json!({"messages": messages, "max_tokens": 1});
    let n_tokens = post("/v1/chat/completions", ask)["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(post("/tokenize", json!({"content": prompt}))["count"], n_tokens, "{prompt:?}");
    let properties = body_of(&served.request("GET", "/props", &Value::Null));
    assert_eq!(properties["default_generation_settings"]["n_ctx"], 8192, "{properties}");
    assert!(properties["chat_template"].as_str().unwrap().contains("im_start"), "{properties}");
    assert_eq!(properties["bos_token"], "<|im_start|>", "{properties}");
    let tokenizer = body_of(&served.request("GET", "/tokenizer_info", &Value::Null));
    assert_eq!(tokenizer["chat_template"], properties["chat_template"], "{tokenizer}");
}

/// The requests of lm-evaluation-harness.
#[test]
fn texts_are_scored_over_http() {
    let served = Served::start(&[]);
    let complete = |body: Value| body_of(&served.post("/v1/completions", &body));
    let text = "The capital of France is Paris";
    let tokens = body_of(&served.post("/tokenize", &json!({"content": text})))["tokens"].clone();
    let n_tokens = tokens.as_array().unwrap().len();
    let ask = json!({"prompt": [tokens, tokens], "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0});
    let scored = complete(ask);
    let [one, other] = [0, 1].map(|index| scored["choices"][index].clone());
    assert_eq!((&one["logprobs"], &one["text"]), (&other["logprobs"], &other["text"]), "{scored}");
    assert!(one["text"].as_str().unwrap().starts_with(text), "{one}");
    let of = one["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!((of.len(), &of[0], &one["logprobs"]["top_logprobs"][0]), (n_tokens + 1, &Value::Null, &Value::Null));
    assert!(of[1..].iter().all(|logprob| logprob.as_f64().unwrap() <= 0.0), "{one}");
    let paris = of[n_tokens - 1].as_f64().unwrap();
    let rome =
        complete(json!({"prompt": "The capital of France is Rome", "echo": true, "logprobs": 1, "max_tokens": 0}));
    assert_eq!(rome["choices"][0]["text"], "The capital of France is Rome", "{rome}");
    let rome = rome["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().last().unwrap().as_f64().unwrap();
    assert!(paris > rome, "{paris} {rome}");
    assert_eq!(scored["usage"]["prompt_tokens"], 2 * n_tokens, "{scored}");
    let streamed = served.post("/v1/completions", &json!({"prompt": tokens, "max_tokens": 2, "stream": true}));
    assert!(streamed.contains("text_completion") && streamed.contains("[DONE]"), "{streamed}");
    assert!(served.post("/v1/completions", &json!({"prompt": [70000]})).contains("not in the vocabulary"));
}

#[test]
fn a_model_that_knows_no_tools_is_told_of_them() {
    let served = Served::start(&[]);
    let parameters =
        json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]});
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": parameters}});
    let messages = json!([{"role": "user", "content": "What is the weather in Rome?"}]);
    let ask = json!({"messages": messages, "tools": [tool], "temperature": 0, "max_tokens": 60});
    let answer = served.post("/v1/chat/completions", &ask);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = body_of(&answer);
    if let Some(call) = answer["choices"][0]["message"]["tool_calls"].get(0) {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["city"] == "Rome" || arguments["city"] == "Oslo", "{answer}");
    }
    let prompt = body_of(&served.post("/apply-template", &ask))["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains("You can call these tools") && prompt.contains("The weather in a city"), "{prompt}");
}

#[test]
fn the_judge_of_a_server_judges_for_its_clients() {
    let quick =
        |home: Home| home.variable("HONE_JUDGE_FEEDBACK_TOKENS", "24").variable("HONE_JUDGE_GRADE_TIMEOUT", "600");
    let served = Served::start_in(quick(Home::graded_by_the_generator()), &[]);
    let query = "In which city is the Eiffel Tower?";
    let grade = body_of(&served.post("/hone/v1/grade", &json!({"query": query, "answer": "Paris."})));
    assert!((1..=5).contains(&grade["score"].as_u64().unwrap()), "{grade}");
    assert_eq!((&grade["judge"], &grade["self_graded"]), (&json!(smollm2()), &json!(true)), "{grade}");
    let verdict =
        body_of(&served.post("/hone/v1/compare", &json!({"query": query, "a": "Paris.", "b": "Rome, I think."})));
    assert!(verdict["log_odds"].is_number() && verdict.get("failure").is_none(), "{verdict}");
    // The judge that hone ships with is not installed here, and there is no fallback.
    let strict = Home::new().variable("HONE_JUDGE_FALLBACK", "none");
    let strict = Served::start_in(strict, &[]);
    let grade = body_of(&strict.post("/hone/v1/grade", &json!({"query": query, "answer": "Paris."})));
    assert!(grade["score"].is_null() && grade["failure"].as_str().unwrap().contains("not installed"), "{grade}");
}

#[test]
fn the_embedding_model_answers_over_http() {
    let served = Served::start_in(Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder()), &[]);
    let texts = ["The cat sits on the mat.", "A kitten is resting on a rug.", "Interest rates rose again."];
    let answer = body_of(&served.post("/v1/embeddings", &json!({"input": texts})));
    let vectors: Vec<Vec<f32>> =
        (0..3).map(|index| serde_json::from_value(answer["data"][index]["embedding"].clone()).unwrap()).collect();
    let cosine = |a: &[f32], b: &[f32]| std::iter::zip(a, b).map(|(a, b)| a * b).sum::<f32>();
    assert_eq!((vectors[0].len(), &answer["model"]), (384, &json!(embedder())));
    assert!((cosine(&vectors[0], &vectors[1]) - 0.641).abs() < 0.001, "two cats are alike");
    assert!(cosine(&vectors[0], &vectors[2]) < 0.1, "a cat is not like interest");
    assert_eq!(answer["usage"]["prompt_tokens"], 9 + 10 + 7, "{answer}");
    let answer = body_of(&served.post("/api/embed", &json!({"model": embedder(), "input": texts[0]})));
    assert_eq!(serde_json::from_value::<Vec<f32>>(answer["embeddings"][0].clone()).unwrap(), vectors[0]);
    let without = Served::start(&[]);
    let answer = without.post("/v1/embeddings", &json!({"input": "x"}));
    assert!(status_of(&answer) == 404 && answer.contains("hone pull all-minilm:l6-v2"), "{answer}");
}

/// A model arrives, is described, and is removed, as a client of Ollama does it.
#[test]
fn models_are_pulled_described_and_removed_over_http() {
    let hub = hub::Server::start();
    hub.publish("o/r/resolve/main/Mine.gguf", &fs::read(smollm2()).unwrap());
    let home = Home::new().variable("HONE_OFFLINE", "0").variable("HF_ENDPOINT", &hub.endpoint);
    let served = Served::start_in(home, &[]);
    let answer = served.post("/api/pull", &json!({"model": "hf:o/r/Mine.gguf"}));
    assert!(answer.contains("pulling model.gguf") && answer.contains("{\"status\":\"success\"}"), "{answer}");
    let shown = body_of(&served.post("/api/show", &json!({"model": "mine"})));
    assert_eq!(
        (&shown["details"]["family"], &shown["details"]["quantization_level"]),
        (&json!("llama"), &json!("Q4_1"))
    );
    assert_eq!(shown["details"]["parameter_size"], "134.5M");
    assert_eq!(shown["model_info"]["llama.context_length"], 8192);
    assert_eq!(shown["capabilities"], json!(["completion"]));
    assert!(shown["template"].as_str().unwrap().contains("<|im_start|>"), "{shown}");
    let asked = json!({"model": "mine", "prompt": "The capital of France is", "raw": true, "stream": false,
        "options": {"temperature": 0, "num_predict": 16}});
    let answer = body_of(&served.post("/api/generate", &asked));
    assert!(answer["response"].as_str().unwrap().contains("Paris"), "{answer}");
    let refused = served.request("DELETE", "/api/delete", &json!({"model": "mine"}));
    assert!(status_of(&refused) == 409 && refused.contains("has it in memory"), "{refused}");
    let loaded = body_of(&served.request("GET", "/api/ps", &json!({})));
    assert_eq!(loaded["models"][0]["name"], "mine");
    let refused = served.post("/api/pull", &json!({"model": smollm2()}));
    assert!(status_of(&refused) == 404 && refused.contains("neither a model of the catalog"), "{refused}");
    drop(served);
}

/// A client that goes away ends its download, and the next one continues it.
#[test]
fn a_download_without_clients_ends_and_is_resumed() {
    let hub = hub::Server::start();
    hub.publish("o/r/resolve/main/Mine.gguf", &fs::read(smollm2()).unwrap());
    hub.fail_next([hub::Fault::Slowly(20_000)]);
    let home = Home::new().variable("HONE_OFFLINE", "0").variable("HF_ENDPOINT", &hub.endpoint);
    let served = Served::start_in(home, &[]);
    let pull = json!({"model": "hf:o/r/Mine.gguf"});
    let mut lines = BufReader::new(served.connect("POST", "/api/pull", &pull));
    let mut line = String::new();
    while !line.contains("\"completed\"") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the download begins");
    }
    drop(lines);
    wait_until("the download has ended", || hub.n_broken_off() == 1);
    let answer = served.post("/api/pull", &pull);
    assert!(answer.contains("{\"status\":\"success\"}"), "{answer}");
    let resumed = hub.ranges().pop().flatten().unwrap();
    assert_ne!(resumed, "bytes=0-");
}

/// Names that try to leave the store, for `target`, which is below `folder`.
fn spellings(folder: &str, target: &str) -> Vec<String> {
    let ups =
        ["..", "../..", "../../..", "./..", "x/../..", "mine/../..", ".incoming/../..", "linked/..", "linked/../.."];
    let path = format!("{folder}/{target}");
    let mut spellings: Vec<String> = ups.iter().map(|up| format!("{up}/{target}")).collect();
    spellings.extend(ups.iter().map(|up| format!("{up}/models/../{target}")));
    spellings.extend([path.clone(), format!("/{path}"), format!("/..{path}"), format!("file://{path}")]);
    spellings.extend([format!("file:{path}"), format!("hf:{path}"), format!("hf:o/r/../../../{target}")]);
    spellings.extend([format!("hf:o/r@../{target}"), format!("http://localhost{path}"), format!("@{path}")]);
    spellings.extend([
        format!("~/{target}"),
        format!("$HOME/{target}"),
        format!("mine:{path}"),
        format!("mine@{path}"),
    ]);
    spellings.extend([format!("sha256:../{target}"), format!("sha256:{path}"), format!("blobs/sha256-../../{target}")]);
    spellings.extend([format!("mine@sha256:../../{target}"), format!("{}{target}", "../".repeat(2000))]);
    spellings
}

/// Names with a special meaning on some system, or too long for it.
fn odd_names() -> Vec<String> {
    let devices = [
        "con",
        "nul",
        "aux",
        "prn",
        "com1",
        "lpt9",
        "nul.gguf",
        "con.json",
        "CONIN$",
        "canary::$data",
        "c:",
        "c:canary",
    ];
    let paths = [
        r"\\?\c:\canary",
        r"\\localhost\c$\canary",
        r"\\.\pipe\canary",
        r"c:\canary",
        ".",
        "..",
        "...",
        "/",
        "//",
        "~",
    ];
    let texts = [
        "\0",
        "\n",
        "canary\r\nX: y",
        "\u{202e}yranac",
        "canar\u{443}",
        "canary.",
        "canary ",
        "-",
        "--help",
        "%00",
        "%2e",
    ];
    let store = [".incoming", ".incoming/mine", "models", "manifest.json", "linked/manifest.json", "blobs"];
    let digests = ["sha256:", "sha256:..", "sha256-..", "@sha256:", "mine@sha256:0", "mine@..", "sha512:canary"];
    let odd = devices.iter().chain(&paths).chain(&texts).chain(&store).chain(&digests);
    let long = ["a", "é", "../", "a/", "a:", "\u{1f9ea}"].map(|part| part.repeat(4000));
    let of_file = ["sha256:", "sha256-", ""].map(|prefix| format!("{prefix}{}", "ab".repeat(32)));
    odd.map(|name| (*name).to_owned()).chain(long).chain(of_file).collect()
}

/// Variants with other ways to write, or to hide, the separators of a path.
fn variants(spelling: &str) -> Vec<String> {
    let slashes = ["\\", "%2f", "%252F", "%5c", "%c0%af", "\u{2215}", "\u{2044}", "\u{ff0f}", "@", ":"];
    let dots = ["%2e%2e", "\u{ff0e}\u{ff0e}", "\u{2024}\u{2024}", "\u{2025}", ".\u{200b}."];
    let mut variants: Vec<String> = slashes.iter().map(|slash| spelling.replace('/', slash)).collect();
    variants.extend(dots.iter().map(|dots| spelling.replace("..", dots)));
    variants.extend(["\0", "\0.gguf", "/", ":latest", " "].map(|end| format!("{spelling}{end}")));
    variants.extend([spelling.to_owned(), format!(" {spelling}")]);
    variants
}

/// Every file below a folder with the length of its content, without the server's own files.
fn files(folder: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        match metadata.is_dir() {
            true if path.ends_with("data/memory") || path.ends_with("data/running") => {}
            true => files(&path, found),
            false => drop(found.insert(path, metadata.len())),
        }
    }
}

/// A home with files outside of the store that must not be reached, and with links in the store that lead to them.
fn home_with_canaries() -> Home {
    let home = Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder());
    let model = fs::read(smollm2()).unwrap();
    home.write("data/canary.gguf", &model[..1 << 20]);
    let manifest = json!({"name": "canary", "source": "canary-7f3a", "added": 0, "files": []}).to_string();
    home.write("data/canary/manifest.json", manifest.as_bytes());
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        fs::create_dir_all(home.path("data/models/filed")).unwrap();
        symlink(home.path("data/canary"), home.path("data/models/linked")).unwrap();
        symlink(home.path("data/canary/manifest.json"), home.path("data/models/filed/manifest.json")).unwrap();
    }
    home
}

/// No name that a client gives to a model, an answer or a conversation makes hone read, write or remove anything
/// outside of the store.
#[test]
fn names_of_models_lead_nowhere_else() {
    let home = home_with_canaries();
    let folder = home.path("data").to_str().unwrap().to_owned();
    let served = Served::start_in(home, &[]);
    let mut before = BTreeMap::new();
    files(&served.home.path(""), &mut before);
    let mut plain = ["canary", "canary.gguf", "canary/manifest.json"].map(|target| spellings(&folder, target)).concat();
    let varied: Vec<String> = plain.iter().flat_map(|spelling| variants(spelling)).collect();
    plain.extend(odd_names());
    assert!(plain.len() > 100 && varied.len() > 1000, "{} {}", plain.len(), varied.len());
    // Plain names are tried in every place, and varied ones in one place each.
    let everywhere = plain.iter().flat_map(|name| (0..N_PLACES).map(move |place| (name, place)));
    let links = ["linked", "filed"].map(str::to_owned);
    let of_links =
        links.iter().flat_map(|name| (0..PAGE.start).chain(PAGE.end..N_PLACES).map(move |place| (name, place)));
    for (name, place) in
        everywhere.chain(of_links).chain(varied.iter().enumerate().map(|(index, name)| (name, index % N_PLACES)))
    {
        let (path, answer) = answer(&served, name, place);
        let status = status_of(&answer);
        assert!((400..=501).contains(&status), "{path} {name:?}: {answer}");
        assert!(!answer.contains("canary-7f3a") && !answer.contains("GGUF"), "{path} {name:?}: {answer}");
    }
    let mut after = BTreeMap::new();
    files(&served.home.path(""), &mut after);
    assert_eq!(after, before);
    assert_eq!(status_of(&served.request("GET", "/readyz", &json!({}))), 200);
}

/// The places where a client names something in a path.
const PATHS: [(&str, &str, &str); 9] = [
    ("GET", "/v1/models/", ""),
    ("GET", "/v1/responses/", ""),
    ("DELETE", "/v1/responses/", ""),
    ("GET", "/hone/v1/memory/", ""),
    ("DELETE", "/hone/v1/memory/", ""),
    ("GET", "/hone/v1/conversations/", ""),
    ("DELETE", "/hone/v1/conversations/", ""),
    ("GET", "/hone/v1/conversations/", "/export"),
    ("GET", "/page/", ""),
];

/// The number of places where a client names something in a body.
const N_BODIES: usize = 18;

/// The places used by the page: an error of an installed model is an event of its stream.
const PAGE: Range<usize> = N_BODIES - 2..N_BODIES;

/// The number of places where a client names something.
const N_PLACES: usize = PATHS.len() + N_BODIES;

/// The response to a client that writes this name in one of the places.
fn answer(served: &Served, name: &str, place: usize) -> (String, String) {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let bodies: [(&str, &str, Value); N_BODIES] = [
        ("POST", "/api/show", json!({"model": name})),
        ("DELETE", "/api/delete", json!({"model": name})),
        ("POST", "/api/copy", json!({"source": name, "destination": name})),
        ("POST", "/api/pull", json!({"model": name, "stream": false})),
        ("POST", "/api/chat", json!({"model": name, "messages": messages})),
        ("POST", "/api/generate", json!({"model": name, "prompt": "Hi"})),
        ("POST", "/api/embed", json!({"model": name, "input": "Hi"})),
        ("POST", "/api/embeddings", json!({"model": name, "prompt": "Hi"})),
        ("POST", "/v1/embeddings", json!({"model": name, "input": "Hi"})),
        ("POST", "/v1/chat/completions", json!({"model": name, "messages": messages})),
        ("POST", "/v1/completions", json!({"model": name, "prompt": "Hi"})),
        ("POST", "/v1/responses", json!({"model": name, "input": "Hi"})),
        ("POST", "/v1/responses", json!({"input": "Hi", "previous_response_id": name})),
        ("POST", "/v1/responses/input_tokens", json!({"model": name, "input": "Hi"})),
        ("POST", "/v1/messages", json!({"model": name, "messages": messages, "max_tokens": 1})),
        ("POST", "/v1/messages/count_tokens", json!({"model": name, "messages": messages})),
        ("POST", "/hone/v1/chat", json!({"question": "Hi", "model": name})),
        ("POST", "/hone/v1/chat", json!({"question": "Hi", "compare": true, "model_b": name})),
    ];
    if let Some((method, path, body)) = bodies.get(place) {
        return ((*path).to_owned(), served.request(method, path, body));
    }
    let (method, before, after) = PATHS[place - N_BODIES];
    let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("{before}{escaped}{after}");
    let answer = served.request(method, &path, &json!({}));
    (path, answer)
}

/// The browser is a script that records the address that it is to open.
#[cfg(target_os = "linux")]
#[test]
fn the_page_opens_in_the_browser() {
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    let browser =
        home.write("bin/xdg-open", b"#!/bin/sh\nprintf %s \"$1\" > \"$0.part\" && mv \"$0.part\" \"$0.opened\"\n");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", browser.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let opened = browser.with_extension("opened");
    let served = Served::start_in(home.variable("PATH", &path), &["--open"]);
    wait_until("the page is opened", || opened.exists());
    assert!(fs::read_to_string(&opened).unwrap().ends_with(&served.address));
}

#[test]
fn other_machines_need_a_key() {
    let home = Home::new();
    let run = home.run(&["serve", "--listen", "0.0.0.0:0", "--model", &smollm2()]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("0.0.0.0:0 can be reached by other machines: add a key"), "{}", run.stderr);
    let key = home.run(&["serve", "--new-key"]);
    assert!(key.code == 0 && key.stdout.starts_with("hone-") && key.stderr.contains("key_hashes = [\""), "{key:?}");
}

/// Arguments of a question that the built-in model answers correctly.
fn asking<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let asking =
        ["chat", "In which city is the Eiffel Tower?", "--model", model, "--temperature", "0", "--max-tokens", "16"];
    [&asking, more].concat()
}

#[cfg(unix)]
#[test]
fn other_commands_use_the_engine_of_a_running_server() {
    let served = Served::start_in(Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder()), &[]);
    let (home, model) = (&served.home, smollm2());
    let check = |more: &[&str], note: &str| {
        let run = home.run(&asking(&model, more));
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stdout.contains("Paris"), "{}", run.stdout);
        assert!(run.stderr.contains(note), "{}", run.stderr);
        assert!(!note.is_empty() || !run.stderr.contains("server"), "{}", run.stderr);
    };
    let process = served.process.id();
    check(&[], &format!("the engine of the server in process {process} is used"));
    check(&["--threads", "1"], &format!("the server in process {process} has other engine settings and is not used"));
    check(&["--own-engine"], "");
    // So is its embedding model, with the same vectors.
    let borrowed = home.run(&["embed", "a text", "--verbose"]);
    assert!(borrowed.stderr.contains("the embedding model of a server is used"), "{}", borrowed.stderr);
    let mut own = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &["embed", "a text", "--verbose"]);
    let own = own.env("HONE_ENGINE_SHARED", "false").output().unwrap();
    assert_eq!(String::from_utf8(own.stdout).unwrap(), borrowed.stdout);
    assert!(!String::from_utf8(own.stderr).unwrap().contains("a server is used"));
}

/// A script stands in for the agent; `scripts/check.sh agents` runs real ones.
#[cfg(unix)]
#[test]
fn an_agent_is_started_with_the_address_of_the_server() {
    use std::os::unix::fs::PermissionsExt;

    let served = Served::start(&[]);
    let home = &served.home;
    let script = "#!/bin/sh\necho \"$ANTHROPIC_BASE_URL $ANTHROPIC_MODEL $ANTHROPIC_AUTH_TOKEN $*\"\n";
    let agent = home.write("bin/claude", script.as_bytes());
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let launch = |arguments: &[&str]| {
        let mut command = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), arguments);
        let output = command.env("PATH", home.path("bin")).env("HONE_API_KEY", "secret").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (address, model) = (&served.address, smollm2());
    let (code, said, errors) =
        launch(&["launch", "--listen", address, "--model", &model, "claude", "-p", "Hi there", "--model=x"]);
    assert_eq!(
        (code, said.as_str()),
        (0, format!("http://{address} {model} secret -p Hi there --model=x\n").as_str()),
        "{errors}"
    );
    let (code, said, _) = launch(&["launch", "--print", "codex", "exec"]);
    assert!(code == 0 && said.contains("model_provider=hone") && said.ends_with(" exec\n"), "{said}");
    let (code, said, _) = launch(&["launch"]);
    assert!(code == 0 && said.contains("bin/claude") && said.contains("no: npm install"), "{said}");
    let (code, _, errors) = launch(&["launch", "--listen", address, "qwen"]);
    assert!(code == 1 && errors.contains("`npm install -g @qwen-code/qwen-code` installs it"), "{errors}");
    assert_eq!(launch(&["launch", "nobody"]).0, 2);
}

/// systemd listens before the server is started, and hands its socket over.
#[cfg(unix)]
#[test]
fn a_socket_of_the_service_manager_is_served() {
    let (home, model) = (Home::new(), smollm2());
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let hone = env!("CARGO_BIN_EXE_hone");
    let mut command =
        home.command(Path::new("sh"), &["-c", script, "sh", hone, "serve", "--model", &model, "--no-grade"]);
    let mut process = command.stdin(std::os::fd::OwnedFd::from(socket)).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), format!("hone serves on http://{address}"));
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(format!("GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer).unwrap();
    assert!(answer.contains("200"), "{answer}");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[cfg(unix)]
#[test]
fn a_borrowed_engine_is_given_back_and_replaced() {
    let mut served = Served::start(&[]);
    let model = smollm2();
    let words = ["generate", "--model", &model, "--max-tokens", "0", "--regex", "[ab]{6000}"];
    let borrow = |home: &Home| {
        let mut child = home.command(env!("CARGO_BIN_EXE_hone").as_ref(), &words).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Letters").unwrap();
        // Its answer has begun.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    };
    let mut killed = borrow(&served.home);
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_for_requests(&served.home, 0);

    let terminal = Terminal::chat(&served.home, &["--no-grade"]);
    terminal.type_text("In which city is the Eiffel Tower?\r");
    let answers = |lines: &[String]| lines.iter().filter(|line| line.contains("Paris")).count();
    terminal.wait_for("answer", |lines| answers(lines) == 1);
    wait_for_requests(&served.home, 0);
    let left = borrow(&served.home);
    served.process.kill().unwrap();
    served.process.wait().unwrap();
    let output = left.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("has ended: ask again"), "{error}");
    terminal.type_text("In which city is the Eiffel Tower?\r");
    terminal.wait_for("note", |lines| lines.iter().any(|line| line.contains("this process loads its own model")));
    terminal.wait_for("answer", |lines| answers(lines) == 2);
}

/// Ends the server in the background, however the test ends.
#[cfg(unix)]
struct Background<'a>(&'a Home);

#[cfg(unix)]
impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.0.run(&["down"]);
    }
}

/// As when a coding agent with its long instructions is started again another day.
#[cfg(unix)]
#[test]
fn what_was_computed_is_found_again_by_the_next_server() {
    let home = Home::new();
    let model = smollm2();
    let rules: Vec<String> = (0..40).map(|n| format!("Rule {n}: mention the number {}.", n * 7 % 31)).collect();
    let messages = json!([{"role": "system", "content": rules.join("\n")}, {"role": "user", "content": "Hi"}]);
    let cached = |flags: &[&str]| {
        let started = home.run(&[&["up", "--listen", "127.0.0.1:0", "--no-grade", "--model", &model], flags].concat());
        let background = Background(&home);
        let address = started.stdout.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
        let mut answer = String::new();
        let body = json!({"messages": messages, "max_tokens": 2});
        connect(address, "POST", "/v1/chat/completions", &body).unwrap().read_to_string(&mut answer).unwrap();
        drop(background);
        body_of(&answer)["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(&[]), 0);
    assert!(cached(&[]) > 300);
}

#[cfg(unix)]
#[test]
fn a_server_in_the_background_is_started_once_and_ended() {
    let home = Home::new();
    let model = smollm2();
    let flags = ["up", "--listen", "127.0.0.1:0", "--no-grade", "--model", &model];
    assert!(home.run(&["down"]).stderr.ends_with("no hone serve is running\n"));
    let background = Background(&home);
    let started = home.run(&flags);
    assert_eq!(started.code, 0, "{}", started.stderr);
    assert!(started.stdout.starts_with("hone serves on http://127.0.0.1:"), "{}", started.stdout);
    let running = home.json(&["ps", "--json"]);
    assert_eq!((running.as_array().unwrap().len(), &running[0]["command"]), (1, &json!("serve")));
    assert!(home.run(&flags).stderr.contains("is running already"));
    assert!(home.run(&["logs", "-n", "1"]).stdout.starts_with("hone serves on"));
    let ended = home.json(&["down", "--json"]);
    assert_eq!(ended, json!([running[0]["process"]]));
    assert_eq!(home.json(&["ps", "--json"]), json!([]));
    drop(background);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let wrong = home.run(&["up", "--listen", &taken.local_addr().unwrap().to_string(), "--model", &model]);
    assert_eq!(wrong.code, 1, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("hone serve has ended at once"), "{}", wrong.stderr);
}
