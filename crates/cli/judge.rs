//! The judge that the configuration describes: its settings, its rubric, and the key of its fences.

mod key;
mod rubrics;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hone_models::Store;
use hone_protocol::Generate;
use hone_quality::{CriticSettings, Fallback, Judge};

use crate::config::{Config, Places, Source};
use crate::failure::usage;

/// The judge that the configuration describes.
///
/// # Errors
/// When its rubric does not exist, its settings contradict each other, or it was named on the command line, is not
/// installed and has no fallback.
pub(crate) fn judge(
    config: &Config,
    store: &Store,
    data_folder: &Path,
    generator: Arc<dyn Generate>,
) -> anyhow::Result<Judge> {
    let settings = settings(config);
    let rubric = rubrics::find(&settings.rubric, Places::of_this_process().folder())?;
    if is_named_by_hand(config) && settings.fallback == Fallback::None {
        store.show(&settings.model).with_context(|| format!("cannot judge with {:?}", settings.model))?;
    }
    let key = key::fence_key(data_folder)?;
    Judge::new(generator, settings, rubric, key).map_err(|invalid| usage(format!("the section critic: {invalid}")))
}

/// The judge's settings. The answering model stands in for the default judge; for a judge named on the command line, it
/// does so only if the fallback is configured explicitly.
fn settings(config: &Config) -> CriticSettings {
    let is_fallback_chosen = config.source_of("critic.fallback") != Some(&Source::Default);
    let fallback = match is_named_by_hand(config) && !is_fallback_chosen {
        true => Fallback::None,
        false => config.critic.fallback,
    };
    CriticSettings { fallback, ..config.critic.clone() }
}

fn is_named_by_hand(config: &Config) -> bool {
    matches!(config.source_of("critic.model"), Some(Source::Flag(_)))
}
