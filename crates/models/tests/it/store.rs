//! The store: listing, lookup, suggestions and removal of models, and the handling of incomplete folders.

use std::fs;

use hone_models::{Place, StoreError};
use hone_protocol::LocateModel;

use crate::fixtures::{Home, model_bytes, nobody, options, write};

/// A store that holds the models `one` and `two`, imported from files.
fn home_with_two() -> Home {
    let home = Home::new();
    for (seed, name) in [(1, "one"), (2, "two")] {
        let path = home.folder.path().join(format!("{name}.gguf"));
        write(&path, &model_bytes(seed, 5000));
        assert!(!home.pull(path.to_str().unwrap(), &options(&nobody())).0.unwrap().was_there);
    }
    home
}

#[test]
fn an_imported_file_stays_when_the_original_goes() {
    let home = home_with_two();
    fs::remove_file(home.folder.path().join("one.gguf")).unwrap();
    assert_eq!(home.bytes("one"), model_bytes(1, 5000));
    let listing = home.store.list().unwrap();
    let names: Vec<_> = listing.models.iter().map(|model| (model.name.as_str(), model.size())).collect();
    assert_eq!(names, [("one", 5000), ("two", 5000)]);
    assert!(listing.broken.is_empty() && listing.unfinished.is_empty());
    assert!(listing.models[0].added.is_some() && listing.models[0].source.ends_with("one.gguf"));
}

#[test]
fn a_path_is_used_in_place() {
    let home = Home::new();
    let path = home.folder.path().join("Some Model.gguf");
    write(&path, &model_bytes(3, 100));
    let location = home.store.locate(path.to_str().unwrap()).unwrap();
    assert_eq!((location.offset, location.length), (0, 100));
    assert_eq!(location.path, path.canonicalize().unwrap());
    let model = home.store.show(path.to_str().unwrap()).unwrap();
    assert_eq!((model.name.as_str(), model.place), ("some-model", Place::Path));
    assert!(!home.store.folder().exists(), "looking must not write");
}

#[test]
fn what_is_not_there_says_how_to_get_it() {
    let home = home_with_two();
    let check = |name: &str, part: &str| {
        let error = home.store.locate(name).unwrap_err().to_string();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    };
    check("smollm2:135m", "run `hone pull smollm2:135m`");
    check("smollm2:135n", "did you mean `smollm2:135m`?");
    check("tow", "did you mean `two`?");
    check("xyzzy", "hone list");
    check("./gone.gguf", "there is no file `./gone.gguf`");
    check("", "there is no model");
    check("../one", "there is no file");
    check(home.folder.path().to_str().unwrap(), "is a directory and not a GGUF file");
    // Tests run in the crate's folder.
    check("src", "`src` is a directory and not a GGUF file");
    #[cfg(unix)]
    {
        let socket = home.folder.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        check(socket.to_str().unwrap(), "is a socket and not a GGUF file");
        check("/dev/null", "is a device and not a GGUF file");
        let pipe = home.folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        check(pipe.to_str().unwrap(), "is a pipe and not a GGUF file");
    }
}

#[test]
fn a_broken_model_is_named_listed_and_left_alone() {
    let check = |damage: &dyn Fn(&Home), part: &str| {
        let home = home_with_two();
        damage(&home);
        let error = home.store.show("one").unwrap_err();
        assert!(matches!(error, StoreError::Broken(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(part) && error.contains("manifest.json"), "`{part}` is not in: {error}");
        let listing = home.store.list().unwrap();
        assert_eq!(listing.models.len(), 1, "the other model is still there");
        assert_eq!(listing.broken.len(), 1);
        assert!(listing.broken[0].reason.contains(part));
        assert!(home.path("one").exists(), "nothing is lost");
        // Pulling it again repairs it.
        let original = home.folder.path().join("one.gguf");
        assert!(!home.pull(original.to_str().unwrap(), &options(&nobody())).0.unwrap().was_there);
        assert_eq!(home.bytes("one"), model_bytes(1, 5000));
        assert!(home.store.list().unwrap().broken.is_empty());
    };
    check(&|home| write(&home.path("one/manifest.json"), b"{ \"name\": "), "malformed");
    check(&|home| write(&home.path("one/manifest.json"), b""), "malformed");
    check(&|home| fs::remove_file(home.path("one/manifest.json")).unwrap(), "cannot be read");
    check(&|home| write(&home.path("one/model.gguf"), b"GGUF"), "has 4 bytes of 5000");
    check(&|home| fs::remove_file(home.path("one/model.gguf")).unwrap(), "`model.gguf` cannot be read");
    check(
        &|home| {
            fs::copy(home.path("two/manifest.json"), home.path("one/manifest.json")).unwrap();
        },
        "the manifest of `two`",
    );
    check(
        &|home| {
            let text = fs::read_to_string(home.path("one/manifest.json")).unwrap();
            write(&home.path("one/manifest.json"), text.replace("model.gguf", "../two/model.gguf").as_bytes());
        },
        "malformed",
    );
}

#[test]
fn folders_that_are_not_models_are_passed_over() {
    let home = home_with_two();
    write(&home.path("Not A Model/manifest.json"), b"{}");
    write(&home.path("notes.txt"), b"mine");
    write(&home.path(".incoming/three/model.gguf.partial"), b"GGUF");
    let listing = home.store.list().unwrap();
    assert_eq!((listing.models.len(), listing.broken.len()), (2, 0));
    assert_eq!(listing.unfinished, ["three"]);
    let error = home.store.show("three").unwrap_err().to_string();
    assert!(error.contains("run `hone pull three` to resume"), "{error}");
}

#[test]
fn removing_frees_the_bytes_and_only_those() {
    let home = home_with_two();
    assert!(home.store.remove("one").unwrap() >= 5000);
    assert_eq!(home.store.list().unwrap().models.len(), 1);
    assert!(home.store.remove("one").unwrap_err().to_string().contains("no model `one`"));
    write(&home.path(".incoming/three/model.gguf.partial"), b"GGUF");
    assert_eq!(home.store.remove("three").unwrap(), 4, "a download begun can be removed");
    write(&home.path("two/manifest.json"), b"broken");
    assert!(home.store.remove("two").unwrap() > 5000, "a broken model can be removed");
    for name in ["", ".locks", "..", "../models", "smollm2:135m"] {
        assert!(home.store.remove(name).is_err(), "{name}");
    }
    assert!(home.folder.path().join("one.gguf").exists());
}

/// A process that was killed while it removed a model used to leave its bytes behind indefinitely.
#[test]
fn what_a_killed_process_was_removing_is_swept_by_the_next() {
    let sweepers: [&dyn Fn(&Home); 3] = [
        &|home| assert_eq!(home.store.list().unwrap().models.len(), 2),
        &|home| assert!(home.store.remove("one").is_ok()),
        &|home| {
            assert!(home.pull(home.folder.path().join("one.gguf").to_str().unwrap(), &options(&nobody())).0.is_ok())
        },
    ];
    for sweep in sweepers {
        let home = home_with_two();
        write(&home.path(".removed-abc/model/model.gguf"), &model_bytes(3, 5000));
        sweep(&home);
        assert!(!home.path(".removed-abc").exists());
        assert_eq!(home.bytes("two"), model_bytes(2, 5000));
    }
}

#[test]
fn what_another_process_is_removing_is_left_to_it() {
    let home = home_with_two();
    write(&home.path(".removed-abc/model/model.gguf"), b"GGUF");
    home.store.list().unwrap();
    write(&home.path(".removed-abc/model/model.gguf"), b"GGUF");
    let lock = fs::File::open(home.path(".locks/.removed-")).unwrap();
    lock.lock_shared().unwrap();
    home.store.list().unwrap();
    assert!(home.path(".removed-abc").exists());
    lock.unlock().unwrap();
    home.store.list().unwrap();
    assert!(!home.path(".removed-abc").exists());
}

#[test]
fn an_import_is_checked_and_named() {
    let home = home_with_two();
    let folder = home.folder.path();
    let offline = hone_models::PullOptions { offline: true, ..options(&nobody()) };
    write(&folder.join("text.gguf"), b"just text");
    home.pull_fails(folder.join("text.gguf").to_str().unwrap(), &offline, &["is not a GGUF file"]);
    assert!(home.store.list().unwrap().unfinished.is_empty());
    // Another file with the same name does not silently replace the first.
    write(&folder.join("elsewhere/one.gguf"), &model_bytes(9, 600));
    let other = folder.join("elsewhere/one.gguf");
    home.pull_fails(other.to_str().unwrap(), &offline, &["`one`", "installed already", "hone rm one"]);
    let named = hone_models::PullOptions { name: Some("mine:9".to_owned()), ..offline.clone() };
    assert_eq!(home.pull(other.to_str().unwrap(), &named).0.unwrap().model.name, "mine:9");
    assert_eq!(home.bytes("mine:9"), model_bytes(9, 600));
    assert!(home.path("mine@9").is_dir(), "no colon in file names");
    let again = home.pull(other.to_str().unwrap(), &named).0.unwrap();
    assert!(again.was_there);
    // A name in the catalog is reserved for the catalog's file.
    for (name, part) in
        [("smollm2:135m", "is not the file that the catalog has"), ("prometheus:7b", "choose another name")]
    {
        let taken = hone_models::PullOptions { name: Some(name.to_owned()), ..offline.clone() };
        home.pull_fails(other.to_str().unwrap(), &taken, &[part, "--name"]);
        assert!(!home.path(&name.replace(':', "@")).exists());
    }
    let listing = home.store.list().unwrap();
    assert!(listing.unfinished.is_empty() && listing.models.len() == 3, "{listing:?}");
    let bad = hone_models::PullOptions { name: Some("Mine!".to_owned()), ..offline };
    home.pull_fails(other.to_str().unwrap(), &bad, &["no model name can be derived"]);
}

#[test]
fn a_copy_shares_the_bytes_and_outlives_its_source() {
    let home = home_with_two();
    home.store.copy("one", "mine:v1").unwrap();
    assert_eq!(home.bytes("mine:v1"), model_bytes(1, 5000));
    let file = |name: &str| home.store.show(name).unwrap().files[0].clone();
    assert_eq!(file("mine:v1").sha256, file("one").sha256);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = |name: &str| fs::metadata(file(name).location.path).unwrap().ino();
        assert_eq!(inode("mine:v1"), inode("one"), "the bytes are stored once");
    }
    home.store.copy("two", "mine:v1").unwrap();
    assert_eq!(home.bytes("mine:v1"), model_bytes(2, 5000), "a copy replaces an earlier one");
    home.store.copy("two", "two").unwrap();
    let freed = home.store.remove("two").unwrap();
    assert_eq!(cfg!(unix), freed < 5000, "{freed}: the copy keeps the bytes");
    home.store.check("mine:v1").unwrap();
    assert_eq!(home.bytes("one"), model_bytes(1, 5000));
    let names: Vec<String> = home.store.list().unwrap().models.into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["mine:v1", "one"]);
    assert!(home.store.list().unwrap().unfinished.is_empty());
    home.store.remove("mine:v1").unwrap();
    assert!(!home.store.has("mine:v1"));
}

#[test]
fn a_copy_stays_in_the_store_and_leaves_the_catalog_alone() {
    let home = home_with_two();
    let check = |source: &str, name: &str, part: &str| {
        let error = home.store.copy(source, name).unwrap_err().to_string();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    };
    check("none", "mine", "no model `none` is installed");
    check("../models/one", "mine", "no model `../models/one` is installed");
    for name in ["", "../mine", "a/b", "/tmp/mine", ".incoming", "A", "a:b:c", "a@b", "..", "a\0"] {
        check("one", name, "is not a name for a model");
    }
    check("one", "smollm2:135m", "is the name of another model");
    let names: Vec<String> = home.store.list().unwrap().models.into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["one", "two"]);
}
