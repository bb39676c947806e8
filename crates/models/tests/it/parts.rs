//! Models in several files: found by the first, pulled, verified, copied, bundled and removed as one.

use std::fs;

use hone_models::{Bundle, Catalog, Event, Place, PullError, Store, StoreError, write_bundle};
use hone_protocol::{LocateModel, ModelFile};

use crate::{
    fixtures::{Home, catalog_text, model_bytes, nobody, options, sha256, write},
    server::{Fault, Server},
};

const LENGTHS: [usize; 3] = [5000, 70_000, 300];

fn part(index: usize) -> Vec<u8> {
    model_bytes(index as u64 + 1, LENGTHS[index])
}

fn name(index: usize) -> String {
    format!("Big-Q4_0-0000{}-of-00003.gguf", index + 1)
}

/// A home with the three parts of a model next to its store; the path of the first.
fn home_with_parts() -> (Home, String) {
    let home = Home::new();
    (0..3).for_each(|index| write(&home.folder.path().join(name(index)), &part(index)));
    let first = home.folder.path().join(name(0));
    let first = first.to_str().unwrap().to_owned();
    (home, first)
}

/// Like [`home_with_parts`], with the model pulled from its path.
fn home_with_pulled() -> (Home, String) {
    let (home, first) = home_with_parts();
    let pulled = home.pull(&first, &options(&nobody())).0.unwrap();
    assert_eq!((pulled.model.name.as_str(), pulled.model.files.len()), ("big-q4_0", 3));
    (home, first)
}

/// The contents of all parts.
fn bytes_of(model: &ModelFile) -> Vec<Vec<u8>> {
    let read = |part: &ModelFile| {
        let bytes = fs::read(&part.path).unwrap();
        bytes[part.offset as usize..(part.offset + part.length) as usize].to_vec()
    };
    model.parts().map(read).collect()
}

fn all_parts() -> Vec<Vec<u8>> {
    (0..3).map(part).collect()
}

fn check_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn the_first_part_is_used_in_place_with_the_others() {
    let (home, first) = home_with_parts();
    let model = home.store.show(&first).unwrap();
    assert_eq!((model.name.as_str(), model.place, model.size()), ("big-q4_0", Place::Path, 75_300));
    assert_eq!(bytes_of(&home.store.locate(&first).unwrap()), all_parts());
    home.store.verify(&home.store.locate(&first).unwrap()).unwrap();

    let later = first.replace("-00001-", "-00003-");
    let error = home.store.locate(&later).unwrap_err().to_string();
    check_says(&error, &["is part 3 of 3 of a model", "give the first part instead", &first]);
    home.pull_fails(&later, &options(&nobody()), &["is part 3 of 3 of a model", &first]);

    fs::remove_file(home.folder.path().join(name(1))).unwrap();
    let error = home.store.locate(&first).unwrap_err().to_string();
    check_says(&error, &["part 2 of 3 of the model is missing", &name(1), "in one folder"]);
    home.pull_fails(&first, &options(&nobody()), &["part 2 of 3 of the model is missing", &name(1)]);
}

#[cfg(unix)]
#[test]
fn links_to_parts_are_followed() {
    // The hub's own tools keep files under their hashes, and links to them under their names.
    let (home, _) = home_with_parts();
    let folder = home.folder.path().join("links");
    fs::create_dir(&folder).unwrap();
    for index in 0..3 {
        let blob = home.folder.path().join(format!("blob{index}"));
        fs::rename(home.folder.path().join(name(index)), &blob).unwrap();
        std::os::unix::fs::symlink(&blob, folder.join(name(index))).unwrap();
    }
    let first = folder.join(name(0));
    assert_eq!(bytes_of(&home.store.locate(first.to_str().unwrap()).unwrap()), all_parts());
    home.pull(first.to_str().unwrap(), &options(&nobody())).0.unwrap();
    assert!(home.pull(first.to_str().unwrap(), &options(&nobody())).0.unwrap().was_there);
}

#[test]
fn an_imported_model_keeps_its_parts_when_the_originals_go() {
    let (home, first) = home_with_pulled();
    assert!(home.pull(&first, &options(&nobody())).0.unwrap().was_there);
    (0..3).for_each(|index| fs::remove_file(home.folder.path().join(name(index))).unwrap());
    let model = home.store.locate("big-q4_0").unwrap();
    assert_eq!(bytes_of(&model), all_parts());
    let shown = home.store.show("big-q4_0").unwrap();
    let hashes: Vec<_> = shown.files.iter().map(|file| file.sha256.clone().unwrap()).collect();
    assert_eq!(hashes, (0..3).map(|index| sha256(&part(index))).collect::<Vec<_>>());
    let listing = home.store.list().unwrap();
    assert_eq!(listing.models.iter().map(|model| model.size()).collect::<Vec<_>>(), [75_300]);
    home.store.copy("big-q4_0", "other").unwrap();
    assert!(home.store.remove("big-q4_0").unwrap() < 75_300, "the copy keeps the bytes");
    assert_eq!(bytes_of(&home.store.locate("other").unwrap()), all_parts());
    assert!(home.store.remove("other").unwrap() > 75_300);
}

#[test]
fn a_part_that_is_no_gguf_file_is_not_copied() {
    let (home, first) = home_with_parts();
    write(&home.folder.path().join(name(2)), b"something else");
    home.pull_fails(&first, &options(&nobody()), &[&name(2), "is not a GGUF file"]);
    assert!(home.store.list().unwrap().unfinished.is_empty());
}

#[test]
fn damage_in_any_part_is_found_and_mended() {
    for index in 0..3 {
        let (home, _) = home_with_pulled();
        let path = home.path("big-q4_0").join(format!("model-0000{}-of-00003.gguf", index + 1));
        let mut bytes = fs::read(&path).unwrap();
        bytes[200] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = home.store.check("big-q4_0").unwrap_err();
        assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
        let location = home.store.locate("big-q4_0").unwrap();
        let error = home.store.verify(&location).unwrap_err().to_string();
        check_says(&error, &["`big-q4_0` is damaged", path.to_str().unwrap(), "run `hone pull big-q4_0`"]);
        let (pulled, events) = home.pull("big-q4_0", &options(&nobody()));
        assert!(!pulled.unwrap().was_there);
        assert!(events.iter().any(|event| matches!(event, Event::Damaged { .. })), "{events:?}");
        assert_eq!(bytes_of(&home.store.locate("big-q4_0").unwrap()), all_parts());
    }
}

#[test]
fn a_model_that_lost_a_part_says_so() {
    let (home, first) = home_with_pulled();
    fs::remove_file(home.path("big-q4_0/model-00002-of-00003.gguf")).unwrap();
    let error = home.store.locate("big-q4_0").unwrap_err().to_string();
    check_says(&error, &["model-00002-of-00003.gguf", "hone rm big-q4_0", "hone pull big-q4_0"]);
    home.pull(&first, &options(&nobody())).0.unwrap();
    assert_eq!(bytes_of(&home.store.locate("big-q4_0").unwrap()), all_parts());
}

/// A hub with the parts in a folder of a repository.
fn hub() -> (Server, String) {
    let server = Server::start();
    (0..3).for_each(|index| server.publish(&format!("o/r/resolve/main/Q4_0/{}", name(index)), &part(index)));
    (server, format!("hf:o/r/Q4_0/{}", name(0)))
}

#[test]
fn the_first_part_on_the_hub_stands_for_all() {
    let ((server, reference), home) = (hub(), Home::new());
    let pulled = home.pull(&reference, &options(&server.endpoint)).0.unwrap();
    assert_eq!((pulled.model.name.as_str(), pulled.model.size()), ("big-q4_0", 75_300));
    assert_eq!(pulled.model.source, reference);
    assert!(pulled.model.files.iter().all(|file| !file.unchecked), "each part is compared with the hub's hash");
    assert_eq!(bytes_of(&home.store.locate("big-q4_0").unwrap()), all_parts());
    assert!(home.pull(&reference, &options(&server.endpoint)).0.unwrap().was_there);
    fs::write(home.path("big-q4_0/model-00003-of-00003.gguf"), part(0)).unwrap();
    assert!(!home.pull(&reference, &options(&server.endpoint)).0.unwrap().was_there);
    assert_eq!(bytes_of(&home.store.locate("big-q4_0").unwrap()), all_parts());
    let later = reference.replace("-00001-", "-00002-");
    home.pull_fails(
        &later,
        &options(&server.endpoint),
        &["is part 2 of 3 of a model: pull the first part", &reference],
    );
}

#[test]
fn a_part_that_the_hub_lacks_is_named_before_anything_is_downloaded() {
    let home = Home::new();
    let server = Server::start();
    (0..2).for_each(|index| server.publish(&format!("o/r/resolve/main/{}", name(index)), &part(index)));
    home.pull_fails(&format!("hf:o/r/{}", name(0)), &options(&server.endpoint), &["404", &name(2)]);
    assert!(home.store.list().unwrap().unfinished.is_empty());
}

#[test]
fn parts_that_fit_the_disk_one_by_one_but_not_together_are_refused_at_once() {
    let ((server, reference), home) = (hub(), Home::new());
    let claimed = fs4::available_space(home.folder.path()).unwrap() / 10 * 6;
    server.fail_next((0..3).map(|_| Fault::ClaimLength(claimed)));
    let needed = format!("{} more are needed", 3 * claimed);
    home.pull_fails(&reference, &options(&server.endpoint), &["bytes free", &needed]);
    assert_eq!(server.ranges().len(), 3, "each part was only asked for its size");
    assert!(home.store.list().unwrap().unfinished.is_empty());
}

#[test]
fn an_interrupted_pull_resumes_at_the_part_it_had_reached() {
    let ((server, reference), home) = (hub(), Home::new());
    let options = options(&server.endpoint);
    // Three requests for sizes, the first part, and less than half of the second.
    let whole = (0..4).map(|_| Fault::Slowly(1 << 20));
    server.fail_next(whole.chain([Fault::BreakAfter(30_000), Fault::Status(404, None)]));
    assert!(matches!(home.pull(&reference, &options).0, Err(PullError::SourcesFailed { .. })));
    assert_eq!(home.store.list().unwrap().unfinished, ["big-q4_0"]);
    home.pull(&reference, &options).0.unwrap();
    assert!(server.ranges().iter().any(|range| range.as_deref().is_some_and(|range| range != "bytes=0-")));
    assert_eq!(bytes_of(&home.store.locate("big-q4_0").unwrap()), all_parts());
}

#[test]
fn a_catalog_entry_lists_the_parts_of_a_model() {
    let ((server, _), home) = (hub(), Home::new());
    let file = |index: usize| {
        format!("{{ name = \"{}\", size = {}, sha256 = \"{}\" }}", name(index), LENGTHS[index], sha256(&part(index)))
    };
    let entry = format!(
        "files = [{}, {}, {}]\nsources = [{{ hub = \"o/r\", revision = \"main\", folder = \"Q4_0\" }}]",
        file(0),
        file(1),
        file(2)
    );
    let catalog = Catalog::parse(&catalog_text(&entry, &entry, &entry)).unwrap();
    assert_eq!(catalog.find("tiny:1").unwrap().size(), 75_300);
    let store = home.store.clone().with_catalog(catalog);
    store.pull("tiny:1", &options(&server.endpoint), &mut |_| ()).unwrap();
    assert_eq!(bytes_of(&store.locate("tiny:1").unwrap()), all_parts());
    assert_eq!(server.ranges().len(), 3, "sizes that are known are not asked for");
}

#[test]
fn a_bundle_carries_all_parts() {
    let (home, _) = home_with_pulled();
    let (program, output) = (home.folder.path().join("program"), home.folder.path().join("output"));
    write(&program, b"a program");
    write_bundle(&program, &[home.store.show("big-q4_0").unwrap()], &output, &mut |_| ()).unwrap();
    let empty = Home::new();
    let store = Store::open(empty.folder.path()).unwrap().with_bundle(Bundle::open(&output).unwrap());
    let model = store.locate("big-q4_0").unwrap();
    assert_eq!(bytes_of(&model), all_parts());
    store.verify(&model).unwrap();
    let mut bytes = fs::read(&output).unwrap();
    bytes[model.rest[1].offset as usize + 7] ^= 1;
    fs::write(&output, bytes).unwrap();
    assert!(store.verify(&model).unwrap_err().to_string().contains("`big-q4_0` is damaged"));
}
