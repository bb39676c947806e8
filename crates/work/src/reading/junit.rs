//! JUnit's XML, which most test runners can write.

use roxmltree::{Document, Node};

use super::ToolFindings;

/// Reads the elements `testcase` at any depth, with `failure`, `error` or `skipped` in them.
pub(super) fn junit(text: &str) -> Result<ToolFindings, String> {
    let document = Document::parse(text).map_err(|error| format!("its report is not XML: {error}"))?;
    if !["testsuites", "testsuite"].contains(&document.root_element().tag_name().name()) {
        return Err("its report is XML, but not of JUnit's form".to_owned());
    }
    let mut findings = ToolFindings::of_tests();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let child = |name: &str| case.children().find(|node| node.has_tag_name(name));
        if let Some(failure) = child("failure").or_else(|| child("error")) {
            findings.fail(&name(case), &message(failure));
        } else if child("skipped").is_some() {
            findings.counts().skipped += 1;
        } else {
            findings.counts().passed += 1;
        }
    }
    Ok(findings)
}

fn name(case: Node<'_, '_>) -> String {
    let part = |attribute| case.attribute(attribute).filter(|text| !text.is_empty());
    [part("classname"), part("name")].into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// The message, and the traceback under it.
fn message(failure: Node<'_, '_>) -> String {
    let (message, text) = (failure.attribute("message").unwrap_or_default(), failure.text().unwrap_or_default());
    if text.starts_with(message) { text.to_owned() } else { format!("{message}\n{text}") }
}
