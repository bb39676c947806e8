//! Linters, type checkers and compilers.

use serde_json::Value;

use super::{Findings, diagnostic, json_in, json_lines};

/// An array of objects with `filename`, `location.row`, `code` and `message`.
pub(super) fn ruff(text: &str) -> Result<Findings, String> {
    let value = json_in(text)?;
    let errors = array(&value)?
        .iter()
        .map(|one| {
            let line = one["location"]["row"].as_u64();
            diagnostic(text_of(&one["filename"]), line, one["code"].as_str(), text_of(&one["message"]))
        })
        .collect();
    Ok(Findings { errors, ..Findings::default() })
}

/// An object with `generalDiagnostics`, whose lines count from 0.
pub(super) fn pyright(text: &str) -> Result<Findings, String> {
    let value = json_in(text)?;
    let mut findings = Findings::default();
    for one in array(&value["generalDiagnostics"])? {
        let line = one["range"]["start"]["line"].as_u64().map(|line| line + 1);
        let found = diagnostic(text_of(&one["file"]), line, one["rule"].as_str(), text_of(&one["message"]));
        sort(&mut findings, one["severity"] == "error", found);
    }
    Ok(findings)
}

/// An object a line with `file`, `line`, `code`, `message` and `severity`; nothing if there is nothing to say.
pub(super) fn mypy(text: &str) -> Result<Findings, String> {
    let mut findings = Findings::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Success")) {
        let Ok(one) = serde_json::from_str::<Value>(line) else { continue };
        let found =
            diagnostic(text_of(&one["file"]), one["line"].as_u64(), one["code"].as_str(), text_of(&one["message"]));
        sort(&mut findings, one["severity"] == "error", found);
    }
    Ok(findings)
}

/// An object a line; those with the reason `compiler-message` hold a message of the compiler.
pub(super) fn cargo(text: &str) -> Result<Findings, String> {
    let mut findings = Findings::default();
    for line in json_lines(text).iter().filter(|line| line["reason"] == "compiler-message") {
        let message = &line["message"];
        let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(span) = spans.iter().find(|span| span["is_primary"] == true) else {
            // "aborting due to 2 previous errors" and the like say nothing of their own, unless they are all there is.
            if message["level"] == "error" && !text_of(&message["message"]).starts_with("aborting due to") {
                findings.errors.push(diagnostic("", None, None, text_of(&message["message"])));
            }
            continue;
        };
        let (file, line) = (text_of(&span["file_name"]), span["line_start"].as_u64());
        let found = diagnostic(file, line, message["code"]["code"].as_str(), text_of(&message["message"]));
        let level = text_of(&message["level"]);
        // A package's library is compiled once more for its tests, with the same messages.
        let list = if level.starts_with("error") { &mut findings.errors } else { &mut findings.warnings };
        if !list.contains(&found) {
            list.push(found);
        }
    }
    Ok(findings)
}

/// An array of files, each with `messages`, in which severity 2 is an error.
pub(super) fn eslint(text: &str) -> Result<Findings, String> {
    let value = json_in(text)?;
    let mut findings = Findings::default();
    for file in array(&value)? {
        for one in array(&file["messages"])? {
            let (line, rule) = (one["line"].as_u64(), one["ruleId"].as_str());
            let found = diagnostic(text_of(&file["filePath"]), line, rule, text_of(&one["message"]));
            sort(&mut findings, one["severity"] == 2, found);
        }
    }
    Ok(findings)
}

/// Lines such as `src/a.ts(3,5): error TS2322: message`, or `error TS18003: message`.
pub(super) fn tsc(text: &str) -> Result<Findings, String> {
    let mut findings = Findings::default();
    for line in text.lines() {
        let Some((place, rest)) = line.split_once("error TS") else { continue };
        let Some((code, message)) = rest.split_once(':') else { continue };
        if code.is_empty() || !code.chars().all(|c| c.is_ascii_digit()) {
            continue;
        }
        let place = place.trim_end().trim_end_matches(':');
        let (file, position) = place.rsplit_once('(').unwrap_or((place, ""));
        let line = position.split(',').next().and_then(|number| number.parse().ok());
        findings.errors.push(diagnostic(file, line, Some(&format!("TS{code}")), message));
    }
    Ok(findings)
}

/// `runs`, each with `results`, whose level is `warning` where none is given.
pub(super) fn sarif(text: &str) -> Result<Findings, String> {
    let value = json_in(text)?;
    let mut findings = Findings::default();
    for run in array(&value["runs"])? {
        for one in run["results"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let place = &one["locations"][0]["physicalLocation"];
            let (file, line) = (text_of(&place["artifactLocation"]["uri"]), place["region"]["startLine"].as_u64());
            let found = diagnostic(file, line, one["ruleId"].as_str(), text_of(&one["message"]["text"]));
            sort(&mut findings, one["level"] == "error", found);
        }
    }
    Ok(findings)
}

fn sort(findings: &mut Findings, is_error: bool, found: String) {
    if is_error { findings.errors.push(found) } else { findings.warnings.push(found) }
}

fn array(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| "its output is JSON, but not of the expected form".to_owned())
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
