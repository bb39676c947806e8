//! The commands that run a model, as scripts use them: the real binary with the built-in model.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Home, smollm2, wait_for};
use serde_json::{Value, json};

/// Runs a command over the built-in model and returns its output.
#[track_caller]
fn run(arguments: &[&str], stdin: &str) -> String {
    let model = smollm2();
    let arguments = [arguments, &["--model", &model]].concat();
    let run = Home::new().run_with_stdin(&arguments, stdin.as_bytes());
    assert_eq!(run.code, 0, "hone {arguments:?}: {}", run.stderr);
    run.stdout
}

#[track_caller]
fn json(arguments: &[&str], stdin: &str) -> Value {
    serde_json::from_str(&run(&[arguments, &["--json"]].concat(), stdin)).unwrap()
}

#[test]
fn generate_reports_the_whole_answer_as_json() {
    let answer = json(
        &["generate", "--raw", "--temperature", "0", "--max-tokens", "3", "--logprobs", "2"],
        "The capital of France is",
    );
    assert_eq!(answer["text"], " Paris.\n");
    assert_eq!(answer["finish_reason"], "length");
    assert_eq!(answer["token_ids"].as_array().unwrap().len(), 3);
    assert_eq!(answer["prompt_token_ids"], json(&["tokenize"], "The capital of France is"));
    let rows = answer["logprobs"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["id"], answer["token_ids"][0]);
    assert_eq!(
        rows[0]["top"][0],
        serde_json::json!({"id": rows[0]["id"], "logprob": rows[0]["logprob"], "text": " Paris"})
    );
    let timings = &answer["timings"];
    for figure in
        ["prompt_tokens", "prompt_seconds", "prompt_tokens_per_second", "generation_tokens", "generation_seconds"]
    {
        assert!(timings[figure].as_f64().unwrap() > 0.0, "{figure} in {timings}");
    }
}

#[test]
fn generate_prints_log_probabilities_as_a_table() {
    let arguments = ["generate", "--raw", "--temperature", "0", "--max-tokens", "2", "--logprobs", "1"];
    let table = run(&arguments, "The capital of France is");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TOKEN", "LOGPROB", "LIKELIEST"], "{table}");
    assert_eq!(rows.len(), 3, "{table}");
    // A greedy token is the likeliest.
    assert_eq!(rows[1][..2], ["\"", "Paris\""], "{table}");
    assert_eq!(rows[1][2], rows[1][5], "{table}");
    assert!(rows[1][2].parse::<f64>().unwrap() < 0.0, "{table}");
}

#[test]
fn a_text_that_is_cut_before_it_meets_its_constraint_is_a_failure() {
    let letters = ["generate", "--model", &smollm2(), "--temperature", "0", "--regex", "[a-z]{40}"];
    let cut = Home::new().run_with_stdin(&[&letters[..], &["--max-tokens", "2"]].concat(), b"Letters");
    assert_eq!(cut.code, 1, "{}", cut.stderr);
    let complaint = "the text was cut after 2 tokens, before it met the constraint: --max-tokens allows more";
    assert!(cut.stderr.contains(complaint), "{}", cut.stderr);
    let whole = run(&["generate", "--temperature", "0", "--regex", "[a-z]{4}", "--max-tokens", "9"], "Letters");
    assert_eq!(whole.trim_end().len(), 4, "{whole}");
}

/// The question to the model, from the output of `chat --json`.
fn asked(home: &Home, arguments: &[&str], stdin: &[u8]) -> String {
    let options = ["chat", "--model", &smollm2(), "--temperature", "0", "--max-tokens", "2", "--json"];
    let run = home.run_with_stdin(&[&options[..], arguments].concat(), stdin);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str::<Value>(&run.stdout).unwrap()["question"].as_str().unwrap().to_owned()
}

#[test]
fn piped_text_and_files_go_with_a_question() {
    let home = Home::new();
    let notes = home.write("notes.txt", b"Tides follow the moon.\n");
    let (notes, folder) = (notes.to_str().unwrap(), home.path(""));
    let folder = folder.to_str().unwrap();
    let piped = asked(&home, &["Summarise."], b"Water is wet.\n");
    assert_eq!(piped, "File: stdin\n```\nWater is wet.\n```\n\nSummarise.");
    // The path of the home is printed as ~.
    let file = "File: ~/notes.txt\n```\nTides follow the moon.\n```\n\n";
    assert_eq!(asked(&home, &["Why?", "-f", notes], b""), format!("{file}Why?"));
    assert_eq!(asked(&home, &["-f", &format!("{folder}/n*.txt")], b"Why?"), format!("{file}Why?"));
    let both = asked(&home, &["Why?", "-f", "-", "-f", notes], b"Water is wet.");
    assert_eq!(both, format!("File: stdin\n```\nWater is wet.\n```\n\n{file}Why?"));
    let pdf = home.write("mill.pdf", include_bytes!("data/mill.pdf"));
    let pages = "The mill was built in 1792.\n\nIt burned down in 1871.";
    let asked = asked(&home, &["Why?", "-f", pdf.to_str().unwrap()], b"");
    assert_eq!(asked, format!("File: ~/mill.pdf\n```\n{pages}\n```\n\nWhy?"));
}

#[test]
fn what_cannot_go_with_a_question_is_named() {
    let home = Home::new();
    let photo = home.write("photo.png", b"\x89PNG\r\n\0");
    let refused = |arguments: &[&str], stdin: &[u8], code: i32, complaint: &str| {
        check_failure(&[&["chat", "--model", &smollm2()], arguments].concat(), stdin, code, complaint);
    };
    let photo = photo.to_str().unwrap();
    refused(&["Why?", "-f", photo], b"", 1, "photo.png is a binary file: only texts and PDFs can go with a question");
    let cut = home.write("cut.pdf", b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog");
    refused(&["Why?", "-f", cut.to_str().unwrap()], b"", 1, "cut.pdf is not a PDF that can be read");
    refused(&["Why?"], b"\xff\xfe", 1, "stdin is not UTF-8: only texts and PDFs can go with a question");
    refused(&["Why?", "-f", "no-such-file"], b"", 1, "cannot read no-such-file");
    refused(&["Why?", "-f", "no-such-*"], b"", 1, "no file matches \"no-such-*\"");
    refused(&["-f", "-"], b"text", 2, "-f - takes stdin as a file: give the question as argument");
    let long = "word ".repeat(5000);
    refused(&["Why?", "--context", "256"], long.as_bytes(), 1, "tokens and the context holds 256: shorten it");
}

#[test]
fn generate_prints_nothing_but_the_text() {
    let text = run(&["generate", "--raw", "--temperature", "0", "--max-tokens", "3"], "The capital of France is");
    assert_eq!(text, " Paris.\n");
}

#[test]
fn generate_prints_the_text_as_it_comes() {
    let (home, model) = (Home::new(), smollm2());
    let arguments = ["generate", "--raw", "--model", &model, "--regex", "(yes ){2000}"];
    let mut child = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &arguments).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Is fire hot?").unwrap();
    let (mut first, mut stdout) = ([0], child.stdout.take().unwrap());
    stdout.read_exact(&mut first).unwrap();
    // Thousands of tokens remain to be computed. A process that had waited for them would no longer be running.
    let running = home.json(&["ps", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((first, &running[0]["lanes"][0]["running"]), (*b"y", &1.into()), "{running:#}");
}

#[test]
fn generate_says_that_the_context_cut_the_answer() {
    let model = smollm2();
    let arguments = ["generate", "--raw", "--model", &model, "--context", "16", "--regex", "(yes ){100}"];
    let full = Home::new().run_with_stdin(&arguments, b"Is fire hot?");
    assert_eq!(full.code, 1, "{}", full.stderr);
    assert!(full.stderr.contains("the context is full"), "{}", full.stderr);
    let free = &arguments[..arguments.len() - 2];
    let full = Home::new().run_with_stdin(free, b"Once upon a time, in a land far away, there");
    assert_eq!(full.code, 0, "{}", full.stderr);
    assert!(full.stderr.contains("the context is full"), "{}", full.stderr);
    let asked_for = Home::new().run_with_stdin(&[free, &["--max-tokens", "2"]].concat(), b"Is fire hot?");
    assert!(!asked_for.stderr.contains("cut"), "{}", asked_for.stderr);
}

#[test]
fn generate_holds_to_a_form() {
    let number = run(&["generate", "--regex", "[0-9]{3}"], "What is 12 times 12?");
    assert!(number.len() == 3 && number.parse::<u32>().is_ok(), "{number:?}");
    let choice = run(&["generate", "--choice", "yes,no"], "Is fire hot?");
    assert!(["yes", "no"].contains(&choice.as_str()), "{choice:?}");
}

#[test]
fn chat_answers_a_question_on_the_command_line_and_on_stdin() {
    let question = "What is the boiling point of water at sea level?";
    let argument = run(&["chat", question, "--temperature", "0", "--max-tokens", "24"], "");
    let stdin = run(&["chat", "--temperature", "0", "--max-tokens", "24"], question);
    assert!(argument.contains("100 degrees Celsius"), "{argument:?}");
    assert_eq!(argument, stdin);
    let answer = json(&["chat", question, "--temperature", "0", "--max-tokens", "24"], "");
    assert_eq!(answer["answer"], argument.trim_end());
    assert_eq!((&answer["question"], &answer["finish_reason"]), (&question.into(), &"length".into()));
}

#[test]
fn tokenize_goes_both_ways() {
    let text = "Grüße, 世界! <|im_end|>\n";
    let ids = run(&["tokenize"], text);
    assert_eq!(run(&["tokenize", "--decode"], &ids), text);
    let plain = json(&["tokenize"], "<|im_end|>");
    let special = json(&["tokenize", "--parse-special"], "<|im_end|>");
    assert!(plain.as_array().unwrap().len() > 1);
    assert_eq!(special, serde_json::json!([2]));
}

#[test]
fn perplexity_ends_with_its_figure() {
    let home = Home::new();
    let text = home.write("text", "It was the best of times, it was the worst of times. ".repeat(30).as_bytes());
    let arguments = ["perplexity", "--file", text.to_str().unwrap(), "--context", "128"];
    let printed = run(&arguments, "");
    let last = printed.lines().last().unwrap();
    let value: f64 = last.strip_prefix("perplexity = ").unwrap().parse().unwrap();
    assert!(value > 1.0 && value < 4.0, "a text that repeats itself is easy: {value}");
    let as_json = json(&arguments, "");
    assert!((as_json["perplexity"].as_f64().unwrap() - value).abs() < 1e-3);
}

#[test]
fn bench_leaves_out_what_is_not_wanted() {
    let rows = json(&["bench", "-p", "8", "-n", "0", "-r", "3", "--threads", "1"], "");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["test"], &rows[0]["threads"]), (&"pp8".into(), &1.into()));
    assert_eq!(rows[0]["samples"].as_array().unwrap().len(), 3);
    let speeds = &rows[0]["tokens_per_second"];
    let figure = |name: &str| speeds[name].as_f64().unwrap();
    assert!(figure("min") <= figure("median") && figure("median") <= figure("max") && figure("min") > 0.0);
}

#[test]
fn bench_measures_at_depth_and_side_by_side() {
    let arguments = ["bench", "-p", "0", "-n", "4", "-r", "2", "--depth", "40", "--batch", "3", "--threads", "1"];
    let rows = json(&arguments, "");
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["test"]), (1, &"tg4 @ d40 x3".into()));
    assert_eq!((&rows[0]["depth"], &rows[0]["batch"]), (&40.into(), &3.into()));
    let home = Home::new();
    let too_deep = home.run(&["bench", "--model", &smollm2(), "-n", "4", "--depth", "9000"]);
    assert!(too_deep.code == 2 && too_deep.stderr.contains("holds 8192 tokens"), "{}", too_deep.stderr);
}

#[test]
fn a_sweep_leaves_a_dated_table() {
    let home = Home::new();
    let sweep = format!(
        "models = [{:?}]\nthreads = [1, 2]\nrepetitions = 2\n[[test]]\nprompt_tokens = 8\n[[test]]\ngeneration_tokens = 2\n",
        smollm2()
    );
    let file = home.write("quick.toml", sweep.as_bytes());
    let results = home.path("results");
    std::fs::create_dir(&results).unwrap();
    let run = home.run(&["bench", "--sweep", file.to_str().unwrap(), "--output", results.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let written: Vec<_> = std::fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [table] = written.as_slice() else { panic!("{written:?}") };
    assert!(table.to_str().unwrap().ends_with("-quick.csv"), "{table:?}");
    let table = std::fs::read_to_string(table).unwrap();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.starts_with("date,processor,model,test,"), "{table}");
    assert_eq!(table.matches(",pp8,0,1,native,cpu,2,2,").count(), 1, "{table}");
}

#[test]
fn bench_measures_a_chat_beside_a_judge() {
    let (home, model) = (Home::new(), smollm2());
    let models = ["bench", "contention", "--generator", &model, "--judge", &model];
    let report = home.json(&[&models[..], &["--requests", "2", "--gradings", "1", "--json"]].concat());
    for state in ["alone", "while_grading"] {
        for time in ["time_to_first_token_ms", "time_between_tokens_ms"] {
            let figures = ["p50", "p95", "p99"].map(|quantile| report[state][time][quantile].as_f64().unwrap());
            assert!(figures.is_sorted() && figures[0] > 0.0, "{report:#}");
        }
    }
    assert!(report["judge"]["tokens_per_second"]["beside"].as_f64().unwrap() > 0.0, "{report:#}");
    assert!(report["throughput"]["ratio"].as_f64().unwrap() > 0.0, "{report:#}");
    let nothing = home.run(&[&models[..], &["--requests", "0"]].concat());
    assert!(nothing.code == 2 && nothing.stderr.contains("--requests"), "{}", nothing.stderr);
}

#[test]
fn bench_measures_what_prompts_have_in_common() {
    let home = Home::new();
    let model = home.path("tiny.gguf").display().to_string();
    home.run(&["synth", "--shape", "tiny-llama3", "--context", "4096", "--tokenizer", &smollm2(), "--output", &model]);
    let report = home.json(&["bench", "sharing", "--generator", &model, "--candidates", "2", "-r", "1", "--json"]);
    for case in ["second_turn", "respondent_b", "both_orders", "candidates"] {
        for seconds in ["base_seconds", "seconds"] {
            assert!(report[case][seconds]["median"].as_f64().unwrap() > 0.0, "{report:#}");
        }
        assert!(report[case]["ratio"].as_f64().unwrap() > 0.0, "{report:#}");
    }
    for nothing in [["-r", "0"], ["--candidates", "0"]] {
        let run = home.run(&[&["bench", "sharing"], &nothing[..]].concat());
        assert!(run.code == 2 && run.stderr.contains(&nothing.join(" ")), "{}", run.stderr);
    }
}

#[test]
fn running_hones_are_seen_while_they_run() {
    let home = Home::new();
    assert!(home.run(&["ps"]).stderr.contains("hone is not running"));
    let program = Path::new(env!("CARGO_BIN_EXE_hone"));
    let arguments = ["--verbose", "generate", "--model", &smollm2(), "--raw", "--temperature", "0", "-N", "8000"];
    let mut running = home.command(program, &arguments).spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"1 2 3 4 5 6 7 8 9 10 11 12").unwrap();
    let seen = wait_for("it answers", || {
        Some(home.json(&["ps", "--json"])).filter(|seen| seen[0]["lanes"][0]["running"] == 1)
    });
    assert_eq!((&seen[0]["process"], &seen[0]["command"]), (&running.id().into(), &"generate".into()));
    assert_eq!(
        (&seen[0]["lanes"][0]["arrived"], &seen[0]["models"][0]["state"]),
        (&1.into(), &"ready".into()),
        "{seen:#}"
    );
    let shown = home.run(&["ps"]).stdout;
    assert!(shown.contains("hone generate") && shown.contains("interactive"), "{shown}");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(home.json(&["ps", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn models_that_are_too_large_for_the_memory_limit_are_refused_with_the_sums() {
    let home = Home::new();
    let arguments = ["generate", "--model", &smollm2(), "--memory-limit", "50MB", "-N", "1"];
    let run = home.run_with_stdin(&arguments, b"Hi");
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("weights 94 MiB") && run.stderr.contains("--memory-limit"), "{}", run.stderr);
    let typo = home.run(&["generate", "--memory-limit", "lots"]);
    assert!(typo.code == 2 && typo.stderr.contains("is not a size"), "{}", typo.stderr);
}

#[test]
fn a_synthesized_model_can_be_run() {
    let home = Home::new();
    let file = home.path("tiny.gguf");
    let (file, model) = (file.to_str().unwrap(), smollm2());
    let synth = ["synth", "--shape", "tiny-qwen35", "--quant", "q8_0", "--tokenizer", &model, "--output", file];
    let written = home.json(&[&synth[..], &["--json"]].concat());
    assert_eq!(written["size"].as_u64().unwrap(), std::fs::metadata(file).unwrap().len());
    assert!(written["parameters"].as_u64().unwrap() > 0, "{written}");
    let shown = home.run(&["show", file]);
    assert!(shown.stdout.contains("predicts further tokens"), "{}", shown.stdout);
    let generate = ["generate", "--raw", "--model", file, "--max-tokens", "4", "--temperature", "0"];
    let answer = home.run_with_stdin(&generate, b"Hello");
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let without_head = home.run_with_stdin(&[&generate[..], &["--speculation", "off"]].concat(), b"Hello");
    assert_eq!((without_head.code, without_head.stdout), (0, answer.stdout));
}

#[track_caller]
fn check_failure(arguments: &[&str], stdin: &[u8], code: i32, complaint: &str) {
    let run = Home::new().run_with_stdin(arguments, stdin);
    assert!(run.stderr.contains(complaint), "hone {arguments:?} said {}", run.stderr);
    assert_eq!((run.code, run.stdout.as_str()), (code, ""), "hone {arguments:?}: {}", run.stderr);
}

#[test]
fn what_cannot_be_run_is_told_by_name() {
    let home = Home::new();
    let whole = std::fs::read(smollm2()).unwrap();
    let model = smollm2();
    let cut = home.write("cut.gguf", &whole[..3_000_000]);
    let cut = cut.to_str().unwrap();
    let text = home.write("text", b"too short");
    let text = text.to_str().unwrap();
    check_failure(&["generate", "--model", cut], b"Hi", 1, "it is cut off or damaged");
    check_failure(&["generate", "--model", &model, "--device", "warp"], b"Hi", 2, "unknown device \"warp\"");
    check_failure(&["generate", "--model", &model, "--backend", "warp"], b"Hi", 2, "unknown backend \"warp\"");
    check_failure(&["generate", "--model", &model], b"\xff", 2, "stdin is not UTF-8");
    check_failure(
        &["generate", "--model", &model, "--schema", "/nowhere"],
        b"Hi",
        1,
        "cannot read the schema /nowhere",
    );
    check_failure(&["generate", "--model", &model, "--regex", "("], b"Hi", 2, "regular expression");
    check_failure(&["generate", "--model", &model, "--logit-bias", "99999=1"], b"Hi", 2, "vocabulary");
    check_failure(&["generate", "--model", &model, "--context", "8"], b"Hi", 1, "the context holds 8");
    check_failure(&["perplexity", "--model", &model, "--file", text], b"", 1, "one chunk needs 512");
    let no_context = ["perplexity", "--model", cut, "--file", text, "--context", "0"];
    check_failure(&no_context, b"", 2, "--context is 0, expected 4 or more");
    check_failure(&["bench", "--model", &model, "-p", "0", "-n", "0"], b"", 2, "leave nothing to measure");
    check_failure(&["bench", "--model", &model, "--batch", "0"], b"", 2, "leaves nothing to measure");
    check_failure(
        &["bench", "--model", &model, "--sweep", "nowhere.toml"],
        b"",
        1,
        "cannot read the sweep nowhere.toml",
    );
    check_failure(&["tokenize", "--model", &model, "--decode"], b"one", 2, "\"one\" is not a token id");
    let nowhere = ["synth", "--shape", "tiny-llama", "--tokenizer", &model, "--output", "/no/such/folder/x"];
    check_failure(&nowhere, b"", 1, "cannot write /no/such/folder/x: No such file or directory\n");
    check_failure(&["synth", "--shape", "round", "--output", "x"], b"", 2, "no shape \"round\"");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_was_not_built_in_is_told_with_how_to_get_it() {
    check_failure(&["generate", "--model", &smollm2(), "--device", "cuda"], b"Hi", 1, "--features cuda");
}

/// The whole product in one file: nothing installed, no home, no network, no other program.
#[test]
fn a_bundle_answers_alone() {
    let home = Home::new();
    let bundle = home.path("alone/hone");
    std::fs::create_dir(home.path("alone")).unwrap();
    let made = home.run(&["bundle", "--model", &smollm2(), "--output", bundle.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let output = Command::new(&bundle)
        .args(["chat", "What is the boiling point of water at sea level?", "--temperature", "0", "--max-tokens", "24"])
        .env_clear()
        .env("HOME", home.path("alone"))
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .current_dir(home.path("alone"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (answer, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaints}");
    assert!(answer.contains("100 degrees Celsius"), "{answer:?}");
}

#[test]
fn texts_are_scored_after_their_prefixes() {
    let home = Home::new();
    let model = smollm2();
    let scores = |lines: &str| -> Vec<Value> {
        let run = home.run_with_stdin(&["generate", "--model", &model, "--score"], lines.as_bytes());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of = |prefix: &str, text: &str| json!({"prefix": prefix, "text": text}).to_string() + "\n";
    let prefix = "The capital of France is";
    let found = scores(
        &[
            of(prefix, " Paris"),
            of(prefix, " a banana"),
            of("The", " capital of France is Paris"),
            of("The", " capital of France is"),
            of("", "The"),
        ]
        .concat(),
    );
    let logprob = |place: usize| found[place]["logprob"].as_f64().unwrap();
    assert!(logprob(0) > logprob(1) && logprob(0) < 0.0, "{found:?}");
    assert!((logprob(2) - logprob(3) - logprob(0)).abs() < 1e-4, "the whole is the sum of its parts: {found:?}");
    assert_eq!((&found[0]["tokens"], &found[1]["is_greedy"]), (&json!(1), &json!(false)));
    assert!(found[4]["tokens"] == 1 && logprob(4) < 0.0, "a text without a prefix is scored whole: {found:?}");
    let wrong = home.run_with_stdin(&["generate", "--model", &model, "--score"], b"{\"prefix\": \"a\"}");
    assert!(wrong.code == 2 && wrong.stderr.contains("has no \"text\""), "{}", wrong.stderr);
    let alone = home.run(&["generate", "--model", &model, "--input", "x.jsonl"]);
    assert!(alone.code == 2 && alone.stderr.contains("give --score with it"), "{}", alone.stderr);
}
