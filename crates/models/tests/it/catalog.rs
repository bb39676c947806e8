//! The catalog: what is compiled in, and what a catalog must not contain.

use std::collections::HashSet;

use hone_models::{Catalog, Role, Source};

use crate::fixtures::{catalog_entry, catalog_text};

#[test]
fn the_built_in_catalog_holds_what_is_promised() {
    let catalog = Catalog::built_in().unwrap();
    let names: HashSet<&str> = catalog.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names.len(), catalog.models.len(), "names are unique");
    let promised = [
        "smollm2:135m smollm2:360m smollm2:1.7b qwen3:0.6b qwen3:1.7b qwen3:4b qwen3:8b llama3.2:1b llama3.2:3b",
        "llama3.1:8b gemma3:1b gemma3:4b phi3.5:mini mistral:7b prometheus:7b all-minilm:l6-v2",
    ];
    for name in promised.iter().flat_map(|line| line.split(' ')) {
        assert!(names.contains(name), "{name}");
    }
    for role in [Role::Generator, Role::Judge, Role::Embedder] {
        assert!(catalog.models.iter().any(|model| model.role == role), "{role:?}");
    }
    assert_eq!(catalog.defaults.generator, "smollm2:135m");
    assert_eq!(catalog.defaults.judge, "prometheus:7b");
}

#[test]
fn every_source_can_be_asked_and_checked() {
    for model in Catalog::built_in().unwrap().models {
        assert!(model.context > 0 && model.size() > 0 && !model.licence.is_empty(), "{}", model.name);
        for source in &model.sources {
            let (Source::Hub { paths, .. } | Source::Wheel { paths, .. }) = source;
            assert_eq!(paths.len(), model.files.len(), "{}", model.name);
            // The contents of a package index are not vetted.
            let checked = model.files.iter().all(|file| file.sha256.is_some());
            assert!(matches!(source, Source::Hub { .. }) || checked, "{}", model.name);
        }
    }
}

const GOOD: &str = "size = 1\nsources = [{ hub = \"o/r\", revision = \"main\", file = \"f\" }]";

#[test]
fn entries_are_checked() {
    let check =
        |rest: &str, expected: Result<(), &str>| match (Catalog::parse(&catalog_text(rest, GOOD, GOOD)), expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "`{part}` is not in: {error}"),
            (parsed, expected) => panic!("{rest}: {parsed:?} and not {expected:?}"),
        };
    check("size = 1\nsources = [{ hub = \"o/r\", revision = \"main\", file = \"f\" }]", Ok(()));
    let hash = "0".repeat(64);
    check(
        &format!(
            "files = [{{ name = \"x\", size = 1, sha256 = \"{hash}\" }}]\nsources = [{{ wheel = \"w==1\", folder = \"d\" }}]"
        ),
        Ok(()),
    );
    check(&format!("size = 1\nsources = [{{ wheel = \"w==1\", file = \"f\", sha256 = \"{hash}\" }}]"), Ok(()));
    let unhashed = Err("needs the `sha256` of every file");
    check("size = 1\nsources = [{ wheel = \"w==1\", file = \"f\" }]", unhashed);
    check("files = [{ name = \"x\", size = 1 }]\nsources = [{ wheel = \"w==1\", folder = \"d\" }]", unhashed);
    check("size = 1\nsources = []", Err("no sources"));
    check("sources = [{ wheel = \"w==1\", file = \"f\" }]", Err("either `size`"));
    check("size = 1\nsources = [{ wheel = \"w==1\", folder = \"f\" }]", Err("names its `file`"));
    check("size = 1\nsources = [{ hub = \"o/r\", file = \"f\" }]", Err("with a `revision`"));
    check("size = 1\nsources = [{ hub = \"r\", revision = \"main\", file = \"f\" }]", Err("OWNER/REPO"));
    check("size = 1\nsources = [{ wheel = \"w\", file = \"f\" }]", Err("NAME==VERSION"));
    check("size = 1\nsources = [{ wheel = \"w==1\", file = \"../f\" }]", Err("leaves its folder"));
    check("size = 1\nsha256 = \"xyz\"\nsources = [{ wheel = \"w==1\", file = \"f\" }]", Err("sha256"));
    check("size = 1\ncolour = 3\nsources = []", Err("colour"));
    check("size = 1\nsources = [{ wheel = \"w==1\", file = \"f\", colour = 3 }]", Err("colour"));
    check("files = []\nsources = [{ wheel = \"w==1\", folder = \"d\" }]", Err("no files"));
}

#[test]
fn names_and_defaults_are_checked() {
    let good = catalog_text(GOOD, GOOD, GOOD);
    let check = |text: String, part: &str| {
        let error = Catalog::parse(&text).unwrap_err().to_string();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    };
    check(good.clone() + &catalog_entry("tiny:1", "judge", GOOD), "twice");
    check(good.clone() + &catalog_entry("A b", "judge", GOOD), "lower case");
    check(good.replace("judge = \"judge:1\"", "judge = \"tiny:1\""), "[defaults]");
    check(good.split("[[model]]").next().unwrap().to_owned(), "model");
}
