//! Linters, type checkers and compilers.

use serde_json::Value;

use super::{ToolFindings, diagnostic, json_in, json_lines};

/// Reads an array of objects with `filename`, `location.row`, `code` and `message`.
pub(super) fn ruff(text: &str) -> Result<ToolFindings, String> {
    let value = json_in(text)?;
    let mut findings = ToolFindings::default();
    for one in array(&value)? {
        let (line, code) = (one["location"]["row"].as_u64(), one["code"].as_str());
        // A syntax error had no code before ruff 0.12.
        let is_fatal = matches!(code, None | Some("invalid-syntax" | "E902" | "E999"));
        findings.err(is_fatal, diagnostic(text_of(&one["filename"]), line, code, text_of(&one["message"])));
    }
    Ok(findings)
}

/// Reads an object with `generalDiagnostics`, whose lines count from 0.
pub(super) fn pyright(text: &str) -> Result<ToolFindings, String> {
    let value = json_in(text)?;
    let mut findings = ToolFindings::default();
    for one in array(&value["generalDiagnostics"])? {
        let line = one["range"]["start"]["line"].as_u64().map(|line| line + 1);
        let rule = one["rule"].as_str();
        // A syntax error has no rule.
        let is_fatal = matches!(rule, None | Some("reportMissingImports"));
        let found = diagnostic(text_of(&one["file"]), line, rule, text_of(&one["message"]));
        sort(&mut findings, Severity::of(one["severity"] == "error", is_fatal), found);
    }
    Ok(findings)
}

/// Reads one object per line with `file`, `line`, `code`, `message` and `severity`; empty output means no findings.
pub(super) fn mypy(text: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Success")) {
        let Ok(one) = serde_json::from_str::<Value>(line) else { continue };
        let code = one["code"].as_str();
        let is_fatal = matches!(code, Some("syntax" | "import-not-found"));
        let found = diagnostic(text_of(&one["file"]), one["line"].as_u64(), code, text_of(&one["message"]));
        sort(&mut findings, Severity::of(one["severity"] == "error", is_fatal), found);
    }
    Ok(findings)
}

/// Reads one object per line; objects with the reason `compiler-message` hold a message of the compiler.
pub(super) fn cargo(text: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::default();
    for line in json_lines(text).iter().filter(|line| line["reason"] == "compiler-message") {
        let message = &line["message"];
        let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(span) = spans.iter().find(|span| span["is_primary"] == true) else {
            // "aborting due to 2 previous errors" and the like add no information, unless there is no other message.
            if message["level"] == "error" && !text_of(&message["message"]).starts_with("aborting due to") {
                findings.err(true, diagnostic("", None, None, text_of(&message["message"])));
            }
            continue;
        };
        let (file, line) = (text_of(&span["file_name"]), span["line_start"].as_u64());
        let code = message["code"]["code"].as_str();
        let found = diagnostic(file, line, code, text_of(&message["message"]));
        // A package's library is compiled again for its tests, with the same messages.
        if !findings.errors.contains(&found) && !findings.warnings.contains(&found) {
            let is_error = text_of(&message["level"]).starts_with("error");
            sort(&mut findings, Severity::of(is_error, is_of_compiler(code)), found);
        }
    }
    Ok(findings)
}

/// Reads an array of files, each with `messages`, in which severity 2 is an error.
pub(super) fn eslint(text: &str) -> Result<ToolFindings, String> {
    let value = json_in(text)?;
    let mut findings = ToolFindings::default();
    for file in array(&value)? {
        for one in array(&file["messages"])? {
            let (line, rule) = (one["line"].as_u64(), one["ruleId"].as_str());
            let found = diagnostic(text_of(&file["filePath"]), line, rule, text_of(&one["message"]));
            let is_fatal = one["fatal"] == true || rule == Some("import/no-unresolved");
            sort(&mut findings, Severity::of(one["severity"] == 2, is_fatal), found);
        }
    }
    Ok(findings)
}

/// Reads lines such as `src/a.ts(3,5): error TS2322: message`, or `error TS18003: message`.
pub(super) fn tsc(text: &str) -> Result<ToolFindings, String> {
    let mut findings = ToolFindings::default();
    for line in text.lines() {
        let Some((place, rest)) = line.split_once("error TS") else { continue };
        let Some((code, message)) = rest.split_once(':') else { continue };
        if code.is_empty() || !code.chars().all(|c| c.is_ascii_digit()) {
            continue;
        }
        let place = place.trim_end().trim_end_matches(':');
        let (file, position) = place.rsplit_once('(').unwrap_or((place, ""));
        let line = position.split(',').next().and_then(|number| number.parse().ok());
        // 1xxx are errors of the parser; 2307 is a missing module.
        let is_fatal = code == "2307" || (code.len() == 4 && code.starts_with('1'));
        findings.err(is_fatal, diagnostic(file, line, Some(&format!("TS{code}")), message));
    }
    Ok(findings)
}

/// Reads `runs`, each with `results`, whose level defaults to `warning`.
pub(super) fn sarif(text: &str) -> Result<ToolFindings, String> {
    let value = json_in(text)?;
    let mut findings = ToolFindings::default();
    for run in array(&value["runs"])? {
        for one in run["results"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let place = &one["locations"][0]["physicalLocation"];
            let (file, line) = (text_of(&place["artifactLocation"]["uri"]), place["region"]["startLine"].as_u64());
            let found = diagnostic(file, line, one["ruleId"].as_str(), text_of(&one["message"]["text"]));
            sort(&mut findings, Severity::of(one["level"] == "error", false), found);
        }
    }
    Ok(findings)
}

/// The severity of a finding.
#[derive(Clone, Copy)]
enum Severity {
    Warning,
    Error,
    /// The code cannot run.
    Fatal,
}

impl Severity {
    fn of(is_error: bool, is_fatal: bool) -> Severity {
        match (is_error, is_fatal) {
            (false, _) => Severity::Warning,
            (true, false) => Severity::Error,
            (true, true) => Severity::Fatal,
        }
    }
}

/// Whether an error with this code comes from rustc itself; lints have names.
fn is_of_compiler(code: Option<&str>) -> bool {
    let is_number = |code: &str| code.strip_prefix('E').is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    code.is_none_or(is_number)
}

fn sort(findings: &mut ToolFindings, severity: Severity, found: String) {
    match severity {
        Severity::Warning => findings.warnings.push(found),
        Severity::Error => findings.err(false, found),
        Severity::Fatal => findings.err(true, found),
    }
}

fn array(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| "its output is JSON, but not of the expected form".to_owned())
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
