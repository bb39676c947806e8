//! The dependency rules of ARCHITECTURE.md, checked against cargo's metadata and the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::root;

mod calls;
mod modules;
mod source_reader;

/// Every crate with the crates of the workspace that it may use, lowest first.
const LAYERS: [(&str, &[&str]); 16] = [
    ("hone-protocol", &[]),
    ("hone-files", &[]),
    ("hone-containment", &[]),
    ("hone-bus", &["hone-protocol"]),
    ("hone-fleet", &["hone-protocol"]),
    ("hone-kernels", &[]),
    ("hone-kernels-cuda", &["hone-kernels"]),
    ("hone-engine", &["hone-protocol", "hone-files", "hone-kernels", "hone-kernels-cuda"]),
    ("hone-models", &["hone-protocol", "hone-files"]),
    ("hone-memory", &["hone-protocol", "hone-files"]),
    ("hone-judging", &["hone-protocol"]),
    ("hone-work", &["hone-protocol", "hone-files", "hone-containment", "hone-judging"]),
    ("hone-agents", &["hone-protocol", "hone-files", "hone-bus", "hone-judging", "hone-memory"]),
    (
        "hone-app",
        &[
            "hone-protocol",
            "hone-files",
            "hone-containment",
            "hone-bus",
            "hone-fleet",
            "hone-engine",
            "hone-models",
            "hone-memory",
            "hone-judging",
            "hone-work",
            "hone-agents",
        ],
    ),
    (
        "hone-server",
        &["hone-protocol", "hone-files", "hone-bus", "hone-memory", "hone-judging", "hone-agents", "hone-app"],
    ),
    (
        "hone",
        &[
            "hone-protocol",
            "hone-files",
            "hone-containment",
            "hone-bus",
            "hone-fleet",
            "hone-engine",
            "hone-models",
            "hone-memory",
            "hone-judging",
            "hone-work",
            "hone-agents",
            "hone-app",
            "hone-server",
        ],
    ),
];

/// Packages that only one crate may name among its dependencies.
const OWNERS: [(&str, &[&str]); 7] = [
    ("hone-fleet", &["async-nats"]),
    ("hone-kernels-cuda", &["cudarc"]),
    ("hone-engine", &["candle-core", "candle-nn", "candle-transformers", "tokenizers"]),
    ("hone-models", &["hf-hub", "rustls", "rustls-native-certs", "ureq"]),
    ("hone-memory", &["sled", "sqlx", "usearch"]),
    ("hone-server", &["axum", "hyper"]),
    ("hone", &["clap", "crossterm", "ctrlc", "indicatif", "inquire", "reedline", "signal-hook"]),
];

/// Sources and folders, from the workspace's root, that may hold `unsafe`.
const UNSAFE_ALLOWED: [&str; 4] = [
    "crates/kernels/",
    "crates/kernels-cuda/",
    "crates/engine/src/gguf/mapping.rs",
    "crates/engine/tests/it/support/counting.rs",
];

/// Sources that read untrusted folders, where a name may stand for a pipe, a device or a link outside.
const OF_STRANGERS: [&str; 5] = [
    "crates/agents/src/research",
    "crates/models/src/elsewhere",
    "crates/models/src/pull/import.rs",
    "crates/work/src/evaluating",
    "crates/work/src/tasks/staging.rs",
];

/// Functions that open any file.
const OPENERS: [&str; 3] = ["File::open", "fs::read", "fs::read_to_string"];

/// Functions that a request can make slow, and others that wait for the disk.
const SLOW: [&str; 12] = [
    "html_of",
    "exchange_json",
    "serde_json::from_slice",
    "serde_json::from_str",
    "unpacked",
    "File::open",
    "File::create",
    "fs::read",
    "fs::read_to_string",
    "fs::read_dir",
    "fs::write",
    "fs::metadata",
];

/// cargo's metadata of the workspace's packages.
fn packages() -> Vec<Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Dependencies of every package of the workspace, without those for tests and builds.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    packages()
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap().iter();
            let normal = all.filter(|dependency| dependency["kind"].is_null());
            let names = normal.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), names.collect())
        })
        .collect()
}

#[test]
fn every_crate_uses_only_crates_below_it() {
    let dependencies = dependencies();
    let known: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a crate is missing from LAYERS or from the workspace");
    for (name, allowed) in LAYERS {
        let used = dependencies[name].iter().map(String::as_str).filter(|used| known.contains(used));
        let forbidden: Vec<&str> = used.filter(|used| !allowed.contains(used)).collect();
        assert!(forbidden.is_empty(), "{name} may not depend on {forbidden:?}");
    }
}

#[test]
fn layers_have_no_cycle() {
    for (index, (name, allowed)) in LAYERS.iter().enumerate() {
        let below: Vec<&str> = LAYERS[..index].iter().map(|(name, _)| *name).collect();
        assert!(allowed.iter().all(|used| below.contains(used)), "{name} uses a crate that does not stand below it");
    }
}

#[test]
fn packages_with_one_owner_are_used_by_it_alone() {
    for (name, used) in dependencies() {
        for (owner, packages) in OWNERS {
            let foreign: Vec<&&str> =
                packages.iter().filter(|package| name != owner && used.contains(**package)).collect();
            assert!(foreign.is_empty(), "only {owner} may depend on {foreign:?}, and {name} does");
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_is_allowed() {
    let mut sources = Vec::new();
    for folder in ["crates", "tests"] {
        collect_sources(&root().join(folder), &mut sources);
    }
    assert!(sources.len() > 30, "the sources were not found");
    for source in sources {
        let name = source.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&source).unwrap();
        let code = text.lines().map(|line| line.split("//").next().unwrap());
        // Written in two parts, so that this test does not find itself.
        let marks = [concat!("uns", "afe {"), concat!("uns", "afe fn"), concat!("uns", "afe impl")];
        let holds_unsafe = code.into_iter().any(|line| marks.iter().any(|mark| line.contains(mark)));
        let is_allowed = UNSAFE_ALLOWED.iter().any(|allowed| name.starts_with(allowed));
        assert!(!holds_unsafe || is_allowed, "{name} may not hold unsafe code");
    }
}

/// `hone_files` opens regular files only, and reads no more than the given limit.
#[test]
fn files_of_strangers_are_opened_as_such() {
    let mut sources = Vec::new();
    for place in OF_STRANGERS {
        let place = root().join(place);
        assert!(place.exists(), "{}", place.display());
        if place.is_file() { sources.push(place) } else { collect_sources(&place, &mut sources) }
    }
    for source in sources {
        let found = calls::calls_in(&source).into_iter().find(|call| OPENERS.contains(&&*call.name));
        assert!(found.is_none(), "{}: {} opens pipes and devices, too", source.display(), found.unwrap().name);
    }
}

/// Threads that answer requests never block for long: `threads.rs` has others for slow work. Only calls directly in an
/// async function are seen.
#[test]
fn async_functions_of_the_server_call_nothing_slow() {
    let mut sources = Vec::new();
    collect_sources(&root().join("crates/server/src"), &mut sources);
    assert!(sources.len() > 30, "the sources were not found");
    let mut found = Vec::new();
    for source in sources {
        let slow = calls::calls_in(&source).into_iter().filter(|call| call.is_async && SLOW.contains(&&*call.name));
        found.extend(slow.map(|call| format!("{}: {}", source.display(), call.name)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The tests do not run examples in the documentation, so there must be none that look tested.
#[test]
fn blocks_in_documentation_are_no_code() {
    let mut sources = Vec::new();
    collect_sources(&root().join("crates"), &mut sources);
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        let marks = text.lines().map(str::trim_start).filter_map(|line| {
            let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
            text.trim_start().strip_prefix("```")
        });
        for begin in marks.step_by(2) {
            assert!(["text", "toml", "json"].contains(&begin), "{}: a block of {begin:?}", source.display());
        }
    }
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

#[test]
fn modules_of_one_parent_use_each_other_in_one_direction() {
    let mut found = Vec::new();
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if ["lib", "bin"].contains(&kind) {
                let modules = modules::Modules::read(Path::new(target["src_path"].as_str().unwrap()));
                let name = package["name"].as_str().unwrap();
                found.extend(modules::cycles(&modules.uses()).iter().map(|cycle| format!("{name}: {cycle}")));
            }
        }
    }
    assert!(found.is_empty(), "{} cycles between modules\n\n{}", found.len(), found.join("\n"));
}

/// The picture in the README is rendered from a recording, and not drawn.
#[test]
fn the_readme_shows_the_recorded_conversation() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (readme, picture, cast) = (read("README.md"), read("assets/session.svg"), read("assets/session.cast"));
    assert!(readme.contains("](assets/session.svg)"));
    let digest = hone_protocol::hexadecimal(Sha256::digest(&cast));
    assert!(picture.contains(&digest), "scripts/record.sh session makes assets/session.svg from assets/session.cast");
    assert!(picture.len() < 100_000, "{}", picture.len());
    let events = cast.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    let shown: String = events.map(|event| event[2].as_str().unwrap().to_owned()).collect();
    for part in ["hone chat", "likely right", "Against it"] {
        assert!(shown.contains(part), "{part} is not shown");
    }
}
