//! Ollama's store: `manifests/HOST/NAMESPACE/NAME/TAG` is a list of layers, an OCI image manifest, and `blobs/sha256-HASH`
//! holds each of them. The layer of the media type `application/vnd.ollama.image.model` is a GGUF file.

use std::path::Path;

use hone_files::{is_within, read_within};
use hone_protocol::ModelFile;
use serde::Deserialize;

use super::{Found, Program};
use crate::digest::is_sha256;

/// The host and the namespace that Ollama's names leave out.
const OWN: &str = "registry.ollama.ai/library/";

/// The host that Ollama leaves out of the names of users' own models.
const OWN_HOST: &str = "registry.ollama.ai/";

/// The largest list of layers that is read, in bytes.
const LARGEST_MANIFEST: u64 = 1 << 20;

#[derive(Deserialize)]
struct Image {
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
}

/// The models in Ollama's folder.
pub(crate) fn find(place: &Path) -> Vec<Found> {
    let manifests = place.join("manifests");
    let pattern = Path::new(&glob::Pattern::escape(&manifests.to_string_lossy())).join("*/*/*/*");
    let files = glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten();
    files.filter_map(|path| model(place, &manifests, &path)).collect()
}

fn model(place: &Path, manifests: &Path, path: &Path) -> Option<Found> {
    let parts: Vec<&str> =
        path.strip_prefix(manifests).ok()?.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let (tag, folders) = parts.split_last()?;
    let full = format!("{}:{tag}", folders.join("/"));
    let name = full.strip_prefix(OWN).or_else(|| full.strip_prefix(OWN_HOST)).unwrap_or(&full).to_owned();
    let image: Image = serde_json::from_slice(&read_within(place, path, LARGEST_MANIFEST).ok()?).ok()?;
    let layer = |kind: &str| image.layers.iter().find(|layer| layer.media_type.ends_with(kind));
    let hash = layer(".image.model")?.digest.strip_prefix("sha256:").filter(|hash| is_sha256(hash))?.to_owned();
    let blob = place.join("blobs").join(format!("sha256-{hash}"));
    let file =
        is_within(place, &blob).ok().filter(|is_within| *is_within).and_then(|_| ModelFile::at_path(&blob).ok())?;
    let obstacle = layer(".image.adapter")
        .map(|adapter| format!("it is a model with an adapter ({}), which hone does not apply", adapter.digest));
    Some(Found { program: Program::Ollama, name, file, sha256: Some(hash), obstacle })
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn pipes_devices_and_links_outside_are_passed_over() {
        let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (tags, blobs) = (place.path().join("manifests/registry.ollama.ai/library/m"), place.path().join("blobs"));
        fs::create_dir_all(&tags).unwrap();
        fs::create_dir_all(&blobs).unwrap();
        let manifest = |digit: &str| {
            let digest = digit.repeat(64);
            let layer = serde_json::json!({"mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digest}")});
            (serde_json::json!({"layers": [layer]}).to_string(), blobs.join(format!("sha256-{digest}")))
        };
        pipe(&tags.join("pipe"));
        symlink("/dev/zero", tags.join("zero")).unwrap();
        for (name, digit) in [("good", "a"), ("pipe-blob", "b"), ("outside-blob", "c")] {
            let (text, blob) = manifest(digit);
            fs::write(tags.join(name), &text).unwrap();
            match name {
                "good" => fs::write(blob, "GGUF").unwrap(),
                "pipe-blob" => pipe(&blob),
                _ => {
                    fs::write(outside.path().join("secret"), "GGUF").unwrap();
                    symlink(outside.path().join("secret"), blob).unwrap();
                }
            }
        }
        fs::write(outside.path().join("manifest"), manifest("a").0).unwrap();
        symlink(outside.path().join("manifest"), tags.join("outside")).unwrap();
        let names: Vec<String> = find(place.path()).into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["m:good"]);
    }
}
