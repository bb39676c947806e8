//! Test runners.

use std::collections::BTreeMap;

use hone_protocol::TestCounts;

use super::diagnostics;
use super::{FailedTest, ToolFindings, json_in, json_lines};

/// Maximum quoted lines of output from a build script or a plugin.
const LONGEST_EXCERPT: usize = 20;

/// Reads the last line with counts, such as `== 1 failed, 2 passed in 0.1s ==`, the lines `FAILED test - message`, and
/// the tracebacks under `____ test ____`.
pub(super) fn pytest(text: &str, stderr: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::of_tests();
    if let Some(error) = broken_conftest(stderr) {
        findings.err(true, error);
        return Ok(findings);
    }
    let summary = text.lines().rev().map(|line| line.trim_matches([' ', '='])).find(|line| {
        line.contains(" in ") && (line.starts_with("no tests ran") || line.starts_with(|c: char| c.is_ascii_digit()))
    });
    let Some(summary) = summary else { return Err("it has no summary such as \"2 passed in 0.1s\"".to_owned()) };
    for part in summary.split(" in ").next().unwrap_or_default().split(',') {
        let Some((number, what)) = part.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        let counts = findings.counts();
        match what {
            "passed" | "xpassed" => counts.passed += number,
            "failed" | "error" | "errors" => counts.failed += number,
            "skipped" | "xfailed" => counts.skipped += number,
            _ => {}
        }
    }
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")) else { continue };
        let (name, message) = rest.split_once(" - ").unwrap_or((rest, ""));
        let (name, message) = (name.trim(), message.trim());
        let message = format!("{message}\n{}", pytest_traceback(text, name));
        findings.failed_tests.push(FailedTest { name: name.to_owned(), message: message.trim_end().to_owned() });
    }
    Ok(findings)
}

/// The reason why no test ran: a `conftest.py` that cannot be loaded.
fn broken_conftest(text: &str) -> Option<String> {
    let error = text.lines().skip_while(|line| !line.starts_with("ImportError while loading conftest"));
    let lines: Vec<&str> = error.take(LONGEST_EXCERPT).collect();
    (!lines.is_empty()).then(|| lines.join("\n").trim_end().to_owned())
}

/// The traceback of a failed test, and its output; empty if pytest does not show it.
fn pytest_traceback(text: &str, test: &str) -> String {
    // The title of `test_a.py::TestB::test_c` is `TestB.test_c`, and the title of a file is `ERROR collecting
    // test_a.py`.
    let title = test.split_once("::").map_or(test.to_owned(), |(_, name)| name.replace("::", "."));
    let is_of_test = |line: &str| {
        let inner = line.trim_matches(['_', ' ']);
        let is_same = inner == title || inner.strip_suffix(&title).is_some_and(|before| before.ends_with(' '));
        line.starts_with("__") && is_same
    };
    let after = text.lines().skip_while(|line| !is_of_test(line)).skip(1);
    let is_end =
        |line: &str| line.starts_with("__") && line.ends_with("__") || line.starts_with("==") && line.ends_with("==");
    after.take_while(|line| !is_end(line)).collect::<Vec<_>>().join("\n")
}

/// Reads libtest's lines `test name ... FAILED` and `test result: ...`, and the compiler's errors, as JSON or as text
/// on stderr.
pub(super) fn cargo(text: &str, stderr: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings { tests: Some(TestCounts::default()), ..diagnostics::cargo(text)? };
    let mut has_result = false;
    for line in text.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            has_result = true;
            let after_status = result.split_once(". ").map_or(result, |(_, counts)| counts);
            for part in after_status.split(';') {
                let Some((number, what)) = part.trim().split_once(' ') else { continue };
                let Ok(number) = number.parse::<usize>() else { continue };
                let counts = findings.counts();
                match what {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    "ignored" => counts.skipped += number,
                    _ => {}
                }
            }
        } else if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            let message = libtest_message(text, name);
            findings.failed_tests.push(FailedTest { name: name.to_owned(), message });
        }
    }
    if findings.errors.is_empty() && !has_result {
        let errors = stderr.lines().filter(|line| line.starts_with("error"));
        findings.errors = errors.map(|error| with_build_script(error, stderr)).collect();
        if findings.errors.is_empty() {
            return Err("it has neither a test result nor an error of the compiler".to_owned());
        }
    }
    Ok(findings)
}

/// An error of cargo itself, with the output of the failed build script.
fn with_build_script(error: &str, stderr: &str) -> String {
    let after_error = stderr.split_once(error).map_or("", |(_, after)| after);
    let written = after_error.split_once("--- stderr\n").map_or("", |(_, after)| after);
    let lines: Vec<&str> =
        written.lines().map(str::trim).filter(|line| !line.is_empty()).take(LONGEST_EXCERPT).collect();
    match error.contains("custom build command") && !lines.is_empty() {
        true => format!("{error}\n{}", lines.join("\n")),
        false => error.to_owned(),
    }
}

/// The output of a failed test, as libtest repeats it.
fn libtest_message(text: &str, name: &str) -> String {
    let begins = format!("---- {name} stdout ----");
    let Some((_, after)) = text.split_once(&begins) else { return String::new() };
    let lines = after
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("---- ") && *line != "failures:" && *line != "stack backtrace:");
    let kept: Vec<&str> = lines.filter(|line| !line.trim().is_empty() && !line.starts_with("note:")).collect();
    kept.join("\n")
}

/// Reads the Test Anything Protocol: lines `ok 1 - name` and `not ok 2 - name`, indented for subtests. A test with
/// subtests does not count itself.
pub(super) fn tap(text: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::of_tests();
    if !text.lines().any(|line| line.trim_start().starts_with("TAP version") || is_plan(line.trim())) {
        return Err("it is not TAP: it has neither a version nor a plan".to_owned());
    }
    // The depth of the previous line, and the maximum depth of subtests since the last test at a smaller depth.
    let mut deepest_since = 0;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim_start();
        // The details of a failed test follow it, indented.
        if let (Some(message), Some(test)) = (line.strip_prefix("error: "), findings.failed_tests.last_mut())
            && test.message.is_empty()
            && depth > deepest_since
        {
            test.message = message.trim_matches('\'').to_owned();
        }
        // The lines of a text that begins with `|-`, and the stack, are indented further.
        if let Some(test) = findings.failed_tests.last_mut()
            && depth > deepest_since
            && !test.message.is_empty()
            && !is_detail_of_runner(line)
        {
            match test.message.as_str() {
                "|-" | ">-" => test.message = line.to_owned(),
                _ if !test.message.starts_with(line) && !line.starts_with("error: ") => {
                    test.message.push_str(&format!("\n{line}"));
                }
                _ => {}
            }
        }
        let (passed, rest) = match (line.strip_prefix("not ok"), line.strip_prefix("ok")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => continue,
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            continue;
        }
        let is_parent = deepest_since > depth;
        deepest_since = depth;
        if is_parent {
            continue;
        }
        let name =
            rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().trim_start_matches("- ");
        let (name, directive) = name.split_once(" # ").unwrap_or((name, ""));
        let directive = directive.to_ascii_uppercase();
        if directive.starts_with("SKIP") || directive.starts_with("TODO") {
            findings.counts().skipped += 1;
        } else if passed {
            findings.counts().passed += 1;
        } else {
            findings.fail(name, "");
        }
    }
    Ok(findings)
}

/// Whether a line of a failed test's details describes how the runner ran it, rather than how it failed.
fn is_detail_of_runner(line: &str) -> bool {
    let keys = ["duration_ms:", "type:", "failureType:", "code:", "name:", "operator:", "---", "...", "#"];
    line.is_empty()
        || keys.iter().any(|key| line.starts_with(key))
        || line.starts_with("ok ")
        || line.starts_with("not ok ")
}

/// `1..4`
fn is_plan(line: &str) -> bool {
    line.strip_prefix("1..").is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Reads `testResults`, each a file with `assertionResults`; a file that cannot be loaded has its own message.
pub(super) fn vitest(text: &str) -> Result<ToolFindings, String> {
    let value = json_in(text)?;
    let mut findings = ToolFindings::of_tests();
    let files = value["testResults"].as_array().ok_or("its output is JSON, but not of the expected form")?;
    for file in files {
        let tests = file["assertionResults"].as_array().map(Vec::as_slice).unwrap_or_default();
        for test in tests {
            match test["status"].as_str().unwrap_or_default() {
                "passed" => findings.counts().passed += 1,
                "failed" => {
                    let messages = test["failureMessages"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let messages: Vec<&str> = messages.iter().filter_map(|message| message.as_str()).collect();
                    findings.fail(test["fullName"].as_str().unwrap_or_default().trim(), &messages.join("\n"));
                }
                _ => findings.counts().skipped += 1,
            }
        }
        if file["status"] == "failed" && !tests.iter().any(|test| test["status"] == "failed") {
            findings.fail(file["name"].as_str().unwrap_or_default(), file["message"].as_str().unwrap_or_default());
        }
    }
    Ok(findings)
}

/// Reads lines `(pass) name [1.00ms]`, `(fail) name` and `(skip) name`, or the summary alone: ` 3 pass`, ` 1 fail`.
pub(super) fn bun(text: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::of_tests();
    let mut summary = BTreeMap::new();
    let mut has_summary = false;
    for line in text.lines().map(str::trim) {
        has_summary |= line.starts_with("Ran ") && line.contains(" test");
        if let Some((number, what @ ("pass" | "fail" | "skip" | "todo" | "error" | "errors"))) = line.split_once(' ')
            && let Ok(number) = number.parse::<usize>()
        {
            summary.insert(what, number);
        }
        if let Some(name) = line.strip_prefix("(fail)").or_else(|| line.strip_prefix('✗')) {
            let name = name.rsplit_once(" [").map_or(name, |(name, _)| name).trim();
            findings.failed_tests.push(FailedTest { name: name.to_owned(), message: String::new() });
        } else if let Some(message) = line.strip_prefix("error: ") {
            findings.errors.push(message.to_owned());
        }
    }
    if !has_summary {
        return Err("it has no summary such as \"Ran 2 tests across 1 file\"".to_owned());
    }
    let number = |names: &[&str]| names.iter().filter_map(|name| summary.get(name)).sum::<usize>();
    *findings.counts() = TestCounts {
        passed: number(&["pass"]),
        failed: number(&["fail", "error", "errors"]),
        skipped: number(&["skip", "todo"]),
    };
    // These errors belong to the failed tests.
    if findings.counts().failed > 0 {
        let errors = std::mem::take(&mut findings.errors);
        for (test, message) in findings.failed_tests.iter_mut().zip(errors) {
            test.message = message;
        }
    }
    Ok(findings)
}

/// Reads one object per line with `Action`, `Package` and `Test`. A test with subtests does not count itself.
pub(super) fn go(text: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::of_tests();
    let lines = json_lines(text);
    if lines.is_empty() {
        return Err("its output has no line of JSON".to_owned());
    }
    let mut outputs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ended: BTreeMap<String, String> = BTreeMap::new();
    let mut failed_packages = Vec::new();
    for line in &lines {
        let action = line["Action"].as_str().unwrap_or_default();
        let package = line["Package"].as_str().or(line["ImportPath"].as_str()).unwrap_or_default();
        let test = line["Test"].as_str().map(|test| format!("{package}.{test}"));
        let name = test.clone().unwrap_or_else(|| package.to_owned());
        match (action, test) {
            ("output" | "build-output", _) => {
                let output = line["Output"].as_str().unwrap_or_default().trim();
                let is_frame = output.starts_with("===") || output.starts_with("---") || output.is_empty();
                if !is_frame {
                    outputs.entry(name).or_default().push(output.to_owned());
                }
            }
            ("pass" | "fail" | "skip", Some(test)) => drop(ended.insert(test, action.to_owned())),
            ("fail" | "build-fail", None) => failed_packages.push(name),
            _ => {}
        }
    }
    let has_subtests = |test: &str| ended.keys().any(|other| other.starts_with(&format!("{test}/")));
    for (test, action) in ended.iter().filter(|(test, _)| !has_subtests(test)) {
        match action.as_str() {
            "pass" => findings.counts().passed += 1,
            "skip" => findings.counts().skipped += 1,
            _ => findings.fail(test, &outputs.get(test).cloned().unwrap_or_default().join("\n")),
        }
    }
    failed_packages.dedup();
    for package in failed_packages {
        let has_failed_test = findings.failed_tests.iter().any(|test| test.name.starts_with(&format!("{package}.")));
        if !has_failed_test && let Some(output) = outputs.get(&package) {
            findings.errors.push(format!("{package}: {}", output.join("\n")));
        }
    }
    Ok(findings)
}
