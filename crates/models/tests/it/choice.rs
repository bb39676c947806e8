//! Pulling from a repository of the hub without naming a file, from any address, and in a quantization other than the
//! catalog's.

use hone_models::{Catalog, Choice, Event, PullOptions};
use serde_json::json;

use crate::{
    fixtures::{Home, catalog_text, model_bytes, options},
    server::Server,
};

/// The files of the repository `o/r`, with their sizes.
const FILES: [(&str, usize); 12] = [
    ("README.md", 10),
    ("Tiny-Q2_K.gguf", 20_000),
    ("Tiny-Q4_K_M.gguf", 40_000),
    ("Tiny-Q6_K.gguf", 60_000),
    ("Tiny-UD-Q3_K_XL.gguf", 30_000),
    ("BF16/Tiny-BF16-00001-of-00002.gguf", 90_000),
    ("BF16/Tiny-BF16-00002-of-00002.gguf", 90_000),
    ("mmproj-F16.gguf", 5_000),
    ("imatrix.gguf", 5_000),
    ("mtp-Tiny-Q4_K_M.gguf", 3_000),
    ("MTP/Tiny-MTP-Q4_K_M.gguf", 3_000),
    ("draft/Tiny-draft-Q4_K_M.gguf", 2_000),
];

fn scene() -> (Server, Home, PullOptions) {
    let server = Server::start();
    for (path, size) in FILES {
        server.publish(&format!("o/r/resolve/main/{path}"), &model_bytes(size as u64, size));
    }
    let siblings: Vec<_> = FILES.iter().map(|(path, size)| json!({"rfilename": path, "size": size})).collect();
    let description = json!({"id": "o/r", "siblings": siblings}).to_string();
    server.publish_page("api/models/o/r/revision/main?blobs=true", "application/json", &description);
    let options = options(&server.endpoint);
    (server, Home::new(), options)
}

/// The source of the pulled model, and the reason for its choice.
fn pulled(home: &Home, reference: &str, options: &PullOptions) -> (String, Option<Choice>) {
    let (result, events) = home.pull(reference, options);
    let choice = events.iter().find_map(|event| match event {
        Event::Chosen { choice, .. } => Some(*choice),
        _ => None,
    });
    (result.unwrap().model.source, choice)
}

#[test]
fn a_repository_is_enough() {
    let (server, home, options) = scene();
    let (source, choice) = pulled(&home, "o/r", &options);
    assert_eq!((source.as_str(), choice), ("hf:o/r/Tiny-Q4_K_M.gguf", Some(Choice::Usual)));
    assert_eq!(home.bytes("tiny-q4_k_m"), model_bytes(40_000, 40_000));
    // It is installed now, under each of its names, and the hub is not asked again.
    let n_requests = server.requests().len();
    for name in ["o/r", "HF:o/r:q4_k_m", "HTTPS://huggingface.co/o/r", "Tiny-Q4_K_M"] {
        assert!(home.pull(name, &options).0.unwrap().was_there, "{name}");
        assert_eq!(home.store.show(name).unwrap().name, "tiny-q4_k_m", "{name}");
    }
    assert_eq!(server.requests().len(), n_requests);
    // A name of its own makes it a separate model.
    let mine = PullOptions { name: Some("mine".to_owned()), ..options.clone() };
    assert_eq!(home.pull("o/r", &mine).0.unwrap().model.name, "mine");
    home.store.remove("mine").unwrap();
    // A model to remove must be named.
    let error = home.store.remove("hf:o/r").unwrap_err().to_string();
    assert!(error.contains("did you mean `tiny-q4_k_m`?"), "{error}");
    home.store.remove("Tiny-Q4_K_M").unwrap();
}

#[test]
fn the_quantization_is_asked_for_or_fits_the_machine() {
    let (_server, home, options) = scene();
    let check = |reference: &str, room: Option<u64>, expected: (&str, Choice)| {
        let (source, choice) = pulled(&home, reference, &PullOptions { room, ..options.clone() });
        assert_eq!((source.as_str(), choice), (expected.0, Some(expected.1)), "{reference} in {room:?}");
        home.store.remove(&home.store.show(&source).unwrap().name).unwrap();
    };
    check("o/r:q6_k", Some(10_000), ("hf:o/r/Tiny-Q6_K.gguf", Choice::Asked));
    check("hf:o/r:Q3_K_XL", None, ("hf:o/r/Tiny-UD-Q3_K_XL.gguf", Choice::Asked));
    check("hf.co/o/r:latest", None, ("hf:o/r/Tiny-Q4_K_M.gguf", Choice::Usual));
    check("o/r", Some(39_999), ("hf:o/r/Tiny-UD-Q3_K_XL.gguf", Choice::LargestThatFits));
    check("o/r", Some(20_000), ("hf:o/r/Tiny-Q2_K.gguf", Choice::LargestThatFits));
    check("o/r", Some(10), ("hf:o/r/Tiny-Q4_K_M.gguf", Choice::TooLarge));
    // Its parts belong together.
    check("o/r:bf16", None, ("hf:o/r/BF16/Tiny-BF16-00001-of-00002.gguf", Choice::Asked));
}

#[test]
fn what_a_repository_lacks_is_said() {
    let (server, home, options) = scene();
    let others = "it has no Q5_K_M, but Q2_K, UD-Q3_K_XL, Q4_K_M, Q6_K, BF16";
    home.pull_fails("o/r:Q5_K_M", &options, &["hf:o/r", others]);
    server.publish_page("api/models/o/empty/revision/main?blobs=true", "application/json", r#"{"siblings": []}"#);
    home.pull_fails("o/empty", &options, &["it holds no GGUF file of a model"]);
    let hostile = json!({"siblings": [
        {"rfilename": "../../x-Q4_0.gguf", "size": 1},
        {"rfilename": "\u{1b}[2Jx-Q4_0.gguf", "size": 1},
        {"rfilename": "x-Q4_0-00001-of-00002.gguf", "size": u64::MAX},
    ]})
    .to_string();
    server.publish_page("api/models/o/hostile/revision/main?blobs=true", "application/json", &hostile);
    home.pull_fails("o/hostile", &options, &["it holds no GGUF file of a model"]);
    let unsupported = r#"{"siblings": [{"rfilename": "x-IQ1_S.gguf", "size": 1}]}"#;
    server.publish_page("api/models/o/one-bit/revision/main?blobs=true", "application/json", unsupported);
    home.pull_fails("o/one-bit", &options, &["it holds no model of a type that is supported"]);
    server.publish_page("api/models/o/odd/revision/main?blobs=true", "text/html", "<html>");
    home.pull_fails("o/odd", &options, &["its list of files cannot be read"]);
    home.pull_fails("o/nothing", &options, &["there is no such repository, revision or file"]);
    home.pull_fails("o/r", &PullOptions { offline: true, ..options.clone() }, &["HONE_OFFLINE"]);
    assert_eq!(home.store.list().unwrap().unfinished, Vec::<String>::new());
}

/// Clients of a server may name models on the hub only.
#[test]
fn others_may_name_only_the_hub() {
    let (_server, home, _) = scene();
    for reference in ["smollm2:135m", "Qwen3:4B-q8_0", "hf:o/r/f.gguf", "HF.co/o/r:Q8_0", "HF:o/r"] {
        home.store.check_remote(reference).unwrap();
    }
    for reference in ["o/r", "../f.gguf", "/f.gguf", "http://localhost/f.gguf", "file:f.gguf", "other:1b", ""] {
        assert!(home.store.check_remote(reference).is_err(), "{reference}");
    }
    let error = home.store.show("folder/model").unwrap_err().to_string();
    assert!(error.contains("there is no file `folder/model`"), "{error}");
}

#[test]
fn any_address_of_a_gguf_is_enough() {
    let (server, home, options) = scene();
    let address = format!("{}/o/r/resolve/main/Tiny-Q2_K.gguf", server.endpoint);
    let (result, _) = home.pull(&format!("{address}?download=true"), &options);
    // The test's server does not distinguish addresses with a query, which real ones ignore.
    assert!(result.is_err());
    let (source, _) = pulled(&home, &address, &options);
    assert_eq!(source, address);
    assert_eq!(home.bytes("tiny-q2_k"), model_bytes(20_000, 20_000));
    let parts = format!("{}/o/r/resolve/main/BF16/Tiny-BF16-00001-of-00002.gguf", server.endpoint);
    assert_eq!(home.pull(&parts, &options).0.unwrap().model.files.len(), 2);
    home.pull_fails(&parts.replace("00001-of", "00002-of"), &options, &["is part 2 of 2"]);
    home.pull_fails(&format!("{}/page.html", server.endpoint), &options, &["is not the address of a model"]);
    home.pull_fails(&format!("{}/missing.gguf", server.endpoint), &options, &["there is no such file"]);
}

#[test]
fn a_model_of_the_catalog_comes_in_other_quantizations() {
    let (_server, home, options) = scene();
    let of = |role: &str| {
        let hub = "hub = \"o/r\", revision = \"main\"";
        format!("size = 40000\nsources = [{{ {hub}, file = \"Tiny-Q4_K_M.gguf\" }}]\n{role}")
    };
    let text = catalog_text(&of(""), &of(""), &of("")).replace("\"F32\"", "\"Q4_K_M\"");
    let store = home.store.with_catalog(Catalog::parse(&text).unwrap());
    let home = Home { folder: home.folder, store };
    let check = |reference: &str, room: Option<u64>, name: &str, source: &str| {
        let pulled = home.pull(reference, &PullOptions { room, ..options.clone() }).0.unwrap();
        assert_eq!(
            (pulled.model.name.as_str(), pulled.model.source.as_str()),
            (name, source),
            "{reference} in {room:?}"
        );
        // The short name means it, as long as no other model has that name.
        assert_eq!(home.store.show("TINY:1").unwrap().name, name);
        home.store.remove(name).unwrap();
    };
    check("Tiny:1", None, "tiny:1", "hf:o/r/Tiny-Q4_K_M.gguf");
    check("tiny:1", Some(35_000), "tiny:1-ud-q3_k_xl", "hf:o/r/Tiny-UD-Q3_K_XL.gguf");
    check("tiny:1", Some(10), "tiny:1", "hf:o/r/Tiny-Q4_K_M.gguf");
    check("tiny:1-q6_k", Some(10), "tiny:1-q6_k", "hf:o/r/Tiny-Q6_K.gguf");
    check("tiny:1-q4_k_m", Some(10), "tiny:1", "hf:o/r/Tiny-Q4_K_M.gguf");
    // Its own quantization, spelled out, is the model itself; another installed quantization does not interfere.
    home.pull("tiny:1-q6_k", &options).0.unwrap();
    assert_eq!(home.pull("tiny:1", &options).0.unwrap().model.name, "tiny:1");
    assert_eq!(home.store.show("tiny:1-Q4_K_M").unwrap().name, "tiny:1");
    home.store.remove("tiny:1").unwrap();
    let small = PullOptions { room: Some(35_000), ..options.clone() };
    assert_eq!(home.pull("tiny:1", &small).0.unwrap().model.name, "tiny:1-q6_k", "there is one that was chosen");
    home.store.remove("tiny:1-q6_k").unwrap();
    let named = PullOptions { name: Some("other:1".to_owned()), ..options.clone() };
    assert_eq!(home.pull("tiny:1-q2_k", &named).0.unwrap().model.name, "other:1");
    home.pull_fails("tiny:1-q5_k_m", &options, &["it has no Q5_K_M, but Q2_K"]);
    assert_eq!(home.store.catalog().about("judge:1-q8_0").unwrap().name, "judge:1");
}
