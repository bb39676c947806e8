//! Models of other programs: found, linked, and refused where they are unusable.

use std::{fs, path::PathBuf};

use hone_models::{Found, Places, Program, find_elsewhere};
use serde_json::json;

use crate::fixtures::{Home, model_bytes, sha256, write};

/// The places of all programs below the folder of a home.
fn places(home: &Home) -> (Places, PathBuf) {
    let folder = home.folder.path().canonicalize().unwrap().join("others");
    let variable = |name: &str| {
        let below = match name {
            "OLLAMA_MODELS" => "ollama",
            "LLAMA_CACHE" => "llama",
            "HF_HOME" => "hf",
            _ => return None,
        };
        Some(folder.join(below).into_os_string())
    };
    (Places::resolve(variable, Some(folder.clone()), std::env::consts::OS), folder)
}

/// Puts a model into Ollama's folder, with further layers.
fn put_into_ollama(folder: &std::path::Path, manifest: &str, bytes: &[u8], more: &[&str]) {
    let hash = sha256(bytes);
    write(&folder.join("ollama/blobs").join(format!("sha256-{hash}")), bytes);
    let layer = |kind: &str, hash: &str| json!({"mediaType": format!("application/vnd.ollama.image.{kind}"), "digest": format!("sha256:{hash}"), "size": 1});
    let mut layers = vec![layer("model", &hash)];
    layers.extend(more.iter().map(|kind| layer(kind, &sha256(kind.as_bytes()))));
    let image = json!({"schemaVersion": 2, "layers": layers});
    write(&folder.join("ollama/manifests").join(manifest), image.to_string().as_bytes());
}

fn named<'a>(all: &'a [Found], name: &str) -> &'a Found {
    let mut called = all.iter().filter(|found| found.is_called(name));
    let found = called.next().unwrap_or_else(|| panic!("{name} is not in {all:?}"));
    assert_eq!(called.next(), None, "{name} is clear");
    found
}

#[test]
fn every_program_is_looked_at() {
    let home = Home::new();
    let (places, folder) = places(&home);
    assert_eq!(find_elsewhere(&places), []);
    put_into_ollama(&folder, "registry.ollama.ai/library/tiny/latest", &model_bytes(1, 1000), &["template"]);
    put_into_ollama(&folder, "registry.ollama.ai/me/tuned/v1", &model_bytes(2, 1000), &["adapter"]);
    put_into_ollama(&folder, "hf.co/o/Repo-GGUF/Q4_K_M", &model_bytes(3, 1000), &[]);
    write(&folder.join("ollama/manifests/registry.ollama.ai/library/broken/latest"), b"{");
    write(&folder.join(".lmstudio/models/pub/Repo/Model-Q4_0.GGUF"), &model_bytes(4, 1000));
    write(&folder.join(".lmstudio/models/pub/Repo/mmproj-Model.gguf"), &model_bytes(5, 1000));
    write(&folder.join("llama/o_r_Big-00001-of-00002.gguf"), &model_bytes(6, 1000));
    write(&folder.join("llama/o_r_Big-00002-of-00002.gguf"), &model_bytes(7, 1000));
    write(&folder.join("hf/hub/models--o--r/snapshots/1f2e/sub/Cached.gguf"), &model_bytes(8, 1000));
    let all = find_elsewhere(&places);
    let names: Vec<(Program, &str)> = all.iter().map(|found| (found.program, found.name.as_str())).collect();
    let expected = [
        (Program::Ollama, "hf.co/o/Repo-GGUF:Q4_K_M"),
        (Program::Ollama, "me/tuned:v1"),
        (Program::Ollama, "tiny:latest"),
        (Program::LmStudio, "pub/Repo/Model-Q4_0.GGUF"),
        (Program::LlamaCpp, "o_r_Big-00001-of-00002.gguf"),
        (Program::HuggingFace, "o/r/sub/Cached.gguf"),
    ];
    assert_eq!(names, expected);
    assert_eq!(named(&all, "o_r_Big-00001-of-00002").file.parts().count(), 2);
    assert!(named(&all, "me/tuned:v1").obstacle.as_ref().unwrap().contains("adapter"));
    assert_eq!(named(&all, "TINY").name, "tiny:latest");
    assert_eq!(named(&all, "model-q4_0").name, "pub/Repo/Model-Q4_0.GGUF");
}

#[test]
fn a_model_is_linked_and_stays_when_the_other_program_removes_it() {
    let home = Home::new();
    let (places, folder) = places(&home);
    let bytes = model_bytes(1, 300_000);
    put_into_ollama(&folder, "registry.ollama.ai/library/tiny/1b", &bytes, &["template"]);
    let found = find_elsewhere(&places).remove(0);
    let pulled = home.store.adopt(&found, None, &mut |_| ()).unwrap();
    assert_eq!((pulled.model.name.as_str(), pulled.was_there), ("tiny:1b", false));
    assert_eq!(pulled.model.source, "Ollama tiny:1b");
    assert!(!pulled.model.files[0].unchecked);
    assert!(home.store.adopt(&found, None, &mut |_| ()).unwrap().was_there);
    assert!(home.pull("tiny:1b", &crate::fixtures::options("http://127.0.0.1:1")).0.unwrap().was_there);
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&fs::metadata(&found.file.path).unwrap()), 2, "nothing is copied");
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(home.bytes("tiny:1b"), bytes);
    assert_eq!(home.store.list().unwrap().unfinished, Vec::<String>::new());
}

/// People move their models to another disk and leave a link behind.
#[cfg(unix)]
#[test]
fn links_to_folders_are_followed_and_circles_end() {
    let home = Home::new();
    let (places, folder) = places(&home);
    let [linked, moved] = [".lmstudio/models/pub", "moved"].map(|below| folder.join(below));
    write(&moved.join("Repo/Far-Q4_0.gguf"), &model_bytes(4, 1000));
    fs::create_dir_all(linked.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&moved, &linked).unwrap();
    std::os::unix::fs::symlink(&moved, moved.join("again")).unwrap();
    let all = find_elsewhere(&places);
    assert_eq!(all.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["pub/Repo/Far-Q4_0.gguf"]);
}

/// On another disk a hard link is not possible.
#[cfg(target_os = "linux")]
#[test]
fn a_model_on_another_disk_is_linked_by_name() {
    let home = Home::new();
    let Ok(disk) = tempfile::tempdir_in("/dev/shm") else { return };
    let device = |path: &std::path::Path| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
    if device(disk.path()) == device(home.folder.path()) {
        return;
    }
    let variable = |name: &str| (name == "OLLAMA_MODELS").then(|| disk.path().join("ollama").into_os_string());
    let places = Places::resolve(variable, None, "linux");
    let bytes = model_bytes(1, 300_000);
    put_into_ollama(disk.path(), "registry.ollama.ai/library/tiny/1b", &bytes, &[]);
    home.store.adopt(&find_elsewhere(&places)[0], None, &mut |_| ()).unwrap();
    assert_eq!(home.bytes("tiny:1b"), bytes);
    assert!(fs::symlink_metadata(home.path("tiny@1b/model.gguf")).unwrap().is_symlink());
    home.store.remove("tiny:1b").unwrap();
    assert_eq!(find_elsewhere(&places).len(), 1, "the other program's model stays");
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let home = Home::new();
    let (places, folder) = places(&home);
    put_into_ollama(&folder, "registry.ollama.ai/library/tuned/1b", &model_bytes(1, 1000), &["adapter"]);
    put_into_ollama(&folder, "registry.ollama.ai/library/damaged/1b", &model_bytes(2, 1000), &[]);
    put_into_ollama(&folder, "registry.ollama.ai/library/smollm2/135m", &model_bytes(3, 1000), &[]);
    let all = find_elsewhere(&places);
    fs::write(&named(&all, "damaged:1b").file.path, model_bytes(9, 1000)).unwrap();
    let check = |model: &str, name: Option<&str>, expected: &str| {
        let error = home.store.adopt(named(&all, model), name, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("tuned:1b", None, "adapter");
    check("damaged:1b", None, "is damaged");
    check("smollm2:135m", Some("No Name"), "is not a name for a model");
    check("smollm2:135m", Some("smollm2:360m"), "a model of the catalog with other bytes");
    // A model with different bytes does not pass for the catalog's.
    let pulled = home.store.adopt(named(&all, "smollm2:135m"), None, &mut |_| ()).unwrap();
    assert_eq!(pulled.model.name, "smollm2:135m-ollama");
}
