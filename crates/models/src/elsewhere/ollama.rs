//! Ollama's store: `manifests/HOST/NAMESPACE/NAME/TAG` is a list of layers, an OCI image manifest, and `blobs/sha256-HASH`
//! holds each of them. The layer of the media type `application/vnd.ollama.image.model` is a GGUF file.

use std::{fs, path::Path};

use hone_protocol::ModelFile;
use serde::Deserialize;

use super::{Found, Program};
use crate::digest::is_sha256;

/// The host and the namespace that Ollama's names leave out.
const OWN: &str = "registry.ollama.ai/library/";

/// The host that they leave out of the names of people's own models.
const OWN_HOST: &str = "registry.ollama.ai/";

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
    let image: Image = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let layer = |kind: &str| image.layers.iter().find(|layer| layer.media_type.ends_with(kind));
    let hash = layer(".image.model")?.digest.strip_prefix("sha256:").filter(|hash| is_sha256(hash))?.to_owned();
    let file = ModelFile::at_path(&place.join("blobs").join(format!("sha256-{hash}"))).ok()?;
    let obstacle = layer(".image.adapter")
        .map(|adapter| format!("it is a model with an adapter ({}), which hone does not apply", adapter.digest));
    Some(Found { program: Program::Ollama, name, file, sha256: Some(hash), obstacle })
}
