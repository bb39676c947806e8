//! Repositories of the hub: the quantizations of a model that they hold, and the one that suits a machine.

use std::{collections::HashMap, path::Path};

use hone_protocol::PartName;
use serde::Deserialize;

use super::{PullOptions, hub::HubClient, transfer_error::TransferError};
use crate::{
    name::is_safe_file_name,
    progress::{Choice, Event, ProgressSink},
    quantization,
    reference::{HubFile, HubRepository, file_name},
};

/// The size limit of a list of files in bytes; the largest repositories have some thousand files.
const LONGEST_LIST: u64 = 16 << 20;

/// The usual choices, most common first: about 4.5 bits a weight.
const USUAL: [&str; 14] = [
    "Q4_K_M",
    "UD-Q4_K_M",
    "UD-Q4_K_XL",
    "Q4_K_S",
    "Q4_0",
    "IQ4_XS",
    "IQ4_NL",
    "MXFP4",
    "Q4_1",
    "Q5_K_M",
    "Q5_K_S",
    "Q5_0",
    "Q6_K",
    "Q8_0",
];

/// The most models of a repository that are considered.
const MOST_CANDIDATES: usize = 1000;

/// The most models that are named in addition to the chosen one.
const MOST_NAMED: usize = 30;

/// A model in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    /// The file, or the first of its parts.
    file: HubFile,
    /// Its quantization; empty if its name does not contain one.
    quantization: String,
    /// The bytes of all parts, if the hub reports them.
    size: Option<u64>,
}

/// The fields used from the hub's description of a repository.
#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
}

/// Asks the hub for the repository's contents, chooses a file, and reports the choice and the alternatives.
pub(crate) fn choose(
    repository: &HubRepository,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<HubFile, TransferError> {
    let client = HubClient::new(options)?;
    let url = client.description_url(&repository.repository, &repository.revision);
    let page = options.retry.run(progress, || client.client().page(&url, "application/json", LONGEST_LIST))?;

    let description: Description = serde_json::from_slice(&page.bytes)
        .map_err(|error| TransferError::Repository(format!("its list of files cannot be read ({error})")))?;
    let candidates = candidates(repository, &description.siblings);
    let (chosen, choice) =
        pick(repository.quantization.as_deref(), &candidates, options.room).map_err(TransferError::Repository)?;
    if candidates.len() > 1 {
        let others =
            candidates.iter().filter(|other| *other != chosen).map(Candidate::describe).take(MOST_NAMED).collect();
        progress(&Event::Chosen { file: chosen.file.label(), size: chosen.size, choice, others });
    }
    Ok(chosen.file.clone())
}

/// The models in the repository, the smallest first.
fn candidates(repository: &HubRepository, siblings: &[Sibling]) -> Vec<Candidate> {
    let sizes: HashMap<&str, Option<u64>> = siblings.iter().map(|file| (file.rfilename.as_str(), file.size)).collect();
    let has_model = siblings.iter().any(|file| is_model(&file.rfilename) && !is_helper(&file.rfilename));
    let mut candidates: Vec<Candidate> = siblings
        .iter()
        .filter(|file| is_model(&file.rfilename) && !(has_model && is_helper(&file.rfilename)))
        .take(MOST_CANDIDATES)
        .filter_map(|file| {
            let quantization = quantization::of_file(file_name(&file.rfilename)).unwrap_or_default();
            let file = HubFile::new(&repository.repository, &repository.revision, &file.rfilename);
            if !file.parts().iter().all(|part| sizes.contains_key(part.as_str())) {
                return None;
            }
            let size_of = |part: &String| sizes.get(part.as_str()).copied().flatten();
            let size = file.parts().iter().try_fold(0u64, |sum, part| sum.checked_add(size_of(part)?));
            Some(Candidate { file, quantization, size })
        })
        .collect();
    candidates.sort_by(|one, other| (one.size, &one.file.path).cmp(&(other.size, &other.file.path)));
    candidates
}

fn pick<'a>(
    asked: Option<&str>,
    candidates: &'a [Candidate],
    room: Option<u64>,
) -> Result<(&'a Candidate, Choice), String> {
    if candidates.is_empty() {
        return Err("it holds no GGUF file of a model".to_owned());
    }
    if let Some(asked) = asked {
        // Of several sizes of a model, the smallest ones serve another purpose.
        let exact = candidates.iter().rfind(|one| one.quantization.eq_ignore_ascii_case(asked));
        let found = exact.or_else(|| candidates.iter().rfind(|one| quantization::is(&one.quantization, asked)));
        let all = || candidates.iter().take(MOST_NAMED).map(Candidate::describe).collect::<Vec<_>>().join(", ");
        return found.map(|found| (found, Choice::Asked)).ok_or_else(|| format!("it has no {asked}, but {}", all()));
    }
    // Types that the engine cannot run are chosen only on request.
    let candidates: Vec<&Candidate> = candidates.iter().filter(|one| quantization::runs(&one.quantization)).collect();
    let Some(smallest) = candidates.first() else {
        return Err("it holds no model of a type that is supported".to_owned());
    };
    let is_usual = |name: &&str| candidates.iter().rposition(|one| one.quantization == *name);
    let usual = USUAL.iter().find_map(is_usual).map_or(*smallest, |at| candidates[at]);
    let fits = |one: &Candidate| room.is_none_or(|room| one.size.is_none_or(|size| size <= room));
    if fits(usual) {
        return Ok((usual, Choice::Usual));
    }
    let smaller = candidates.iter().copied().rfind(|one| fits(one) && one.size < usual.size);
    Ok(smaller.map_or((usual, Choice::TooLarge), |found| (found, Choice::LargestThatFits)))
}

impl Candidate {
    /// The quantization or path that selects it.
    fn describe(&self) -> String {
        if self.quantization.is_empty() { self.file.path.clone() } else { self.quantization.clone() }
    }
}

/// Whether a file of a repository is a model, or the first part of one, and not a projector for images or statistics.
fn is_model(path: &str) -> bool {
    let name = file_name(path).to_lowercase();
    let is_first = PartName::of_path(Path::new(path)).is_none_or(|part| part.number == 1);
    name.ends_with(".gguf")
        && is_safe_file_name(path)
        && is_first
        && !name.contains("mmproj")
        && !name.contains("imatrix")
}

/// Words in the names of files or their folders that are not models to talk to: adapters, vocabularies, and heads and
/// small models that only draft for a large one.
const HELPERS: [&str; 11] =
    ["mtp", "nextn", "draft", "drafts", "drafter", "eagle", "eagle3", "medusa", "lora", "adapter", "vocab"];

/// Whether a file only helps a model: a word of its path says so.
fn is_helper(path: &str) -> bool {
    let path = path.to_lowercase();
    let mut words = path.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.any(|word| HELPERS.contains(&word))
}
