//! `hone research`: the real binary with the built-in model, whose answers may or may not be supported.

use crate::support::{Home, embedder, smollm2};
use serde_json::Value;

const MILL: &str =
    "# The mill on the dyke\n\nThe windmill was built in 1792 by Jan Pieters.\nIt burned down in 1871.\n";
const TEA: &str = "<title>Tea</title>\n<script>let tea = 1;</script>\n<p>Green tea is brewed at <b>75 °C</b>.</p>\n";

fn home() -> Home {
    let home = Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder());
    home.write("docs/mill.md", MILL.as_bytes());
    home.write("docs/tea.html", TEA.as_bytes());
    home.write("docs/photo.png", b"\0\0");
    home.write("docs/cut.pdf", b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog");
    home
}

#[test]
fn an_answer_has_no_unsupported_claims_names_their_lines_and_is_remembered_behind_the_gate() {
    let home = home();
    let docs = home.path("docs").display().to_string();
    let question = "Who built the windmill?";
    let run = home.run(&["research", question, "--file", &docs, "-m", &smollm2(), "--json"]);
    let result: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
    let lines = &result["passages"][0]["place"]["lines"];
    assert!(lines["file"].as_str().unwrap().ends_with("mill.md"), "{result}");
    assert_eq!((&lines["first"], &lines["last"]), (&1.into(), &4.into()), "{result}");
    let skipped: Vec<&str> =
        result["skipped"].as_array().unwrap().iter().map(|file| file["reason"].as_str().unwrap()).collect();
    assert!(skipped[0].starts_with("is not a PDF that can be read"), "{skipped:?}");
    assert_eq!(skipped[1..], ["is a binary file"]);
    let claims = result["claims"].as_array().unwrap();
    let is_marked = claims.iter().any(|claim| claim["support"].is_null());
    let shown = claims.iter().filter(|claim| claim["support"] == "supported" || claim["support"].is_null()).count();
    if shown == 0 {
        assert_eq!((&result["answer"], run.code), (&Value::Null, 1), "{result}");
        assert!(run.stderr.contains("no answer found in these sources"), "{}", run.stderr);
        assert_eq!(result["query_id"], Value::Null, "{result}");
    } else {
        let answer = result["answer"].as_str().unwrap();
        assert_eq!(answer.lines().count(), shown, "{result}");
        assert_eq!((answer.contains("(not checked)"), run.code == 3), (is_marked, is_marked), "{result}");
        assert_eq!(result["state"], "unreviewed", "the model has not passed an examination: {result}");
    }
}

#[test]
fn sources_that_cannot_be_read_are_named() {
    let home = home();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let run = home.run(&[&["research", "Why?", "-m", &smollm2()], arguments].concat());
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
    };
    let path = |name: &str| home.path(name).display().to_string();
    check(&["--no-memory"], 2, "there are no sources");
    check(&["--file", &path("docs/photo.png")], 1, "photo.png is a binary file");
    check(&["--file", &path("docs/cut.pdf")], 1, "cut.pdf is not a PDF that can be read");
    check(&["--file", &path("absent.md")], 1, "absent.md cannot be read");
    check(&["--file", &path("*.rs")], 1, "no file matches");
}
