//! The judge that the configuration describes: its settings, its profile, its rubric, and the key of its fences.

pub(crate) mod identity;
mod key;
pub(crate) mod marks;
mod rubrics;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hone_models::{Catalog, Store};
use hone_protocol::Generate;
use hone_quality::{CriticSettings, Fallback, Judge, JudgeProfile, LIKELIHOOD, Rubric, Standing, Standings};

use self::marks::{Asked, MarksStore};
use crate::config::{Config, Places, Source};
use crate::failure::usage;

/// The judge that the configuration describes.
///
/// # Errors
/// When its rubric or its profile does not exist, its settings contradict each other, or it was named on the command line,
/// is not installed and has no fallback.
pub(crate) fn judge(
    config: &Config,
    store: &Store,
    data_folder: &Path,
    generator: Arc<dyn Generate>,
) -> anyhow::Result<Judge> {
    let own_profile = profile(config, store.catalog(), &config.critic.model)?;
    let stand_in = profile(config, store.catalog(), &config.engine.model)?;
    let settings = settings(config, own_profile);
    let rubric = rubric(config)?;
    let asks_model = settings.model != LIKELIHOOD;
    if is_named_by_hand(config) && settings.fallback == Fallback::None && asks_model {
        store.show(&settings.model).with_context(|| format!("cannot judge with {:?}", settings.model))?;
    }
    let key = key::fence_key(data_folder)?;
    let judge = Judge::new(generator, settings, own_profile.clone(), rubric, key)
        .map_err(|invalid| usage(format!("the section critic: {invalid}")))?;
    let judge = judge.with_stand_in(stand_in.clone());
    judge.set_standings(standings(config, store, data_folder, &judge));
    Ok(judge)
}

/// The profile of `model`: the one that was chosen, or else the one that the catalog gives it, or else the one that suits
/// its name.
///
/// # Errors
/// When there is no profile of the name that was chosen.
pub(crate) fn profile<'a>(config: &'a Config, catalog: &Catalog, model: &str) -> anyhow::Result<&'a JudgeProfile> {
    let profile = &config.critic.profile;
    let of_catalog = || catalog.find(model).and_then(|known| known.judge_profile.as_deref());
    let name = Some(profile.as_str()).filter(|name| !name.trim().is_empty());
    let Some(name) = name.or_else(of_catalog) else { return Ok(config.judges.for_model(model)) };
    config.judges.get(name).ok_or_else(|| {
        let names: Vec<&str> = config.judges.iter().map(|profile| profile.name.as_str()).collect();
        usage(format!("critic.profile is {name:?}, and there is no such profile: there are {}", names.join(", ")))
    })
}

/// The rubric that the configuration names.
///
/// # Errors
/// When it does not exist.
pub(crate) fn rubric(config: &Config) -> anyhow::Result<Rubric> {
    rubrics::find(&config.critic.rubric, Places::of_this_process().folder())
}

/// Which verdicts may be shown, by the marks of the models that the judge may ask.
fn standings(config: &Config, store: &Store, data_folder: &Path, judge: &Judge) -> Standings {
    let settings = judge.settings();
    if !settings.examination {
        return Standings::default();
    }
    let marks = MarksStore::new(data_folder);
    let find = |model: &str| {
        let profile = judge.profile_for(model);
        let critic = &self::settings(config, profile);
        marks.find(store, &Asked { model, critic, profile, rubric: judge.rubric() })
    };
    let of_model = |model: &str| match find(model) {
        // What is not installed cannot be asked, which is said when it is.
        None if store.show(model).is_err() => Standing::Unchecked,
        None => {
            Standing::Barred(format!("{model} has not taken its examination yet: `hone judge exam {model}` starts it"))
        }
        Some(examined) if examined.marks.passes(settings.least_auc) => Standing::Passed,
        Some(examined) => Standing::Barred(format!(
            "{model} did not pass its examination: it tells good answers from bad ones with an AUC of {}, and the lower end \
             must be above {}",
            examined.marks.auc, settings.least_auc
        )),
    };
    Standings {
        judge: of_model(&settings.model),
        generator: of_model(&config.engine.model),
        likelihood: Standing::Passed,
    }
}

/// The judge's settings. The answering model stands in for the default judge; for a judge named on the command line, it
/// does so only if the fallback is configured explicitly. The profile sets what nobody has set.
pub(crate) fn settings(config: &Config, profile: &JudgeProfile) -> CriticSettings {
    let is_fallback_chosen = config.source_of("critic.fallback") != Some(&Source::Default);
    let fallback = match is_named_by_hand(config) && !is_fallback_chosen {
        true => Fallback::None,
        false => config.critic.fallback,
    };
    let is_set = |key: &str| config.source_of(&format!("critic.{key}")) != Some(&Source::Default);
    CriticSettings { fallback, ..config.critic.clone() }.for_profile(profile, is_set)
}

/// Whether the judge was named on the command line.
pub(crate) fn is_named_by_hand(config: &Config) -> bool {
    matches!(config.source_of("critic.model"), Some(Source::Flag(_)))
}
