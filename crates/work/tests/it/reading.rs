//! Reads the output of tools: the samples in `data/reading` were written by the tools themselves, or have their format.

use hone_protocol::{EvaluationStatus, TestCounts};
use hone_work::{EvaluatorTool, OutputFormat, ToolEnd, ToolFindings, ToolRun};

fn read(format: OutputFormat, text: &str) -> ToolFindings {
    format.read(text, "", None).unwrap()
}

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("data/reading/", $name))
    };
}

#[track_caller]
fn check_tests(format: OutputFormat, text: &str, counts: [usize; 3], failed: &[(&str, &str)]) {
    let found = read(format, text);
    let [passed, failing, skipped] = counts;
    assert_eq!(found.tests, Some(TestCounts { passed, failed: failing, skipped }));
    let named: Vec<(&str, &str)> =
        found.failed_tests.iter().map(|test| (test.name.as_str(), test.message.lines().next().unwrap_or(""))).collect();
    assert_eq!(named, failed);
}

#[track_caller]
fn check_errors(format: OutputFormat, text: &str, errors: &[&str], warnings: &[&str]) {
    let found = read(format, text);
    assert_eq!(found.tests, None);
    assert_eq!((found.errors, found.warnings), (strings(errors), strings(warnings)));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn test_runners_are_read() {
    let area = ("test_shapes.py::test_area", "assert 5 == 6");
    check_tests(OutputFormat::Pytest, sample!("pytest.txt"), [1, 1, 1], &[area]);
    check_tests(OutputFormat::Pytest, "== 3 passed, 1 xfailed, 2 warnings in 0.12s ==", [3, 0, 1], &[]);
    check_tests(OutputFormat::Pytest, "no tests ran in 0.01s", [0, 0, 0], &[]);
    check_tests(
        OutputFormat::Pytest,
        "ERROR test_a.py - NameError: x\n1 error in 0.1s",
        [0, 1, 0],
        &[("test_a.py", "NameError: x")],
    );
    let broken = "ImportError while loading conftest '/w/conftest.py'.\nconftest.py:1: in <module>\nE   NameError: x\n";
    let found = OutputFormat::Pytest.read("", broken, None).unwrap();
    assert_eq!((found.errors.len(), found.fatal.len()), (1, 1));
    assert!(found.fatal[0].ends_with("E   NameError: x"), "{found:?}");
    let script = "error: failed to run custom build command for `a v0.1.0`\n\nCaused by:\n  ...\n  --- stderr\n\n  \
                  thread 'main' panicked at build.rs:2:5:\n  no compiler\n";
    let found = OutputFormat::CargoTest.read("", script, None).unwrap();
    assert!(found.errors[0].ends_with("panicked at build.rs:2:5:\nno compiler"), "{found:?}");
    check_tests(
        OutputFormat::CargoTest,
        sample!("cargo_test.txt"),
        [1, 1, 1],
        &[("breaks", "thread 'breaks' (10380) panicked at src/lib.rs:3:23:")],
    );
    check_tests(OutputFormat::Tap, sample!("node.tap"), [2, 1, 1], &[("inner fails", "1 == 2")]);
    check_tests(
        OutputFormat::Vitest,
        sample!("vitest.json"),
        [1, 1, 1],
        &[("fails", "AssertionError: expected 1 to be 2 // Object.is equality")],
    );
    check_tests(
        OutputFormat::Bun,
        sample!("bun.txt"),
        [1, 1, 1],
        &[("group > fails", "expect(received).toBe(expected)")],
    );
    check_tests(
        OutputFormat::GoTest,
        sample!("go.json"),
        [1, 1, 1],
        &[("example.com/shapes.TestArea", "shapes_test.go:7: got 5, want 6")],
    );
    check_tests(
        OutputFormat::Junit,
        sample!("junit.xml"),
        [1, 2, 1],
        &[("test_shapes.test_area", "assert 5 == 6"), ("test_broken", "collection failure")],
    );
}

#[test]
fn what_keeps_tests_from_running_is_an_error() {
    let errors = read(OutputFormat::GoTest, sample!("go.json")).errors;
    assert_eq!(errors, ["example.com/broken: # example.com/broken\n./broken.go:3:2: undefined: q"]);
    let errors =
        OutputFormat::CargoTest.read("", "error[E0425]: cannot find value `q`\n --> src/lib.rs", None).unwrap();
    assert_eq!(errors.errors, ["error[E0425]: cannot find value `q`"]);
}

#[test]
fn linters_and_type_checkers_are_read() {
    let found = read(OutputFormat::Ruff, sample!("ruff.json")).errors;
    assert!(found.contains(&"shapes.py:1: `os` imported but unused [F401]".to_owned()), "{found:?}");
    check_errors(OutputFormat::Ruff, "[]", &[], &[]);
    let mypy = "shapes.py:4: Incompatible types in assignment (expression has type \"str\", variable has type \"int\") [assignment]";
    check_errors(OutputFormat::Mypy, sample!("mypy.json"), &[mypy], &[]);
    check_errors(OutputFormat::Mypy, "", &[], &[]);
    check_errors(
        OutputFormat::Pyright,
        sample!("pyright.json"),
        &["/work/shapes.py:4: Type \"str\" is not assignable to declared type \"int\" [reportAssignmentType]"],
        &["/work/shapes.py:1: Import \"os\" is not accessed [reportUnusedImport]"],
    );
    let clippy = "src/lib.rs:1: unneeded `return` statement [clippy::needless_return]";
    check_errors(OutputFormat::Cargo, sample!("clippy.json"), &[clippy], &[]);
    check_errors(
        OutputFormat::Eslint,
        sample!("eslint.json"),
        &["/work/a.js:1: 'x' is assigned a value but never used. [no-unused-vars]"],
        &["/work/a.js:4: Expected '===' and instead saw '=='. [eqeqeq]"],
    );
    check_errors(
        OutputFormat::Tsc,
        sample!("tsc.txt"),
        &[
            "bad.ts:1: Type 'string' is not assignable to type 'number'. [TS2322]",
            "src/app (old).ts:12: Cannot find name 'q'. [TS2304]",
            "No inputs were found in config file 'tsconfig.json'. [TS18003]",
        ],
        &[],
    );
    check_errors(
        OutputFormat::Sarif,
        sample!("sarif.json"),
        &["src/db.py:12: The query is built from input [sql-injection]"],
        &["MD5 is weak [weak-hash]"],
    );
}

#[test]
fn what_cannot_be_read_is_an_error_and_never_a_pass() {
    for format in OutputFormat::ALL {
        for text in ["Segmentation fault", "{\"a\": ", "<html></html>", "\u{0}", "[1, 2, [[["] {
            // With nothing to report, these tools write no line of JSON.
            let says_nothing = matches!(format, OutputFormat::Mypy | OutputFormat::Cargo | OutputFormat::Tsc);
            let found = format.read(text, "", None);
            assert!(found.is_err() || says_nothing, "{format:?} read {text:?} as {found:?}");
            if format.is_of_tests() {
                assert!(found.is_err(), "{format:?} read {text:?} as {found:?}");
            }
        }
    }
}

fn tool(name: &str) -> EvaluatorTool {
    let tools = EvaluatorTool::all(&toml::Table::new()).unwrap();
    tools.into_iter().find(|tool| tool.name == name).unwrap()
}

fn run(end: ToolEnd, stdout: &str) -> ToolRun {
    let stdout = stdout.to_owned();
    ToolRun {
        end,
        stdout,
        stderr: String::new(),
        report: None,
        not_contained: Vec::new(),
        set_aside: Vec::new(),
        seconds: 0.1,
    }
}

#[test]
fn a_failing_test_blocks_and_is_named() {
    let result = tool("pytest").result(&run(ToolEnd::Exited(1), sample!("pytest.txt")));
    assert_eq!(result.status, EvaluationStatus::Failed { score: 0.5 });
    assert_eq!(result.feedback, "1 of 2 tests fail");
    let blocking: Vec<&str> = result.blocking_issues().collect();
    assert_eq!(blocking, ["test test_shapes.py::test_area: assert 5 == 6"]);
    assert_eq!(result.suggestions, ["fix test test_shapes.py::test_area: assert 5 == 6"]);
}

#[test]
fn what_did_not_run_is_no_pass() {
    let check = |name: &str, end: ToolEnd, stdout: &str, expected: &str| {
        let result = tool(name).result(&run(end, stdout));
        let status = serde_json::to_value(&result.status).unwrap()["status"].as_str().unwrap().to_owned();
        assert_eq!(status, expected, "{name}: {result:?}");
    };
    check("pytest", ToolEnd::NotInstalled, "", "skipped");
    check("pytest", ToolEnd::NotRun("the disk is full".into()), "", "unscored");
    check("pytest", ToolEnd::Exited(1), "No module named pytest", "unscored");
    check("pytest", ToolEnd::Exited(5), "no tests ran in 0.01s", "skipped");
    check("pytest", ToolEnd::Ended("it took too long and was ended".into()), "2 passed in 0.1s", "failed");
    check("python-loads", ToolEnd::Ended("it took too long and was ended".into()), "", "unscored");
    // A report of success does not outweigh the exit code.
    check("pytest", ToolEnd::Exited(1), "2 passed in 0.1s", "failed");
    check("pytest", ToolEnd::Exited(0), "2 passed in 0.1s", "passed");
    check("ruff", ToolEnd::Exited(0), "[]", "passed");
    check("ruff", ToolEnd::Exited(2), "", "unscored");
    check("clippy", ToolEnd::Exited(101), "", "unscored");
}

#[test]
fn an_error_costs_a_tenth() {
    let result = tool("mypy").result(&run(ToolEnd::Exited(1), sample!("mypy.json")));
    assert_eq!(result.status, EvaluationStatus::Failed { score: 0.9 });
    assert_eq!(result.blocking_issues().count(), 0);
}

/// Regardless of whether a test runs the file.
#[test]
fn code_that_cannot_run_blocks_whoever_finds_out() {
    let check = |name: &str, stdout: &str, is_blocking: bool| {
        let result = tool(name).result(&run(ToolEnd::Exited(1), stdout));
        assert_eq!(result.blocking_issues().next().is_some(), is_blocking, "{name}: {result:?}");
        assert_eq!(result.score().unwrap() < 0.5, is_blocking, "{name}: {result:?}");
    };
    let ruff = |code: &str| {
        format!(
            r#"[{{"filename": "a.py", "location": {{"row": 1}}, "code": {code}, "message": "Expected an expression"}}]"#
        )
    };
    check("ruff", &ruff("null"), true);
    check("ruff", &ruff("\"invalid-syntax\""), true);
    check("ruff", &ruff("\"F401\""), false);
    let mypy = |code: &str| {
        format!(r#"{{"file": "a.py", "line": 1, "code": "{code}", "message": "no", "severity": "error"}}"#)
    };
    check("mypy", &mypy("syntax"), true);
    check("mypy", &mypy("import-not-found"), true);
    check("mypy", &mypy("assignment"), false);
    let pyright = |rule: &str| {
        format!(r#"{{"generalDiagnostics": [{{"file": "a.py", "severity": "error", "message": "no"{rule}}}]}}"#)
    };
    check("pyright", &pyright(""), true);
    check("pyright", &pyright(r#", "rule": "reportMissingImports""#), true);
    check("pyright", &pyright(r#", "rule": "reportArgumentType""#), false);
    check("tsc", "a.ts(1,5): error TS1109: Expression expected.", true);
    check("tsc", "a.ts(1,5): error TS2307: Cannot find module './b'.", true);
    check("tsc", "a.ts(1,5): error TS2322: Type 'string' is not assignable.", false);
    let eslint = |fatal: bool| {
        format!(r#"[{{"filePath": "a.js", "messages": [{{"severity": 2, "fatal": {fatal}, "message": "no"}}]}}]"#)
    };
    check("eslint", &eslint(true), true);
    check("eslint", &eslint(false), false);
    let clippy = |code: &str| {
        format!(
            r#"{{"reason": "compiler-message", "message": {{"level": "error", "message": "no", "code": {code},
            "spans": [{{"is_primary": true, "file_name": "a.rs", "line_start": 1}}]}}}}"#
        )
        .replace('\n', "")
    };
    check("clippy", &clippy(r#"{"code": "E0432"}"#), true);
    check("clippy", &clippy("null"), true);
    check("clippy", &clippy(r#"{"code": "clippy::len_zero"}"#), false);
}

#[test]
fn tables_of_the_user_change_and_add_tools() {
    let changes: toml::Table = "[ruff]\nseconds = 5.0\n[mine]\ncommand = [\"mine\"]\nreads = \"sarif\"\n\
                                category = \"security\"\nfiles = [\"*.py\"]\nseconds = 1.0\nmissing = \"failed\"\n"
        .parse()
        .unwrap();
    let tools = EvaluatorTool::all(&changes).unwrap();
    let by_name = |name: &str| tools.iter().find(|tool| tool.name == name).unwrap();
    assert_eq!((by_name("ruff").seconds, by_name("ruff").reads), (5.0, OutputFormat::Ruff));
    let missing = by_name("mine").result(&run(ToolEnd::NotInstalled, ""));
    assert!(missing.is_failed() && missing.blocking_issues().count() == 1, "{missing:?}");
    for (text, part) in
        [("[ruff]\ncolour = 1", "colour"), ("[x]\nseconds = 1.0", "[x]"), ("[ruff]\ncommand = []", "program")]
    {
        let error = EvaluatorTool::all(&text.parse().unwrap()).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_tool_is_for_its_files() {
    let paths = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert!(tool("pytest").is_for_files(&paths(&["tests/test_a.py"])));
    assert!(!tool("pytest").is_for_files(&paths(&["tests/a.py", "test_a.py.txt"])));
    assert!(tool("clippy").is_for_files(&paths(&["crates/a/Cargo.toml"])));
    assert!(!tool("clippy").is_for_files(&paths(&["NotCargo.toml"])));
}
