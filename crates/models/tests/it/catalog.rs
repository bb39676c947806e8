//! The catalog: the compiled-in entries, and invalid catalogs.

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
        "qwen3:30b-a3b qwen3.5:4b qwen3.5:9b qwen3.5:35b-a3b qwen3.5:122b-a10b qwen3.6:35b-a3b gemma4:e2b gemma4:e4b",
        "gemma4:26b-a4b gpt-oss:20b gpt-oss:120b lfm2:1.2b lfm2:2.6b lfm2:8b-a1b ministral3:3b ministral3:8b",
        "ministral3:14b granite4:micro granite4:h-tiny smollm3:3b olmo2:7b olmo3:7b",
    ];
    for name in promised.iter().flat_map(|line| line.split(' ')) {
        assert!(names.contains(name), "{name}");
    }
    for role in [Role::Generator, Role::Judge, Role::Embedder, Role::Reranker] {
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
            let (Source::Hub { paths, .. } | Source::Wheel { paths, .. }) = source else {
                panic!("the catalog has no addresses")
            };
            assert_eq!(paths.len(), model.files.len(), "{}", model.name);
            // The contents of a package index are not vetted.
            let checked = model.files.iter().all(|file| file.sha256.is_some());
            assert!(matches!(source, Source::Hub { .. }) || checked, "{}", model.name);
        }
    }
}

#[test]
fn a_token_reads_the_share_of_the_active_parameters() {
    let catalog = Catalog::built_in().unwrap();
    let bytes = |name: &str| {
        let model = catalog.find(name).unwrap();
        (model.active_bytes(), model.size())
    };
    let (active, all) = bytes("qwen3:8b");
    assert_eq!(active, all, "a dense model reads everything");
    let (active, all) = bytes("qwen3.6:35b-a3b");
    assert!((active as f64 / all as f64 - 3.0 / 35.0).abs() < 1e-6, "{active} of {all}");
    for model in &catalog.models {
        // By convention, the name of a mixture of experts says how many parameters are active.
        let is_mixture = model.name.split(['-', ':']).any(|part| part.starts_with('a') && part.ends_with('b'));
        assert!(!is_mixture || model.active_parameters.is_some(), "{}", model.name);
    }
}

#[test]
fn parts_of_a_model_are_listed_in_order() {
    for model in Catalog::built_in().unwrap().models {
        let parts: Vec<_> = model.files.iter().filter_map(|file| hone_protocol::PartName::parse(&file.name)).collect();
        let Some(first) = parts.first() else { continue };
        assert!(first.all().eq(parts.iter().copied()), "{}", model.name);
        assert_eq!(parts.len(), model.files.len(), "{}", model.name);
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
    let active = |text: &str| format!("active_parameters = \"{text}\"\n{GOOD}");
    check(&active("3"), Err("`3` is not a number of parameters"));
    check(&active("-3B"), Err("`-3B` is not a number of parameters"));
    check(&format!("draft = \"gone\"\n{GOOD}"), Err("its draft `gone` is not a smaller model"));
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
