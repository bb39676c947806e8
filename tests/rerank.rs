//! `hone rerank` and `/v1/rerank` with a reward model of arbitrary weights.

use std::path::PathBuf;
use std::sync::Arc;

use hone_app::config::Config;
use hone_app::judge::marks::{JudgeSetup, MarksStore};
use hone_app::{App, Silent, judge};
use hone_engine::gguf::{Gguf, Writer};
use hone_judging::{Marks, QuestionGrades};
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
fn a_reward_model_judges_by_its_scores_once_it_has_passed() {
    let home = Home::new();
    let file = reward_model(&home);
    let pulled = home.run(&["pull", file.to_str().unwrap(), "--name", "reward"]);
    assert!(pulled.code == 0 && pulled.stderr.contains("`hone judge exam` examines it"), "{}", pulled.stderr);
    let (question, right, wrong) = ("Why is the sky blue?", "Air scatters blue light.", "It is not.");
    let score = |text: &str| -> f32 {
        let ranked = home.run(&["rerank", "-m", "reward", "-q", question, "--json", text]).stdout;
        serde_json::from_str::<Value>(&ranked).unwrap()["score"].as_f64().unwrap() as f32
    };
    let (of_right, of_wrong) = (score(right), score(wrong));
    let ask = |command: &[&str]| {
        let run = home.run(&[command, &["--query", question, "--judge", "reward", "--json"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str::<Value>(&run.stdout).unwrap()
    };
    let grade = ask(&["grade", "--answer", right]);
    let reward: f32 = grade["raw_score"].as_str().unwrap().parse().unwrap();
    assert!((reward - of_right).abs() < 1e-3, "{grade}");
    assert_eq!(
        (&grade["method"], &grade["score"], &grade["probability"]),
        (&json!("reward"), &json!(null), &json!(null))
    );
    assert!(
        grade["feedback"].as_str().unwrap().contains("`hone judge exam reward` finds out what that means"),
        "{grade}"
    );
    let preference = ask(&["compare", "--a", right, "--b", wrong]);
    let log_odds = preference["log_odds"].as_f64().unwrap() as f32;
    assert!((log_odds - (of_right - of_wrong)).abs() < 2e-3, "{preference}");

    // Arbitrary weights know nothing; afterwards it is known what the rewards mean.
    let examined = home.run(&["judge", "exam", "reward"]).stdout;
    assert!(examined.contains("questions          60") && examined.contains("not passed"), "{examined}");
    let grade = ask(&["grade", "--answer", right]);
    assert!((0.2..0.8).contains(&grade["probability"].as_f64().unwrap()), "{grade}");
    assert_eq!(grade["likely"], json!(null));
    let asked = home.run(&["chat", "What is it?", "-m", "reward"]);
    assert!(asked.stderr.contains("ends in a head that scores texts, and does not answer"), "{}", asked.stderr);
    let jury = home.run(&["grade", "--query", "a", "--answer", "b", "--judge", "reward", "--judge", "smollm2:135m"]);
    assert!(jury.stderr.contains("a reward model, which gives no score from 1 to 5"), "{}", jury.stderr);
}

/// Gives a model the marks of one that tells every good answer from every bad one.
fn pass(home: &Home, model: &str) {
    let app = App::in_folder(Config::defaults().unwrap(), home.path("data"), Arc::new(Silent)).unwrap();
    let knowing = QuestionGrades { good: 5.0, mediocre: 0.0, bad: -5.0, is_manipulative: false };
    let marks = Marks::of_rewards(&[knowing; 60], &[0.1]);
    let profile = judge::profile(&app.config, app.store.catalog(), model).unwrap();
    let settings = judge::settings(&app.config, profile);
    let setup = JudgeSetup { model, settings: &settings, profile, rubric: &app.rubric().unwrap() };
    MarksStore::new(&home.path("data")).keep(&app.store, &setup, &marks).unwrap();
}

#[test]
fn an_installed_judge_that_has_passed_grades_without_being_chosen() {
    let home = Home::new();
    let file = reward_model(&home);
    home.run(&["pull", file.to_str().unwrap(), "--name", "reward"]);
    // The likelihood judge needs it.
    home.run(&["pull", &smollm2(), "--name", "smollm2:135m"]);
    let graded = || {
        let run = home.run(&["grade", "--query", "Is it so?", "--answer", "It is.", "--json"]);
        serde_json::from_str::<Value>(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr))
    };
    assert_ne!(graded()["judge"], "reward", "it has not been examined");
    pass(&home, "reward");
    let grade = graded();
    assert_eq!((&grade["judge"], &grade["method"]), (&json!("reward"), &json!("reward")));
    assert!(grade["probability"].is_f64(), "{grade}");
    let doctor = home.run(&["doctor"]).stdout;
    assert!(doctor.contains("reward (profile plain; a grade takes 0.1 s here)"), "{doctor}");
    // A choice counts.
    let home = home.variable("HONE_JUDGE_MODEL", "prometheus:7b");
    let chosen = home.run(&["grade", "--query", "Is it so?", "--answer", "It is.", "--json"]).stdout;
    assert!(!chosen.contains("\"judge\":\"reward\""), "{chosen}");
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
    let listed = home.json(&["list", "--json"]);
    let role =
        listed.as_array().unwrap().iter().find(|model| model["name"] == "reward:tiny").map(|model| &model["role"]);
    assert_eq!(role, Some(&json!("judge")), "{listed}");
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

    // The catalog does not know it; its file says that it does not answer.
    let question = json!({"model": "reward:tiny", "messages": [{"role": "user", "content": "Why?"}]});
    let refused = server.post("/v1/chat/completions", &question);
    assert!(refused.contains("scores texts and does not answer: send it to /v1/rerank"), "{refused}");
}
