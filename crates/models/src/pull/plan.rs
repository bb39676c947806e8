//! The plan of a pull: the model and the name that a reference means.

use std::path::Path;

use hone_protocol::{ModelFile, with_causes};

use super::{PullError, PullOptions, SourceFailure, TransferError, choice::choose};
use crate::{
    catalog::{CatalogFile, CatalogModel, Role, Source},
    installed::InstalledModel,
    name::{is_model_name, looks_like_path, name_from_file, names_of_parts},
    progress::{Choice, Event, ProgressSink},
    quantization,
    reference::{HubFile, HubRepository, Reference, WebFile, file_name},
    store::{Store, StoreError, located_at_path},
};

/// The meaning of a reference.
pub(crate) struct Plan {
    pub(crate) name: String,
    /// The only source allowed for the model; empty if any source of the catalog will do.
    pub(crate) source: String,
    pub(crate) origin: Origin,
    /// The allowed SHA-256 hashes of its only file, if its name is in the catalog.
    pub(crate) hashes: Option<Vec<String>>,
}

impl Plan {
    /// The source of an installed model that is not in the catalog, in case it must be pulled again.
    fn again(model: InstalledModel) -> Self {
        let InstalledModel { name, source, .. } = &model;
        let origin = match Reference::parse(source) {
            Ok(Some(Reference::File(file))) => Origin::Sources(Box::new(hub_model(name, &file))),
            Ok(Some(Reference::Web(file))) => Origin::Sources(Box::new(web_model(name, &file))),
            _ => {
                let original = ModelFile::at_path(Path::new(source)).ok();
                let original = original.filter(|file| file.size() == model.size());
                Origin::File(original.unwrap_or_else(|| model.files[0].location.clone()))
            }
        };
        Self { name: model.name, source: model.source, origin, hashes: None }
    }

    /// Whether an installed model of the planned name is the one that the reference means.
    pub(crate) fn allows(&self, installed: &InstalledModel) -> bool {
        let same_size = match &self.origin {
            Origin::File(file) => file.size() == installed.size(),
            Origin::Sources(_) => true,
        };
        same_size && (self.source.is_empty() || self.source == installed.source)
    }
}

pub(crate) enum Origin {
    Sources(Box<CatalogModel>),
    File(ModelFile),
}

impl Store {
    /// The meaning of `reference`. If it leaves the file of a repository open, the hub is asked.
    pub(crate) fn plan(
        &self,
        reference: &str,
        options: &PullOptions,
        progress: ProgressSink<'_>,
    ) -> Result<Plan, PullError> {
        // A new name for an installed model makes a separate copy.
        let is_installed_as = options.name.is_none() || is_model_name(&reference.to_lowercase());
        let name = if is_installed_as { self.installed_name(reference) } else { reference.to_owned() };
        let lower = reference.to_lowercase();
        let named = self.catalog().find(self.catalog().in_own_quantization(&lower).unwrap_or(&lower));
        if let Some(known) = named.or_else(|| self.catalog().find(&name)) {
            return self.plan_known(known, lower == known.name, options, progress);
        }
        let path = Path::new(reference);
        if path.is_file() && !Reference::is_explicit(reference) {
            let file = located_at_path(path)?;
            let name = chosen_name(options, &file.path)?;
            let hashes = self.hashes_of(&name, file.parts().count())?;
            return Ok(Plan { name, source: file.path.display().to_string(), origin: Origin::File(file), hashes });
        }
        let network = Reference::parse(reference).map_err(PullError::Malformed)?;
        // A broken model counts as missing, so that pulling it again repairs it.
        let stored = match self.stored(&name) {
            Err(StoreError::Broken(_)) => None,
            stored => stored?,
        };
        if let (Some(network), Some(model)) = (&network, &stored) {
            return Ok(match network {
                // The recorded source lacks the secrets of the address.
                Reference::Web(file) => {
                    let origin = Origin::Sources(Box::new(web_model(&model.name, file)));
                    Plan { origin, ..Plan::again(model.clone()) }
                }
                _ => Plan::again(model.clone()),
            });
        }
        match network {
            Some(Reference::File(file)) => return self.plan_file(&file, options),
            Some(Reference::Web(file)) => return self.plan_web(&file, options),
            // A text that looks like a repository may be a misspelt path.
            Some(Reference::Repository(_)) if path.exists() => return Err(PullError::Unknown(self.unknown(reference))),
            Some(Reference::Repository(repository)) => {
                return self.plan_file(&ask(&repository, options, progress)?, options);
            }
            None => {}
        }
        match stored {
            Some(model) if !looks_like_path(reference) => Ok(Plan::again(model)),
            _ => self.plan_quantization(&lower, options).map_err(|error| match error {
                PullError::Unknown(_) => PullError::Unknown(self.unknown(reference)),
                error => error,
            }),
        }
    }

    /// A model of the catalog. If it `may_differ` and does not fit the machine, the largest quantization that fits is
    /// used, if any.
    fn plan_known(
        &self,
        known: &CatalogModel,
        may_differ: bool,
        options: &PullOptions,
        progress: ProgressSink<'_>,
    ) -> Result<Plan, PullError> {
        let fits = !may_differ || options.room.is_none_or(|room| known.size() <= room);
        let installed = self.installed_name(&known.name);
        if !fits
            && installed != known.name
            && let Some(model) = self.stored(&installed)?
        {
            return Ok(Plan::again(model));
        }
        if !fits
            && !options.offline
            && !self.has(&known.name)
            && let Some(plan) = smaller(known, options, progress)
        {
            return Ok(plan);
        }
        Ok(Plan {
            name: known.name.clone(),
            source: String::new(),
            origin: Origin::Sources(Box::new(known.clone())),
            hashes: None,
        })
    }

    /// A model of the catalog in another quantization, such as `qwen3:4b-q8_0`.
    fn plan_quantization(&self, name: &str, options: &PullOptions) -> Result<Plan, PullError> {
        let unknown = || PullError::Unknown(self.unknown(name));
        let (base, quantization) = quantization::of_model(name).ok_or_else(unknown)?;
        let known = self.catalog().find(base).ok_or_else(unknown)?;
        let repository = known.other_quantizations().ok_or_else(unknown)?;
        let repository = HubRepository { quantization: Some(quantization), ..repository };
        let file = ask(&repository, options, &mut |_| ())?;
        Ok(of_hub(options.name.clone().unwrap_or_else(|| name.to_owned()), &file))
    }

    fn plan_file(&self, file: &HubFile, options: &PullOptions) -> Result<Plan, PullError> {
        let name = chosen_name(options, Path::new(&file.path))?;
        let hashes = self.hashes_of(&name, file.parts().len())?;
        let mut plan = of_hub(name, file);
        if let (Origin::Sources(model), Some(hashes)) = (&mut plan.origin, &hashes) {
            model.files[0].sha256 = Some(hashes[0].clone());
        }
        Ok(Plan { hashes, ..plan })
    }

    fn plan_web(&self, file: &WebFile, options: &PullOptions) -> Result<Plan, PullError> {
        let name = chosen_name(options, Path::new(&file.file_name()))?;
        let hashes = self.hashes_of(&name, file.parts().len())?;
        let mut model = web_model(&name, file);
        model.files[0].sha256 = hashes.as_ref().map(|hashes| hashes[0].clone());
        Ok(Plan { name, source: file.label(), origin: Origin::Sources(Box::new(model)), hashes })
    }

    /// The hash that a file must have to be stored under a name of the catalog; only single files can be.
    fn hashes_of(&self, name: &str, n_files: usize) -> Result<Option<Vec<String>>, PullError> {
        let Some(known) = self.catalog().find(name) else { return Ok(None) };
        let of_sources = known.sources.iter().filter_map(Source::sha256);
        let of_files = known.files.iter().filter_map(|file| file.sha256.as_deref());
        let hashes: Vec<String> = of_files.chain(of_sources).map(str::to_owned).collect();
        if known.files.len() > 1 || n_files > 1 || hashes.is_empty() {
            return Err(PullError::Malformed(format!(
                "`{name}` is a model of the catalog, which has no hash to verify this file against: choose another name with --name"
            )));
        }
        Ok(Some(hashes))
    }
}

/// The largest quantization of a model that fits the machine, if the hub can be asked and has one.
fn smaller(known: &CatalogModel, options: &PullOptions, progress: ProgressSink<'_>) -> Option<Plan> {
    let repository = known.other_quantizations()?;
    let mut said = None;
    let asked = choose(&repository, options, &mut |event| said = Some(event.clone()));
    let file = asked.inspect_err(|error| tracing::warn!(%error, "other quantizations are unknown")).ok()?;
    let event = said?;
    match event {
        Event::Chosen { choice: Choice::LargestThatFits, .. } => {}
        Event::Chosen { choice: Choice::TooLarge, .. } => {
            progress(&event);
            return None;
        }
        _ => return None,
    }
    let quantization = quantization::of_file(file_name(&file.path))?.to_lowercase();
    progress(&event);
    Some(of_hub(format!("{}-{quantization}", known.name), &file))
}

/// Asks the hub for the file of a repository that is meant.
fn ask(repository: &HubRepository, options: &PullOptions, progress: ProgressSink<'_>) -> Result<HubFile, PullError> {
    let label = repository.label();
    if options.offline {
        return Err(PullError::Offline(label));
    }
    choose(repository, options, progress).map_err(|error: TransferError| {
        let failure = SourceFailure { source: label.clone(), reason: with_causes(&error) };
        PullError::SourcesFailed { name: label, failures: vec![failure] }
    })
}

fn of_hub(name: String, file: &HubFile) -> Plan {
    let origin = Origin::Sources(Box::new(hub_model(&name, file)));
    Plan { name, source: file.label(), origin, hashes: None }
}

fn chosen_name(options: &PullOptions, path: &Path) -> Result<String, PullError> {
    let name = options.name.clone().or_else(|| name_from_file(path));
    name.filter(|name| is_model_name(name)).ok_or_else(|| {
        PullError::Malformed(format!(
            "no model name can be derived from `{}`: choose one such as `my-model:tag` with --name",
            path.display()
        ))
    })
}

/// A catalog entry for a hub file that is not in the catalog.
fn hub_model(name: &str, file: &HubFile) -> CatalogModel {
    let (repository, revision, paths) = (file.repository.clone(), file.revision.clone(), file.parts());
    uncatalogued(name, paths.len(), Source::Hub { repository, revision, paths, sha256: None, confirmed: true })
}

/// A catalog entry for a file at any address.
fn web_model(name: &str, file: &WebFile) -> CatalogModel {
    let urls = file.parts();
    uncatalogued(name, urls.len(), Source::Web { urls })
}

fn uncatalogued(name: &str, n_files: usize, source: Source) -> CatalogModel {
    let unknown = |name| CatalogFile { name, size: 0, sha256: None };
    CatalogModel {
        name: name.to_owned(),
        role: Role::Generator,
        family: String::new(),
        parameters: String::new(),
        active_parameters: None,
        quantization: String::new(),
        context: 0,
        licence: String::new(),
        judge_profile: None,
        draft: None,
        quantizations: None,
        files: names_of_parts(n_files).into_iter().map(unknown).collect(),
        sources: vec![source],
    }
}
