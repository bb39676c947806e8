//! Bundles: written, opened, found by the store, truncated at every interesting position, and run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hone_models::{Bundle, BundleError, InstalledModel, Place, Store, StoreError, write_bundle};
use hone_protocol::LocateModel;
use tempfile::TempDir;

use crate::fixtures::{Home, model_bytes, nobody, options, write};

const PROGRAM_LENGTH: usize = 100_000;
const SECOND_PAGE: usize = 128 * 1024;

/// Two models in a store and a file that represents a program.
struct Scene {
    home: Home,
    program: PathBuf,
    output: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        for (seed, name, length) in [(1, "small", 10), (2, "large", 70_000)] {
            let path = home.folder.path().join(format!("{name}.gguf"));
            write(&path, &model_bytes(seed, length));
            home.pull(path.to_str().unwrap(), &options(&nobody())).0.unwrap();
        }
        let program = home.folder.path().join("program");
        write(&program, &vec![7; PROGRAM_LENGTH]);
        let output = home.folder.path().join("bundled");
        Self { home, program, output }
    }

    fn models(&self, names: &[&str]) -> Vec<InstalledModel> {
        names.iter().map(|name| self.home.store.show(name).unwrap()).collect()
    }

    fn bundle(&self, names: &[&str]) -> Bundle {
        write_bundle(&self.program, &self.models(names), &self.output, &mut |_| ()).unwrap();
        Bundle::open(&self.output).unwrap().unwrap()
    }
}

/// The bytes of a model, wherever they are stored.
fn bytes_of(store: &Store, name: &str) -> Vec<u8> {
    let location = store.locate(name).unwrap();
    assert_eq!(location.offset % (64 * 1024), 0, "every page size divides it");
    let bytes = fs::read(&location.path).unwrap();
    let start = usize::try_from(location.offset).unwrap();
    bytes[start..start + usize::try_from(location.length).unwrap()].to_vec()
}

#[test]
fn two_models_travel_with_the_program() {
    let scene = Scene::new();
    let bundle = scene.bundle(&["small", "large"]);
    let empty = TempDir::new().unwrap();
    let store = Store::open(&empty.path().join("none")).unwrap().with_bundle(Some(bundle));
    assert_eq!(bytes_of(&store, "small"), model_bytes(1, 10));
    assert_eq!(bytes_of(&store, "large"), model_bytes(2, 70_000));
    assert!(fs::read(&scene.output).unwrap().starts_with(&[7; PROGRAM_LENGTH]));
    let listing = store.list().unwrap();
    assert!(listing.models.len() == 2 && listing.models.iter().all(|model| model.place == Place::Bundle));
    assert!(matches!(store.remove("small"), Err(StoreError::Bundled(_))));
    let options = hone_models::PullOptions { offline: true, ..options(&nobody()) };
    assert!(store.pull("small", &options, &mut |_| ()).is_err(), "a name that only the bundle knows");
    assert!(!empty.path().join("none").exists(), "a bundle needs no folder to write to");
}

#[test]
fn a_program_without_models_is_no_bundle() {
    let scene = Scene::new();
    assert_eq!(Bundle::open(&scene.program).unwrap(), None);
    write(&scene.output, b"");
    assert_eq!(Bundle::open(&scene.output).unwrap(), None);
    assert!(matches!(Bundle::open(Path::new("/no/such/program")), Err(BundleError::Io { .. })));
}

#[test]
fn bundling_a_bundle_replaces_what_is_in_it() {
    let scene = Scene::new();
    scene.bundle(&["small", "large"]);
    let again = scene.home.folder.path().join("again");
    write_bundle(&scene.output, &scene.models(&["small"]), &again, &mut |_| ()).unwrap();
    let first = scene.home.folder.path().join("first");
    write_bundle(&scene.program, &scene.models(&["small"]), &first, &mut |_| ()).unwrap();
    assert_eq!(Bundle::open(&again).unwrap().unwrap().models.len(), 1);
    // The program grows once, by the padding before the payload, and never again.
    let padded = scene.home.folder.path().join("padded");
    write_bundle(&again, &scene.models(&["small"]), &padded, &mut |_| ()).unwrap();
    assert_eq!(fs::read(&again).unwrap(), fs::read(&padded).unwrap());
    assert_eq!(fs::metadata(&again).unwrap().len(), fs::metadata(&first).unwrap().len());
    // Models can be copied from a bundle into the next one, even when it replaces its source.
    let inside = Bundle::open(&again).unwrap().unwrap().models;
    write_bundle(&again, &inside, &again, &mut |_| ()).unwrap();
    let store = Store::open(scene.home.folder.path()).unwrap().with_bundle(Bundle::open(&again).unwrap());
    assert_eq!(bytes_of(&store, "small"), model_bytes(1, 10));
}

#[test]
fn a_bundle_that_was_cut_off_is_not_taken_for_a_program() {
    let scene = Scene::new();
    let bundle = scene.bundle(&["small", "large"]);
    let whole = fs::read(&scene.output).unwrap();
    let (header_end, cut) = (SECOND_PAGE + 56, scene.home.folder.path().join("cut"));
    let mut places = vec![0, 1, 15, 75, PROGRAM_LENGTH - 1, PROGRAM_LENGTH, SECOND_PAGE, header_end];
    for file in bundle.models.iter().flat_map(|model| &model.files) {
        let start = usize::try_from(file.location.offset).unwrap();
        places.extend([start, start + usize::try_from(file.location.length).unwrap()]);
    }
    let trailer = whole.len() - 76;
    places.extend((trailer..whole.len()).chain([trailer - 100]));
    for place in places.into_iter().flat_map(|place| [place.saturating_sub(1), place, place + 1]) {
        if place >= whole.len() {
            continue;
        }
        write(&cut, &whole[..place]);
        match Bundle::open(&cut) {
            Ok(None) => assert!(place < header_end, "cut at {place}"),
            Err(BundleError::Damaged { reason, .. }) => {
                assert!(place >= header_end && !reason.is_empty(), "cut at {place}: {reason}");
            }
            other => panic!("cut at {place}: {other:?}"),
        }
    }
    write(&cut, &whole[..trailer]);
    let error = write_bundle(&cut, &scene.models(&["small"]), &scene.output, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(fs::read(&scene.output).unwrap(), whole, "the output is untouched");
}

#[test]
fn a_changed_byte_in_index_or_trailer_is_found() {
    let scene = Scene::new();
    let bundle = scene.bundle(&["small", "large"]);
    let mut bytes = fs::read(&scene.output).unwrap();
    let last = &bundle.models[1].files[0].location;
    let index_start = usize::try_from(last.offset + last.length).unwrap();
    let changed = scene.home.folder.path().join("changed");
    for place in index_start..bytes.len() {
        for mask in [0x01, 0xff] {
            bytes[place] ^= mask;
            write(&changed, &bytes);
            assert!(matches!(Bundle::open(&changed), Err(BundleError::Damaged { .. })), "byte {place} ^ {mask}");
            bytes[place] ^= mask;
        }
    }
}

#[test]
fn only_what_was_installed_is_bundled() {
    let scene = Scene::new();
    let check = |models: &[InstalledModel], part: &str| {
        let error = write_bundle(&scene.program, models, &scene.output, &mut |_| ()).unwrap_err();
        let error = hone_protocol::with_causes(&error);
        assert!(error.contains(part), "`{part}` is not in: {error}");
        assert!(!scene.output.exists());
    };
    check(&[], "at least one");
    check(&scene.models(&["small", "small"]), "named twice");
    let models = scene.models(&["large"]);
    write(&scene.home.path("large/model.gguf"), &model_bytes(8, 70_000));
    check(&models, "has changed since it was installed");
    write(&scene.home.path("large/model.gguf"), b"GGUF");
    check(&models, "became shorter");
    assert!(
        fs::read_dir(scene.home.folder.path())
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().starts_with(".hone-bundle") })
    );
}

#[test]
fn a_model_of_several_files_fits() {
    let scene = Scene::new();
    let mut model = scene.models(&["small"]).remove(0);
    let mut second = scene.models(&["large"]).remove(0).files.remove(0);
    second.name = "1_Pooling/config.json".to_owned();
    model.files.push(second);
    write_bundle(&scene.program, &[model], &scene.output, &mut |_| ()).unwrap();
    let store = Store::open(scene.home.folder.path()).unwrap().with_bundle(Bundle::open(&scene.output).unwrap());
    let files = store.show("small").unwrap().files;
    let found: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.location.length)).collect();
    assert_eq!(found, [("model.gguf", 10), ("1_Pooling/config.json", 70_000)]);
    assert!(store.locate("small").unwrap_err().to_string().contains("2 files"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_bundled_program_still_runs() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let echo = ["/bin/echo", "/usr/bin/echo"].map(Path::new).into_iter().find(|path| path.exists()).unwrap();
    write_bundle(echo, &scene.models(&["large"]), &scene.output, &mut |_| ()).unwrap();
    assert_eq!(fs::metadata(&scene.output).unwrap().permissions().mode() & 0o777, 0o755);
    let said = std::process::Command::new(&scene.output).arg("still here").output().unwrap();
    assert_eq!(said.stdout, b"still here\n");
}

#[test]
fn a_bundle_that_does_not_fit_its_disk_names_it() {
    let scene = Scene::new();
    let mut models = scene.models(&["small"]);
    models[0].files[0].location.length = 1 << 60;
    let error = write_bundle(&scene.program, &models, &scene.output, &mut |_| ()).unwrap_err();
    assert!(matches!(error, BundleError::NoSpace { .. }), "{error:?}");
    let (text, folder) = (error.to_string(), scene.home.folder.path().to_str().unwrap());
    assert!(text.contains(&format!("the disk of {folder}")) && text.contains("another disk"), "{text}");
    assert!(!scene.output.exists());
}
