//! Models fetched by other programs on this machine. They are linked into the store: the bytes stay where they are, and
//! are read once to verify them.
//!
//! A model becomes a hard link, so it stays when the other program removes its own; where the system refuses one
//! (another disk, another owner) it becomes a symbolic link, or else a copy. These programs name their files after
//! their contents or write them once, and the store notices a file that was changed.

mod link;
mod ollama;
mod places;

use std::path::{Path, PathBuf};

use hone_protocol::{ModelFile, PartName};
use walkdir::WalkDir;

pub use self::places::Places;
use crate::reference::file_name;

/// A program that keeps models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
    /// llama.cpp, and llamafile.
    LlamaCpp,
    /// The tools of the Hugging Face hub, and programs that use their cache.
    HuggingFace,
}

/// A model that another program has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The program.
    pub program: Program,
    /// Its name there.
    pub name: String,
    /// Its file.
    pub file: ModelFile,
    /// The SHA-256 that its only file must have, if the program records it.
    pub(crate) sha256: Option<String>,
    /// The reason why hone cannot use it, if metadata next to the file shows one.
    pub obstacle: Option<String>,
}

impl Program {
    /// Every program.
    pub const ALL: [Program; 4] = [Program::Ollama, Program::LmStudio, Program::LlamaCpp, Program::HuggingFace];

    /// Its name, as users see it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Program::Ollama => "Ollama",
            Program::LmStudio => "LM Studio",
            Program::LlamaCpp => "llama.cpp",
            Program::HuggingFace => "Hugging Face",
        }
    }
}

impl Found {
    /// Whether a text means this model: its name in any case, for Ollama also without the tag `latest`, or the file's
    /// name.
    #[must_use]
    pub fn is_called(&self, text: &str) -> bool {
        let same = |name: &str| name.eq_ignore_ascii_case(text);
        let file = file_name(&self.name);
        same(&self.name) || self.name.strip_suffix(":latest").is_some_and(same) || same(file) || is_stem(file, text)
    }
}

/// Whether a text is a file name without its `.gguf`.
fn is_stem(file: &str, text: &str) -> bool {
    file.get(..text.len()).is_some_and(|stem| stem.eq_ignore_ascii_case(text))
        && file.get(text.len()..).is_some_and(|rest| rest.eq_ignore_ascii_case(".gguf"))
}

/// The models of other programs at these places, by program and name. Unreadable ones are left out.
#[must_use]
pub fn find_elsewhere(places: &Places) -> Vec<Found> {
    let of = |program| {
        let mut found: Vec<Found> = match program {
            Program::Ollama => places.of(program).iter().flat_map(|place| ollama::find(place)).collect(),
            _ => places.of(program).iter().flat_map(|place| in_folder(program, place)).collect(),
        };
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.dedup_by(|one, other| one.name == other.name);
        found
    };
    Program::ALL.into_iter().flat_map(of).collect()
}

/// The maximum depth of a search in a program's folder.
const MOST_FOLDERS: usize = 16;

/// The GGUF files below a folder; its subfolders may be links.
fn in_folder(program: Program, place: &Path) -> Vec<Found> {
    let files = WalkDir::new(place).follow_links(true).max_depth(MOST_FOLDERS).into_iter().flatten();
    files.filter_map(|file| model(program, place, file.path())).collect()
}

fn model(program: Program, place: &Path, path: &Path) -> Option<Found> {
    let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let is_first = PartName::of_path(path).is_none_or(|part| part.number == 1);
    if !is_gguf || !is_first || !path.is_file() || path.file_name()?.to_str()?.to_lowercase().contains("mmproj") {
        return None;
    }
    let below = path.strip_prefix(place).ok()?;
    let parts: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let (name, sha256) = match program {
        // models--OWNER--REPO/snapshots/REVISION/FILE, a link to a file that is named after its hash.
        Program::HuggingFace => {
            let repository = parts.first()?.strip_prefix("models--")?.replacen("--", "/", 1);
            parts.get(1).filter(|folder| *folder == "snapshots")?;
            let target: PathBuf = path.canonicalize().ok()?;
            let hash = target.file_name()?.to_str().filter(|name| crate::digest::is_sha256(name)).map(str::to_owned);
            (format!("{repository}/{}", parts.get(3..)?.join("/")), hash)
        }
        _ => (parts.join("/"), None),
    };
    let file = ModelFile::at_path(path).ok()?;
    let sha256 = sha256.filter(|_| file.rest.is_empty());
    Some(Found { program, name, file, sha256, obstacle: None })
}
