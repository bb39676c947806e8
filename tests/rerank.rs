//! `hone rerank` and `/v1/rerank` with a reward model of arbitrary weights.

use std::path::PathBuf;

use hone_engine::gguf::{Gguf, Writer};
use serde_json::{Value, json};

use crate::support::served::{Served, body_of, status_of};
use crate::support::{Home, smollm2};

/// A small decoder with a head at the end of its file, as in a reward model.
fn reward_model(home: &Home) -> PathBuf {
    let plain = home.path("plain.gguf");
    let shape = ["synth", "--shape", "tiny-qwen3", "--quant", "q8_0", "--tokenizer", &smollm2(), "--output"];
    home.run(&[&shape[..], &[plain.to_str().unwrap()]].concat());
    let source = Gguf::open(&plain).unwrap();
    let mut writer = Writer::new();
    for prefix in ["general.", "qwen3.", "tokenizer."] {
        writer.copy_metadata(&source, prefix).unwrap();
    }
    for tensor in source.tensors() {
        writer.tensor(&tensor.name, &tensor.dimensions, tensor.tensor_type).unwrap();
    }
    let width = source.unsigned("qwen3.embedding_length").unwrap().unwrap() as usize;
    let floats = source.tensor("output_norm.weight").unwrap().tensor_type;
    writer.tensor("cls.output.weight", &[width, 1], floats).unwrap();
    let path = home.path("reward.gguf");
    let mut output = writer.begin(std::fs::File::create(&path).unwrap()).unwrap();
    for tensor in source.tensors() {
        output.write(&tensor.name, source.tensor_bytes(tensor)).unwrap();
    }
    let head = (0..width).map(|index| (index as f32).sin());
    output.write("cls.output.weight", &head.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    output.finish().unwrap();
    path
}

#[test]
fn texts_are_ordered_by_their_scores() {
    let home = Home::new();
    let model = reward_model(&home);
    let model = model.to_str().unwrap();
    let lines =
        "\u{feff}\"It is blue.\"\n\n{\"text\": \"I do not know.\", \"id\": 7}\n\"Because air scatters blue light.\"\n";
    let file = home.write("texts.jsonl", lines.as_bytes());
    let asked = ["rerank", "-m", model, "-q", "Why is the sky blue?"];
    let documents = ["--documents", file.to_str().unwrap(), "--json"];
    let run = home.run(&[&asked[..], &documents].concat());
    assert!(!run.stderr.contains("not used"), "{}", run.stderr);
    let ranked: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let scores: Vec<f64> = ranked.iter().map(|text| text["score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    let known = ranked.iter().find(|text| text["index"] == 1).unwrap();
    assert_eq!((&known["id"], &known["text"]), (&json!(7), &json!("I do not know.")));
    assert_eq!(known["outputs"].as_array().unwrap().len(), 1);

    let piped = home.run_with_stdin(&[&asked[..], &["-d", "-", "-n", "1", "--json"]].concat(), lines.as_bytes());
    assert_eq!(piped.stdout.lines().collect::<Vec<_>>(), run.stdout.lines().take(1).collect::<Vec<_>>());
    let shown = home.run(&[&asked[..], &["It is blue.", "I do not know."]].concat());
    assert_eq!(shown.stdout.lines().count(), 2, "{}", shown.stdout);

    let check = |arguments: &[&str], code: i32, expected: &str| {
        let run = home.run(arguments);
        assert!(run.code == code && run.stderr.contains(expected), "{}: {}", run.code, run.stderr);
    };
    check(&["rerank", "-m", &smollm2(), "-q", "a", "b"], 1, "has no head");
    check(&["rerank", "-m", model, "-q", "a", "-d", "nowhere.jsonl"], 1, "nowhere.jsonl");
    check(&["rerank", "-m", "nothing", "-q", "a", "b"], 1, "nothing");
    check(&["chat", "-m", model, "a question"], 1, "hone rerank");
    check(&["embed", "-m", model, "a"], 1, "hone rerank");
}

#[test]
fn a_server_gives_the_same_scores() {
    let home = Home::new();
    let model = reward_model(&home);
    let pulled = home.run(&["pull", model.to_str().unwrap(), "--name", "reward:tiny"]);
    assert!(pulled.stderr.contains("`hone rerank` runs it"), "{}", pulled.stderr);
    let texts = ["It is blue.", "I do not know."];
    let asked = ["rerank", "-m", "reward:tiny", "-q", "Why?", "--json"];
    let run = home.run(&[&asked[..], &texts].concat());
    let ranked: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<Value> =
        ranked.iter().map(|text| json!({"index": text["index"], "relevance_score": text["score"]})).collect();
    let server = Served::start_in(home, &[]);
    let body = json!({"model": "reward:tiny", "query": "Why?", "documents": texts});
    let answer = server.post("/v1/rerank", &body);
    assert_eq!(status_of(&answer), 200, "{answer}");
    let answer = body_of(&answer);
    assert_eq!(answer["results"], json!(expected));
}
