//! `hone doctor --isolation`: whether answers and keys learn anything of each other.

use serde_json::json;

use crate::support::served::Served;
use crate::support::{Home, smollm2};

#[test]
fn doctor_shows_that_concurrent_answers_are_isolated() {
    let home = Home::new();
    let report = home.json(&["doctor", "--isolation", "--model", &smollm2(), "--json"]);
    assert_eq!((&report["failures"], &report["requests"]), (&json!([]), &json!(8)), "{report:#}");
    assert!(report["tokens"].as_u64().unwrap() > 100, "{report:#}");
}

/// As an operator certifies a server: with two of its keys, from another process.
#[test]
fn doctor_shows_that_the_keys_of_a_server_are_isolated() {
    let new_key = |_| {
        let run = Home::new().run(&["serve", "--new-key"]);
        let hash = run.stderr.split('"').nth(1).unwrap_or_else(|| panic!("{run:?}")).to_owned();
        (run.stdout.trim().to_owned(), format!("\"{hash}\""))
    };
    let (keys, hashes): (Vec<String>, Vec<String>) = (0..2).map(new_key).unzip();
    let home = Home::new().variable("HONE_SERVER_KEY_HASHES", &format!("[{}]", hashes.join(", ")));
    let served = Served::start_in(home, &[]);
    let file = served.home.path("keys.txt");
    std::fs::write(&file, keys.join("\n")).unwrap();
    let arguments = ["doctor", "--server", &served.address, "--keys", file.to_str().unwrap(), "--json"];
    let report = served.home.json(&arguments);
    assert_eq!(report["failures"], json!([]), "{report:#}");
    assert_eq!((&report["keys"], &report["timed"]), (&json!(2), &json!(16)), "{report:#}");
    assert!(report["searched"].as_u64().unwrap() > 20 && report["cancelled"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(report["unsearched"], json!([]), "{report:#}");
    let run = served.home.run(&["memory", "list", "-n", "0", "--json"]);
    let is_asked = run.stdout.contains("You keep notes") || run.stdout.contains("The code is");
    assert!(run.code == 0 && !is_asked, "the server was to forget it: {}", run.stdout);

    std::fs::write(&file, format!("{}\nhone-nobody\n", keys[0])).unwrap();
    let run = served.home.run(&arguments);
    assert!(run.code == 1 && run.stderr.contains("401"), "{run:?}");
}
