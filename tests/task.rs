//! `hone task`: real tools over small workspaces, contained.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::support::{Home, root, smollm2};
use serde_json::Value;

const GOOD: &str = "export const add = (a, b) => a + b;\n";
const WRONG: &str = "export const add = (a, b) => a - b;\n";
const TESTS: &str = "import test from 'node:test';\nimport assert from 'node:assert';\nimport { add } from './add.mjs';\n\
                     test('adds', () => assert.equal(add(2, 3), 5));\ntest('adds nothing', () => assert.equal(add(2, 0), 2));\n";
const TASK: &str = "goal = \"a function that adds\"\nfiles = [\"add.mjs\"]\n[[requirements]]\ntext = \"it is exported\"\n\
                    file = \"add.mjs\"\ncontains = \"export\"\n";

/// The node workspace with this code.
fn workspace(home: &Home, code: &str) -> String {
    home.write("workspace/add.mjs", code.as_bytes());
    home.write("workspace/add.test.mjs", TESTS.as_bytes());
    home.write("task.toml", TASK.as_bytes());
    home.path("workspace").to_str().unwrap().to_owned()
}

fn check(home: &Home, workspace: &str, more: &[&str]) -> (i32, Value) {
    let task = home.path("task.toml");
    let mut arguments = vec!["task", "check", task.to_str().unwrap(), "--workspace", workspace, "--json"];
    arguments.extend(more);
    let run = home.run(&arguments);
    let value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    (run.code, value)
}

fn result<'a>(checked: &'a Value, evaluator: &str) -> &'a Value {
    let results = checked["results"].as_array().unwrap();
    results.iter().find(|result| result["evaluator"] == evaluator).unwrap()
}

/// Whether commands are contained here; a system without containment is reported loudly.
fn is_contained(checked: &Value) -> bool {
    let missing = &result(checked, "node-test")["not_contained"];
    if !missing.is_null() {
        println!("NOT CONTAINED on this system: {missing}");
    }
    missing.is_null()
}

#[test]
fn good_work_is_accepted() {
    let home = Home::new();
    let workspace = workspace(&home, GOOD);
    let (code, checked) = check(&home, &workspace, &[]);
    assert_eq!((code, checked["decision"]["action"].as_str()), (0, Some("accept")), "{checked:#}");
    assert_eq!(result(&checked, "node-test")["tests"]["passed"], 2, "{checked:#}");
    assert_eq!(result(&checked, "files")["status"], "passed");
    assert_eq!(result(&checked, "ruff")["status"], "skipped");
    assert_eq!(checked["critics"][0]["score"], 1.0);
}

#[test]
fn a_model_that_is_not_installed_gives_no_score_and_blocks_nothing() {
    let home = Home::new();
    let workspace = workspace(&home, GOOD);
    home.write("config/gate.toml", b"critics = [\"rules\", \"model\"]\n");
    let (code, checked) = check(&home, &workspace, &[]);
    assert_eq!(code, 0, "{checked:#}");
    let reviewed = result(&checked, "code-quality");
    assert_eq!(reviewed["status"], "unscored");
    assert!(reviewed["reason"].as_str().unwrap().contains("prometheus:7b"), "{reviewed:#}");
    assert!(checked["critics"][1]["score"].is_null(), "{checked:#}");
    let (_, checked) = check(&home, &workspace, &["--deterministic"]);
    let results = checked["results"].as_array().unwrap();
    assert!(results.iter().all(|result| result["deterministic"] == true), "{checked:#}");
}

#[test]
fn a_model_that_has_not_taken_its_examination_gives_no_score() {
    let home = Home::new().variable("HONE_REVIEW_MODEL", &smollm2());
    let workspace = workspace(&home, GOOD);
    let (_, checked) = check(&home, &workspace, &[]);
    let reviewed = result(&checked, "code-quality");
    assert_eq!(reviewed["status"], "unscored");
    assert!(reviewed["reason"].as_str().unwrap().contains("examination"), "{reviewed:#}");
}

#[test]
fn a_real_model_is_held_to_the_form_of_a_review_and_asked_once() {
    let home = Home::graded_by_the_generator()
        .variable("HONE_REVIEW_MODEL", &smollm2())
        .variable("HONE_REVIEW_GRADED_PHASES", "[\"coding\"]");
    let workspace = workspace(&home, GOOD);
    home.write("config/gate.toml", b"critics = [\"rules\", \"model\"]\n");
    let (_, checked) = check(&home, &workspace, &[]);
    let reviewed = result(&checked, "code-quality");
    assert!(reviewed["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{reviewed:#}");
    let criteria: Vec<&str> =
        reviewed["criteria"].as_array().unwrap().iter().take(4).map(|one| one["criterion"].as_str().unwrap()).collect();
    assert_eq!(criteria, ["correctness", "clarity", "completeness", "best_practices"]);
    let critic = &checked["critics"][1];
    let kept = || std::fs::read_dir(home.path("data/cache/grades")).unwrap().count();
    let is_blocked = checked["blocking_issues"].as_array().is_some_and(|issues| !issues.is_empty());
    assert_eq!(critic["score"].is_null(), is_blocked, "{checked:#}");
    let n_kept = kept();
    assert!(n_kept >= 1);
    let (_, again) = check(&home, &workspace, &[]);
    assert_eq!((&again["decision"], &again["critics"], kept()), (&checked["decision"], &checked["critics"], n_kept));
}

#[test]
fn a_failing_test_is_named_and_not_accepted() {
    let home = Home::new();
    let workspace = workspace(&home, WRONG);
    let (code, checked) = check(&home, &workspace, &[]);
    assert_eq!((code, checked["decision"]["action"].as_str()), (3, Some("retry")), "{checked:#}");
    let feedback = checked["decision"]["feedback"].as_str().unwrap();
    assert!(feedback.contains("1 of 2 tests fail") && feedback.contains("-1 == 5"), "{feedback}");
    assert_eq!(checked["blocking_issues"].as_array().unwrap().len(), 1);
    let run = home.run(&["task", "check", "--workspace", &workspace]);
    assert_eq!(run.code, 3);
    assert!(run.stdout.contains("✗ node-test      0.50  1 of 2 tests fail"), "{}", run.stdout);
}

#[test]
fn what_tests_do_is_contained() {
    let home = Home::new();
    let workspace = workspace(&home, GOOD);
    let secret = home.write("secret", b"the secret");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let outside = home.path("written");
    let hostile = format!(
        "import test from 'node:test';\nimport fs from 'node:fs';\nimport net from 'node:net';\n\
         const attempt = (f) => {{ try {{ return String(f()); }} catch (e) {{ return e.code; }} }};\n\
         test('reads ' + attempt(() => fs.readFileSync({secret:?})), () => {{ throw new Error('shown'); }});\n\
         test('writes ' + attempt(() => fs.writeFileSync({outside:?}, 'x')), () => {{ throw new Error('shown'); }});\n\
         test('connects', (t, done) => {{ net.connect({port}, '127.0.0.1').on('error', (e) => done(e)).on('connect', () => done()); }});\n"
    );
    home.write("workspace/hostile.test.mjs", hostile.as_bytes());
    let (code, checked) = check(&home, &workspace, &[]);
    assert_eq!(code, 3);
    if !is_contained(&checked) {
        return;
    }
    let text = result(&checked, "node-test").to_string();
    assert!(
        text.contains("reads EACCES") && (text.contains("writes EACCES") || text.contains("writes EROFS")),
        "{checked:#}"
    );
    assert!(!text.contains("the secret") && !outside.exists());
    assert!(listener.accept().is_err(), "it has connected");
    assert_eq!(result(&checked, "node-test")["tests"]["failed"], 3, "{checked:#}");
    let (code, _) = check(&home, &workspace, &["--require-containment"]);
    assert_eq!(code, 3);
}

/// An attack by hostile code in a workspace, and its effects outside.
struct Attack {
    secret: PathBuf,
    outside: PathBuf,
    listener: TcpListener,
}

impl Attack {
    fn on(home: &Home) -> Attack {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Attack { secret: home.write("secret", b"the secret"), outside: home.path("written"), listener }
    }

    /// The code with the secret's path for SECRET, the file to write for OUTSIDE, and the port for PORT.
    fn code(&self, template: &str) -> String {
        let port = self.listener.local_addr().unwrap().port().to_string();
        let texts = [("SECRET", &self.secret), ("OUTSIDE", &self.outside)];
        let named =
            texts.iter().fold(template.to_owned(), |code, (name, path)| code.replace(name, path.to_str().unwrap()));
        named.replace("PORT", &port)
    }

    /// The code ran, said so, and reached nothing.
    fn check_contained(&self, checked: &Value, evaluator: &str) {
        let result = result(checked, evaluator);
        if !result["not_contained"].is_null() {
            println!("NOT CONTAINED on this system: {}", result["not_contained"]);
            return;
        }
        let text = result.to_string();
        assert!(text.contains("it was tried"), "{checked:#}");
        assert!(!text.contains("the secret") && !self.outside.exists(), "{checked:#}");
        assert!(self.listener.accept().is_err(), "it has connected");
    }
}

#[test]
fn a_build_script_and_cargos_configuration_are_contained() {
    let home = Home::new();
    let attack = Attack::on(&home);
    let script = attack.code(
        "fn main() {\n\
         let read = std::fs::read_to_string(\"SECRET\");\n\
         let written = std::fs::write(\"OUTSIDE\", \"x\").is_ok();\n\
         let connected = std::net::TcpStream::connect((\"127.0.0.1\", PORT)).is_ok();\n\
         let wrapped = option_env!(\"WRAPPED\");\n\
         println!(\"cargo:rustc-env=TRIED=it was tried: {wrapped:?} {read:?} {written} {connected}\");\n}\n",
    );
    home.write("workspace/.cargo/config.toml", b"[build]\nrustc-wrapper = \"./wrapper.sh\"\n");
    let wrapper = attack.code("#!/bin/sh\ncat SECRET >&2\ntouch OUTSIDE\nWRAPPED=yes exec \"$@\"\n");
    let wrapper = home.write("workspace/wrapper.sh", wrapper.as_bytes());
    std::fs::set_permissions(wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let home = with_cargo(home);
    home.write("workspace/build.rs", script.as_bytes());
    home.write("workspace/src/lib.rs", b"#[test]\nfn holds() {\n    panic!(\"{}\", env!(\"TRIED\"));\n}\n");
    let (code, checked) = check(&home, home.path("workspace").to_str().unwrap(), &["--phase", "verification"]);
    assert_eq!(code, 3, "{checked:#}");
    attack.check_contained(&checked, "cargo-test");
    let told = result(&checked, "cargo-test").to_string();
    assert!(told.contains("Some(\\\"yes"), "the wrapper ran: {told}");
}

#[test]
fn what_pytest_and_vitest_load_by_themselves_is_contained() {
    let home = Home::new();
    let attack = Attack::on(&home);
    let python = attack.code(
        "import socket\n\
         def tried(attempt):\n    try:\n        return str(attempt())\n    except OSError as error:\n        return error.strerror\n\
         read = tried(lambda: open('SECRET').read())\n\
         written = tried(lambda: open('OUTSIDE', 'w'))\n\
         connected = tried(lambda: socket.create_connection(('127.0.0.1', PORT)))\n\
         raise RuntimeError(f'it was tried: {read} {written} {connected}')\n",
    );
    home.write("workspace/conftest.py", python.as_bytes());
    home.write("workspace/test_it.py", b"def test_it():\n    pass\n");
    let script = attack.code(
        "import fs from 'node:fs';\nimport { execFileSync } from 'node:child_process';\n\
         const tried = (attempt) => { try { return String(attempt()); } catch (error) { return error.code; } };\n\
         const read = tried(() => fs.readFileSync('SECRET'));\n\
         const written = tried(() => execFileSync('touch', ['OUTSIDE'], { stdio: 'ignore' }));\n\
         const connected = tried(() => execFileSync('bash', ['-c', 'echo > /dev/tcp/127.0.0.1/PORT'], { stdio: 'ignore' }));\n\
         throw new Error(`it was tried: ${read} ${written} ${connected}`);\n",
    );
    home.write("workspace/vitest.config.js", script.as_bytes());
    home.write("workspace/package.json", b"{\"name\": \"sample\", \"private\": true, \"type\": \"module\"}\n");
    home.write("workspace/it.test.js", b"import { test } from 'vitest';\ntest('it', () => {});\n");
    home.write("task.toml", b"goal = \"it holds\"\n");
    let tools = std::env::var_os("HONE_TEST_TOOLS").map_or_else(|| root().join("target/test-tools"), PathBuf::from);
    for (installed, name) in [("python", ".venv"), ("typescript/node_modules", "node_modules")] {
        std::os::unix::fs::symlink(tools.join(installed), home.path("workspace").join(name)).unwrap();
    }
    let (code, checked) = check(&home, home.path("workspace").to_str().unwrap(), &["--phase", "verification"]);
    assert_eq!(code, 3, "{checked:#}");
    attack.check_contained(&checked, "pytest");
    attack.check_contained(&checked, "vitest");
}

/// A home whose evaluators find the gate's own cargo and toolchain; the tests' own home is empty.
fn with_cargo(home: Home) -> Home {
    home.write("task.toml", b"goal = \"it holds\"\n");
    let of = |variable: &str, folder: &str| {
        std::env::var(variable).unwrap_or_else(|_| format!("{}/{folder}", std::env::home_dir().unwrap().display()))
    };
    let (cargo, rustup) = (of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup"));
    let tables =
        format!("[cargo-test]\nreadable = [{cargo:?}, {rustup:?}]\n[clippy]\nreadable = [{cargo:?}, {rustup:?}]\n");
    home.write("config/evaluators.toml", tables.as_bytes());
    home.write(
        "workspace/Cargo.toml",
        b"[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    home.write("workspace/src/lib.rs", b"#[test]\nfn holds() {\n    assert_eq!(1 + 1, 3);\n}\n");
    home.variable("CARGO_HOME", &cargo).variable("RUSTUP_HOME", &rustup)
}

#[test]
fn a_rust_workspace_is_tested_with_cargo() {
    let home = with_cargo(Home::new());
    let workspace = home.path("workspace").to_str().unwrap().to_owned();
    let (code, checked) = check(&home, &workspace, &["--phase", "verification"]);
    assert_eq!(code, 3, "{checked:#}");
    let tests = result(&checked, "cargo-test");
    assert_eq!(tests["tests"]["failed"], 1, "{checked:#}");
    assert!(tests["suggestions"][0].as_str().unwrap().starts_with("fix test holds"), "{checked:#}");
}

#[test]
fn what_is_wrong_is_named() {
    let home = Home::new();
    let workspace = workspace(&home, GOOD);
    let failure = |home: &Home, arguments: &[&str], part: &str| {
        let run = home.run(arguments);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(part), "{run:?}");
    };
    let broken = home.write("broken.toml", b"goal = \"x\"\nfiles = [\"../secret\"]\n");
    failure(&home, &["task", "check", broken.to_str().unwrap(), "--workspace", &workspace], "../secret");
    home.write("config/evaluators.toml", b"[ruff]\ncolour = 1\n");
    failure(&home, &["task", "check", "--workspace", &workspace], "colour");
    home.write("config/evaluators.toml", b"");
    home.write("config/gate.toml", b"threshold = 2.0\n");
    failure(&home, &["task", "check", "--workspace", &workspace], "threshold is 2");
    assert!(!Path::new("workspace").exists());
}

#[test]
fn a_model_that_is_chosen_by_its_past_must_be_installed() {
    let home = Home::new();
    let workspace = workspace(&home, GOOD);
    home.write("config/gate.toml", b"ladder = ['best:node']\n");
    let task = home.path("task.toml");
    let run = home.run(&["task", "run", task.to_str().unwrap(), "--workspace", &workspace]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("best:node has no installed model to choose"), "{}", run.stderr);
}
