//! The judge that the configuration describes: its settings, its profile, its rubric, and the key of its fences.

mod key;
mod rubrics;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hone_models::{Catalog, Store};
use hone_protocol::Generate;
use hone_quality::{CriticSettings, Fallback, Judge, JudgeProfile};

use crate::config::{Config, Places, Source};
use crate::failure::usage;

/// The judge that the configuration describes.
///
/// # Errors
/// When its rubric or its profile is not to be found, its settings contradict each other, or it was named on the command line, has nobody
/// to stand in for it and is not installed.
pub(crate) fn judge(
    config: &Config,
    store: &Store,
    data_folder: &Path,
    generator: Arc<dyn Generate>,
) -> anyhow::Result<Judge> {
    let profile = profile(config, store.catalog())?;
    let settings = settings(config, profile);
    let rubric = rubrics::find(&settings.rubric, Places::of_this_process().folder())?;
    if is_named_by_hand(config) && settings.fallback == Fallback::None {
        store.show(&settings.model).with_context(|| format!("cannot judge with {:?}", settings.model))?;
    }
    let key = key::fence_key(data_folder)?;
    Judge::new(generator, settings, profile.clone(), rubric, key)
        .map_err(|invalid| usage(format!("the section critic: {invalid}")))
}

/// The profile that was chosen, or else the one that the catalog gives the judge's model, or else the one that suits the
/// model's name.
///
/// # Errors
/// When there is no profile of the name that was chosen.
pub(crate) fn profile<'a>(config: &'a Config, catalog: &Catalog) -> anyhow::Result<&'a JudgeProfile> {
    let CriticSettings { model, profile, .. } = &config.critic;
    let of_catalog = || catalog.find(model).and_then(|known| known.judge_profile.as_deref());
    let name = Some(profile.as_str()).filter(|name| !name.trim().is_empty());
    let Some(name) = name.or_else(of_catalog) else { return Ok(config.judges.for_model(model)) };
    config.judges.get(name).ok_or_else(|| {
        let names: Vec<&str> = config.judges.iter().map(|profile| profile.name.as_str()).collect();
        usage(format!("critic.profile is {name:?}, and there is no such profile: there are {}", names.join(", ")))
    })
}

/// The judge's settings. The answering model stands in for the judge that is shipped as the default; for one that was named
/// on the command line it does so only where somebody has said that it shall. The profile says what nobody has set.
fn settings(config: &Config, profile: &JudgeProfile) -> CriticSettings {
    let is_fallback_chosen = config.source_of("critic.fallback") != Some(&Source::Default);
    let fallback = match is_named_by_hand(config) && !is_fallback_chosen {
        true => Fallback::None,
        false => config.critic.fallback,
    };
    let is_set = |key: &str| config.source_of(&format!("critic.{key}")) != Some(&Source::Default);
    CriticSettings { fallback, ..config.critic.clone() }.for_profile(profile, is_set)
}

fn is_named_by_hand(config: &Config) -> bool {
    matches!(config.source_of("critic.model"), Some(Source::Flag(_)))
}
