//! The commands as a person runs them: the real binary, in a home of its own, without a network.

use std::fs;
use std::path::Path;

use crate::support::{Home, smollm2};
use serde_json::Value;

/// Runs `arguments` and checks the exit code and that stderr says `complaint`.
#[track_caller]
fn check_failure(home: &Home, arguments: &[&str], code: i32, complaint: &str) {
    let run = home.run(arguments);
    assert!(run.stderr.contains(complaint), "hone {arguments:?} said {}", run.stderr);
    assert_eq!((run.code, run.stdout.as_str()), (code, ""), "hone {arguments:?}: {}", run.stderr);
}

/// Checks the line of one key that `hone config` prints.
#[track_caller]
fn check_config(home: &Home, flags: &[&str], key: &str, value: &str, source: &str) {
    let arguments: Vec<&str> = ["config"].iter().chain(flags).copied().collect();
    let run = home.run(&arguments);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let line = run.stdout.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), [key, value, source]);
}

#[test]
fn config_says_where_each_value_comes_from() {
    let home = Home::new();
    check_config(&home, &[], "engine.threads", "0", "default");
    home.write("config/engine.toml", b"threads = 2\n");
    check_config(&home, &[], "engine.threads", "2", "~/config/engine.toml");
    let home = home.variable("HONE_ENGINE_THREADS", "3");
    check_config(&home, &[], "engine.threads", "3", "HONE_ENGINE_THREADS");
    check_config(&home, &["--threads", "4"], "engine.threads", "4", "--threads");
}

#[test]
fn config_prints_json() {
    let home = Home::new().variable("HONE_SAMPLING_TOP_K", "40");
    let config = home.json(&["config", "--json", "--min-p", "0.5"]);
    let check = |key: &str, expected: Value| assert_eq!(config[key], expected);
    check("chat.save", serde_json::json!({"value": true, "source": "default"}));
    let variable = serde_json::json!({"value": 40, "source": "variable", "name": "HONE_SAMPLING_TOP_K"});
    check("sampling.top_k", variable);
    check("sampling.min_p", serde_json::json!({"value": 0.5, "source": "flag", "name": "--min-p"}));
}

#[test]
fn a_wrong_configuration_is_a_usage_error_that_names_key_and_place() {
    let home = Home::new();
    home.write("config/chat.toml", b"sytem = 'x'\n");
    check_failure(&home, &["config"], 2, "unknown key chat.sytem (~/config/chat.toml)");
    home.write("config/chat.toml", b"save = 'perhaps'\n");
    let complaint = "chat.save (~/config/chat.toml) is the string \"perhaps\", expected true or false";
    check_failure(&home, &["config"], 2, complaint);
    check_failure(&Home::new(), &["config", "--top-p", "2"], 2, "sampling.top_p (--top-p): top_p is 2");
    let home = Home::new().variable("HONE_CHAT_SAVE", "no");
    check_failure(&home, &["config"], 2, "chat.save (HONE_CHAT_SAVE) is the string \"no\", expected true or false");
}

#[test]
fn an_unknown_variable_is_warned_of() {
    let run = Home::new().variable("HONE_CHAT_SYTEM", "x").run(&["config"]);
    assert_eq!(run.code, 0);
    assert!(run.stderr.contains("HONE_CHAT_SYTEM does not match any key"), "{}", run.stderr);
}

#[test]
fn logs_are_filtered_as_asked() {
    let home = Home::new().variable("HONE_LOG", "a=b=c");
    check_failure(&home, &["config"], 2, "HONE_LOG is \"a=b=c\"");
    let quiet = Home::new().variable("HONE_CHAT_SYTEM", "x").variable("HONE_LOG", "error").run(&["config"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
}

/// The kept KV cache once took up to 2 GB that no command showed or freed.
#[test]
fn the_kept_kv_cache_is_listed_and_removed() {
    let home = Home::new();
    home.write("data/kv/0a.kv", &[1; 3000]);
    home.write("data/kv/0b.part", &[1; 500]);
    home.write("data/kv/mine.txt", b"mine");
    let run = home.run(&["list"]);
    assert!(run.stderr.contains("3.50 kB") && run.stderr.contains("hone rm --kv"), "{}", run.stderr);
    assert_eq!(home.json(&["list", "--json"]), serde_json::json!([]), "an array of models alone");
    let kept = serde_json::json!([{"kv_cache": {"files": 2, "bytes": 3500}}]);
    assert_eq!(home.json(&["rm", "--kv", "--json"]), kept);
    assert!(!home.run(&["list"]).stderr.contains("--kv"));
    let run = home.run(&["rm", "--kv"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "the kept KV cache is removed (0 B freed)\n"));
    assert!(home.path("data/kv/mine.txt").exists());
    check_failure(&home, &["rm"], 2, "MODEL");
}

/// Once, a directory was reported as missing, and reading a pipe would have waited for a writer.
#[test]
fn what_is_no_file_is_called_what_it_is() {
    let home = Home::new();
    let check = |path: &str, kind: &str| {
        let complaint = format!("is {kind} and not a GGUF file");
        for arguments in [
            &["generate", "--model", path][..],
            &["chat", "Why?", "--model", path],
            &["generate", "--model", &smollm2(), "--draft", path],
            &["bench", "--model", path],
            &["grade", "--query", "a", "--answer", "b", "--judge", path, "--model", &smollm2()],
            &["tokenize", "--model", path],
            &["show", path],
            &["pull", path],
            &["bundle", "--model", path, "--output", "never-written"],
        ] {
            let run = home.run_with_stdin(arguments, b"What is a tide?");
            assert!(run.stderr.contains(&complaint), "hone {arguments:?} said {}", run.stderr);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "hone {arguments:?}");
        }
    };
    home.write("folder/file", b"");
    check(home.path("folder").to_str().unwrap(), "a directory");
    #[cfg(unix)]
    {
        let pipe = home.path("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        check(pipe.to_str().unwrap(), "a pipe");
    }
}

#[test]
fn wrong_use_exits_with_2() {
    let home = Home::new();
    check_failure(&home, &[], 2, "Usage");
    check_failure(&home, &["chatt"], 2, "chat");
    check_failure(&home, &["chat", "--temprature", "1"], 2, "--temperature");
    check_failure(&home, &["chat"], 2, "stdin holds no question");
    check_failure(&home, &["chat", " "], 2, "the question is empty");
    check_failure(&home, &["pull", "hf:owner"], 2, "hf:OWNER/REPO/FILE");
    check_failure(&home, &["pull", "SmolLM2:135m", "--name", "mine"], 2, "keeps its name");
    check_failure(&home, &["pull", &smollm2(), "--name", "No Name"], 2, "no model name can be derived");
}

#[test]
fn chat_says_why_there_is_no_answer() {
    let home = Home::new();
    check_failure(&home, &["chat", "Why?"], 1, "HONE_OFFLINE");
    check_failure(&home, &["chat", "Why?", "--model", "smolm2:135m"], 1, "smollm2:135m");
    check_failure(&home, &["chat", "Why?", "--model", "./no.gguf"], 1, "./no.gguf");
    check_failure(&home, &["chat", "Why?", "--resume"], 1, "there is no saved conversation to continue");
    check_failure(&home, &["chat", "Why?", "--resume", "tides"], 1, "\"tides\"");
    check_failure(&home, &["chat", "Why?", "--resume", "../tides"], 1, "\"../tides\" is not a valid name");
    check_failure(&home, &["chat", "Why?", "--resume", "Why is it so?"], 2, "--resume= \"QUESTION\"");
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = Home::new().run(&["completions", shell]);
        assert_eq!(run.code, 0);
        assert!(run.stdout.contains("HONE_COMPLETE"), "{shell}");
    }
}

/// The model of another program is used in place, and the shell offers its name.
#[test]
fn models_of_other_programs_are_imported_and_completed() {
    let home = Home::new();
    let home_path = |below: &str| home.path(below).display().to_string();
    let home = Home::new()
        .variable("LLAMA_CACHE", &home_path("llama"))
        .variable("OLLAMA_MODELS", &home_path("ollama"))
        .variable("HF_HOME", &home_path("hf"));
    let check_missing = home.run(&["import"]);
    assert!(check_missing.stderr.contains("no model of Ollama, LM Studio"), "{}", check_missing.stderr);
    let place = home_path("llama/o_r_Small-Q4_1.gguf");
    fs::create_dir_all(Path::new(&place).parent().unwrap()).unwrap();
    fs::copy(smollm2(), &place).unwrap();
    let listed = home.json(&["import", "--json"]);
    assert_eq!(
        (&listed[0]["program"], &listed[0]["problem"]),
        (&"llama.cpp".into(), &serde_json::Value::Null),
        "{listed}"
    );
    let imported = home.run(&["import", "o_r_small-q4_1"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(imported.stdout.starts_with("o_r_small-q4_1 is installed"), "{}", imported.stdout);
    check_failure(&home, &["import", "other"], 1, "no program has fetched a model `other`");
    check_failure(&home, &["pull", "--from-ollama", "qwen3:4b"], 1, "`hone import` lists what is in");
    let run = home.run_with_stdin(&["generate", "--model", "O_R_Small-Q4_1", "--max-tokens", "1"], b"The capital");
    assert_eq!(run.code, 0, "{}", run.stderr);

    assert_eq!(home.run(&["preset", "create", "curt", "--temperature", "0"]).code, 0);
    let check = |words: &[&str], offered: &str| {
        let index = (words.len() - 1).to_string();
        let mut command = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &[&["--"], words].concat());
        command.env("HONE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_IFS", "\n");
        let output = command.output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        assert!(lines.lines().any(|line| line == offered), "{words:?}: {lines}");
    };
    check(&["hone", "gener"], "generate");
    check(&["hone", "chat", "--model", ""], "o_r_small-q4_1");
    check(&["hone", "rm", "o_"], "o_r_small-q4_1");
    check(&["hone", "chat", "-p", ""], "curt");
    check(&["hone", "preset", "delete", ""], "curt");
    check(&["hone", "pull", "smol"], "smollm2:135m");
    check(&["hone", "chat", "--judge", "judge:f"], "judge:flow");
    check(&["hone", "import", "--from", ""], "llama.cpp");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let home = Home::new();
    let mut child = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &["completions", "zsh"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn doctor_finds_nothing_wrong_with_a_fresh_machine() {
    let home = Home::new().variable("HONE_OFFLINE", "0");
    let run = home.run(&["doctor"]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert!(run.stdout.contains("smollm2:135m will be downloaded"), "{}", run.stdout);
    assert!(!run.stdout.contains('\u{1b}'), "colours are for terminals");
    let report = home.json(&["doctor", "--json"]);
    assert_eq!(report["problems"], serde_json::json!([]));
    assert!(report["machine"]["memory_bytes"].as_u64().unwrap() > 0);
    assert!(!home.path("data").exists(), "looking changes nothing");
}

#[test]
fn doctor_fails_with_what_is_wrong_and_what_to_do() {
    let check = |home: &Home, arguments: &[&str], problem: &str| {
        let run = home.run(arguments);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stdout.contains(problem), "{}", run.stdout);
        assert!(run.stdout.contains("next: "), "{}", run.stdout);
    };
    let online = || Home::new().variable("HONE_OFFLINE", "0");
    check(&Home::new(), &["doctor"], "HONE_OFFLINE disables");
    check(&online(), &["doctor", "--model", "nothing"], "neither installed nor in the catalog");
    check(&online().variable("HONE_ENGINE_THREADS", "x"), &["doctor"], "HONE_ENGINE_THREADS");
    let home = online();
    home.write("config/chat.toml", b"save = 1\n");
    check(&home, &["doctor"], "chat.save");
    let home = online();
    home.write("data/models/smollm2@135m/manifest.json", b"{");
    check(&home, &["doctor"], "a model is broken");
    #[cfg(not(any(feature = "cuda", feature = "metal")))]
    check(&online(), &["doctor", "--device", "cuda"], "built without CUDA");
}

#[test]
fn a_model_file_is_pulled_listed_shown_and_removed() {
    let (home, file) = (Home::new(), smollm2());
    let size = std::fs::metadata(&file).unwrap().len();
    assert_eq!(home.json(&["list", "--json"]), serde_json::json!([]));
    let run = home.run(&["pull", &file, "--name", "tiny:1"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "tiny:1 is installed (98.36 MB)\n"), "{}", run.stderr);
    assert_eq!(home.run(&["pull", &file, "--name", "tiny:1"]).stdout, "tiny:1 is installed already (98.36 MB)\n");

    let list = home.json(&["list", "--json"]);
    assert_eq!(
        (&list[0]["name"], &list[0]["place"], &list[0]["size"]),
        (&"tiny:1".into(), &"store".into(), &size.into())
    );
    let shown = home.json(&["show", "tiny:1", "--json"]);
    assert_eq!(shown["files"][0]["size"], size);
    let copy =
        shown["files"][0]["path"].as_str().unwrap().replace('~', home.path("").to_str().unwrap().trim_end_matches('/'));
    assert!(std::fs::read(copy).unwrap() == std::fs::read(&file).unwrap());

    let removed = home.json(&["rm", "tiny:1", "--json"]);
    assert!(removed[0]["name"] == "tiny:1" && removed[0]["freed_bytes"].as_u64().unwrap() > size, "{removed}");
    check_failure(&home, &["rm", "tiny:1"], 1, "tiny:1");
    check_failure(&home, &["show", "tiny:1"], 1, "tiny:1");
    assert_eq!(home.run(&["list"]).stdout, "");
}

#[test]
fn a_damaged_model_is_noticed_before_it_is_copied_and_by_the_doctor() {
    let (home, whole) = (Home::new().variable("HONE_OFFLINE", ""), std::fs::read(smollm2()).unwrap());
    let cut_off = home.write("Cut.gguf", &whole[..whole.len() - 1000]);
    let cut_off = cut_off.to_str().unwrap();
    check_failure(&home, &["pull", cut_off], 1, "cannot be run");
    assert_eq!(home.run(&["list"]).stdout, "");
    let run = home.run(&["doctor", "--model", cut_off]);
    assert!(run.code == 1 && run.stdout.contains("cannot be run"), "{}", run.stdout);
}

#[test]
fn models_that_are_not_installed_are_listed_and_shown_where_asked_for() {
    let home = Home::new();
    let run = home.run(&["list", "--all"]);
    assert!(run.stdout.contains("prometheus:7b"), "{}", run.stdout);
    let list = home.json(&["list", "--all", "--json"]);
    assert!(list.as_array().unwrap().iter().all(|model| model["installed"] == false));
    assert!(list.as_array().unwrap().iter().all(|model| model["fits"].is_boolean()), "{list}");
    let shown = home.run(&["show", "prometheus:7b"]).stdout;
    assert!(shown.contains("judge") && shown.contains("hone pull prometheus:7b"), "{shown}");
    assert!(shown.contains("hf:vsevolodl/prometheus-7b-v2.0-GGUF (not confirmed)\n"), "{shown}");
    assert!(shown.contains("hf:prometheus-eval/prometheus-7b-v2.0-GGUF\n"), "{shown}");
    check_failure(&home, &["pull", "prometheus:7b"], 1, "HONE_OFFLINE");
}

#[test]
fn the_list_says_how_fast_a_model_would_be() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("data")).unwrap();
    let of = |list: &serde_json::Value, name: &str| {
        list.as_array().unwrap().iter().find(|model| model["name"] == name).unwrap().clone()
    };
    let model = of(&home.json(&["list", "--all", "--json"]), "smollm2:135m");
    assert!(model["tokens_per_second"].as_f64().unwrap() > 1.0, "{model}");
    // The figure is measured once for a machine; a scripted one makes the estimate predictable.
    let kept = home.path("data/memory-bandwidth.json");
    let mut measured: serde_json::Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    measured["bytes_per_second"] = 9_836_243_200.0.into();
    std::fs::write(&kept, measured.to_string()).unwrap();
    let list = home.json(&["list", "--all", "--json"]);
    let model = of(&list, "smollm2:135m");
    assert_eq!((&model["fits"], model["tokens_per_second"].as_f64()), (&true.into(), Some(100.0)), "{model}");
    assert_eq!(of(&list, "gpt-oss:20b")["active_parameters"], "3.6B");
    let run = home.run(&["list", "--all"]);
    let row = run.stdout.lines().find(|line| line.starts_with("smollm2:135m ")).unwrap();
    assert!(row.contains("yes") && row.contains("~100 tokens/s"), "{row}");
    assert!(run.stderr.contains("9.8 GB/s"), "{}", run.stderr);
    let shown = home.run(&["show", "gpt-oss:20b"]).stdout;
    assert!(shown.contains("21B, of which a token uses 3.6B"), "{shown}");
    let plain = home.json(&["list", "--json"]);
    assert_eq!(plain, serde_json::json!([]));
}

#[test]
fn the_list_says_how_fast_a_model_was() {
    let (home, file) = (Home::new(), smollm2());
    assert_eq!(home.run(&["pull", &file, "--name", "smollm2:135m"]).code, 0);
    let listed = || home.json(&["list", "--all", "--json"])[0].clone();
    assert_eq!(listed()["speed_is_seen"], false);
    let answer = home.run(&["chat", "--max-tokens", "40", "Write a long story about a lighthouse."]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let model = listed();
    assert_eq!(model["speed_is_seen"], true, "{model}");
    let shown = home.run(&["list", "--all"]).stdout;
    let row = shown.lines().find(|line| line.starts_with("smollm2:135m ")).unwrap();
    assert!(row.contains(" tokens/s") && !row.contains('~'), "{row}");
    // Another file of the same name starts anew.
    let kept = home.path("data/generation-speeds.json");
    let mut speeds: serde_json::Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    for models in speeds.as_object_mut().unwrap().values_mut() {
        models["smollm2:135m"]["bytes"] = 1.into();
    }
    std::fs::write(&kept, speeds.to_string()).unwrap();
    assert_eq!(listed()["speed_is_seen"], false);
}

/// Changes one bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_model_or_bundle_never_answers() {
    let (home, file) = (Home::new(), smollm2());
    assert_eq!(home.run(&["pull", &file, "--name", "tiny:1"]).code, 0);
    let bundle = home.path("bundled");
    let program = |arguments: &[&str]| home.run_program(&bundle, arguments, b"Is fire hot?");
    assert_eq!(home.run(&["bundle", "--model", "tiny:1", "--output", bundle.to_str().unwrap()]).code, 0);
    assert_eq!(home.run(&["rm", "tiny:1"]).code, 0);
    let generate = ["generate", "--raw", "--max-tokens", "2", "--model", "tiny:1"];
    let run = program(&generate);
    assert_eq!(run.code, 0, "{}", run.stderr);
    // The last weights of the file, before the index.
    flip(&bundle, usize::try_from(bundle.metadata().unwrap().len()).unwrap() - 20_000);
    let damaged = |run: crate::support::Run, next: &str| {
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
        assert!(run.stderr.contains("`tiny:1` is damaged") && run.stderr.contains(next), "{}", run.stderr);
    };
    damaged(program(&generate), "hone bundle");
    let run = program(&["doctor", "--deep"]);
    assert!(run.code == 1 && run.stdout.contains("`tiny:1` is damaged"), "{}", run.stdout);
    std::fs::remove_file(bundle).unwrap();

    assert_eq!(home.run(&["pull", &file, "--name", "tiny:1"]).code, 0);
    assert!(!home.run(&["doctor", "--deep"]).stdout.contains("damaged"));
    flip(&home.path("data/models/tiny@1/model.gguf"), 50_000_000);
    let book = home.write("book.txt", "Some words of a book. ".repeat(50).as_bytes());
    let perplexity = ["perplexity", "--file", book.to_str().unwrap(), "--model", "tiny:1"];
    for command in [&generate[..], &perplexity, &["bench", "--model", "tiny:1"]] {
        damaged(home.run_with_stdin(command, b"Is fire hot?"), "hone pull tiny:1");
    }
    let run = home.run(&["doctor", "--deep"]);
    assert!(run.code == 1 && run.stdout.contains("run `hone pull tiny:1`"), "{}", run.stdout);
    assert_eq!(home.run(&["pull", "tiny:1"]).stdout, "tiny:1 is installed (98.36 MB)\n");
    assert_eq!(home.run_with_stdin(&generate, b"Is fire hot?").code, 0);
}

#[cfg(unix)]
#[test]
fn a_model_in_use_is_not_removed_without_force() {
    let (home, file) = (Home::new(), smollm2());
    assert_eq!(home.run(&["pull", &file, "--name", "tiny:1"]).code, 0);
    let arguments = ["generate", "--raw", "--model", "tiny:1", "--regex", "(yes ){2000}"];
    let mut user = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &arguments).spawn().unwrap();
    std::io::Write::write_all(&mut user.stdin.take().unwrap(), b"Is fire hot?").unwrap();
    let (mut first, mut stdout) = ([0], user.stdout.take().unwrap());
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    let process = format!("`hone generate` (process {})", user.id());
    check_failure(&home, &["rm", "tiny:1"], 1, &format!("`tiny:1` is used by {process}: stop it first"));
    assert_eq!(home.json(&["list", "--json"]).as_array().unwrap().len(), 1);
    assert_eq!(home.run(&["rm", "tiny:1", "--force"]).code, 0);
    user.kill().unwrap();
    user.wait().unwrap();
}

#[cfg(unix)]
#[test]
fn what_is_installed_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (home, file) = (Home::new(), smollm2());
    // A umask that removes no permissions.
    let script = format!("umask 000; exec '{}' pull '{file}' --name tiny:1", env!("CARGO_BIN_EXE_hone"));
    assert_eq!(home.run_program(Path::new("/bin/sh"), &["-c", &script], b"").code, 0);
    let mut folders = vec![home.path("data")];
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
}

#[test]
fn a_name_of_the_catalog_is_for_the_catalogs_file() {
    let (home, file) = (Home::new(), smollm2());
    check_failure(&home, &["pull", &file, "--name", "smollm2:360m"], 2, "is not the file that the catalog has");
    assert_eq!(home.run(&["pull", &file, "--name", "smollm2:135m"]).code, 0);
}

#[test]
fn a_file_is_shown_where_it_lies() {
    let home = Home::new();
    let file = home.write("Tiny.gguf", b"GGUF and nothing else");
    let run = home.run(&["show", file.to_str().unwrap(), "--json"]);
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&shown["place"], &shown["size"]), (&"path".into(), &21.into()));
    assert!(!home.path("data").exists(), "a file is used in place");
}

#[test]
fn a_gguf_file_is_shown_with_what_it_says_of_itself() {
    let home = Home::new();
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let string = 8u32.to_le_bytes();
    let (key, value) = (text("general.architecture"), text("llama"));
    let (version, counts) = (3u32.to_le_bytes(), [0u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
    let file = home.write("Whole.gguf", &[b"GGUF", &version[..], &counts, &key, &string, &value].concat());
    let shown = home.json(&["show", file.to_str().unwrap(), "--json"]);
    assert_eq!((&shown["gguf"]["architecture"], &shown["problem"]), (&"llama".into(), &Value::Null));
    let file = home.write("Broken.gguf", b"GGUF and nothing else");
    let run = home.run(&["show", file.to_str().unwrap(), "--json"]);
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &shown["gguf"]), (1, &Value::Null));
    assert!(shown["problem"].is_string(), "{shown}");
    let run = home.run(&["show", file.to_str().unwrap()]);
    assert!(run.code == 1 && run.stdout.contains("problem"), "{}", run.stdout);
}

#[test]
fn what_the_system_says_is_told_once() {
    let check = |arguments: &[&str]| {
        let home = Home::new();
        home.write("data", b"a file where a folder should be");
        let model = smollm2();
        let arguments: Vec<&str> =
            arguments.iter().map(|it| if *it == "MODEL" { model.as_str() } else { it }).collect();
        let run = home.run(&arguments);
        assert_eq!(run.code, 1, "{}", run.stderr);
        let told = ["No such file or directory", "Not a directory", "File exists"];
        let n_told: usize = told.into_iter().map(|words| run.stderr.matches(words).count()).sum();
        assert_eq!(n_told, 1, "hone {arguments:?} said {}", run.stderr);
        assert!(!run.stderr.contains("os error"), "{}", run.stderr);
    };
    check(&["pull", "MODEL"]);
    check(&["list"]);
    check(&["bundle", "--model", "MODEL", "--output", "/no/such/folder/hone"]);
}

#[test]
fn nothing_that_was_named_or_read_drives_the_terminal() {
    let home = Home::new();
    let run = home.run(&["show", "x\u{1b}[2J"]);
    assert!(run.code == 1 && run.stderr.contains("there is no model `x␛[2J`"), "{}", run.stderr);
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let entry = [text("general.name"), 8u32.to_le_bytes().to_vec(), text("Tiny\u{1b}[2J\nlicence  free")].concat();
    let (version, counts) = (3u32.to_le_bytes(), [0u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
    let file = home.write("Tiny.gguf", &[b"GGUF", &version[..], &counts, &entry].concat());
    let shown = home.run(&["show", file.to_str().unwrap()]).stdout;
    assert!(shown.lines().any(|line| line == "title      Tiny␛[2J licence  free"), "{shown:?}");
}

#[test]
fn a_bundle_brings_its_models_and_prefers_them() {
    let home = Home::new();
    let file = home.write("Tiny.gguf", b"GGUF and nothing else");
    let bundle = home.path("tiny-hone");
    let run = home.run(&["bundle", "--model", file.to_str().unwrap(), "--output", bundle.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("~/tiny-hone holds tiny ("), "{}", run.stdout);
    let again = home.path("again");
    let (file, again) = (file.to_str().unwrap(), again.to_str().unwrap());
    let made = home.json(&["bundle", "--model", file, "--output", again, "--json"]);
    assert_eq!((&made["path"], &made["models"]), (&"~/again".into(), &serde_json::json!(["tiny"])));
    assert_eq!(made["size"].as_u64().unwrap(), std::fs::metadata(again).unwrap().len());

    let elsewhere = Home::new();
    let list = elsewhere.run_program(&bundle, &["list", "--json"], b"");
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["place"]), (&"tiny".into(), &"bundle".into()));
    let config = elsewhere.run_program(&bundle, &["config", "--json"], b"");
    let config: Value = serde_json::from_str(&config.stdout).unwrap();
    assert_eq!(config["engine.model"], serde_json::json!({"value": "tiny", "source": "bundle"}));
}
