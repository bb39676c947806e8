//! The judge that the configuration describes, or the jury: settings, profiles, the rubric, and the key of the fences.

pub mod calibration;
pub mod identity;
mod key;
pub mod marks;
mod preferred;
mod rubrics;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hone_engine::{ModelPurpose, model_purpose};
use hone_judging::{
    Fallback, FenceKey, Judge, JudgeProfile, JudgeSettings, Jury, LIKELIHOOD, Rubric, Standing, Standings,
};
use hone_models::{Catalog, Store};
use hone_protocol::Generate;

use crate::config::{Config, Places, Source};
use crate::usage;
pub use key::fence_key;
pub use preferred::{marks_of, prefer_installed_judge};

/// The judge that the configuration describes, or the jury.
///
/// # Errors
/// When the rubric or a profile does not exist, the settings contradict each other, a judge of the jury is not known,
/// or a judge was named on the command line, is not installed and has no fallback.
pub fn jury(config: &Config, store: &Store, data_folder: &Path, generator: Arc<dyn Generate>) -> anyhow::Result<Jury> {
    check_jury(config, store)?;
    let parts = Parts { store, data_folder, key: fence_key(data_folder)?, generator };
    let judge = &config.judge;
    if let [only] = judge.jurors() {
        return Ok(parts.juror(&with_judge(config, only, judge.fallback))?.into());
    }
    // A juror has no fallback: the others judge.
    let alone = |name: &str| with_judge(config, name, Fallback::None);
    let mut jurors = judge.jurors().iter().map(|name| parts.juror(&alone(name)));
    let first = Jury::from(jurors.next().context("a jury has jurors")??);
    let jury = jurors.try_fold(first, |jury, juror| juror.map(|juror| jury.joined_by(juror)))?;
    match judge.stronger.as_str() {
        "" => Ok(jury),
        name => Ok(jury.with_stronger(parts.judge(&alone(name))?)),
    }
}

/// Checks the names of a jury's judges.
fn check_jury(config: &Config, store: &Store) -> anyhow::Result<()> {
    let JudgeSettings { models, stronger, .. } = &config.judge;
    if models.contains(stronger) {
        return Err(usage(format!("judge.stronger is {stronger:?}, which is a juror: name another judge, or none")));
    }
    let jurors = models.iter().map(|name| ("judge.models names", name));
    let stronger = Some(("judge.stronger is", stronger)).filter(|(_, name)| !name.is_empty() && !models.is_empty());
    let is_known = |name: &str| store.catalog().about(name).is_some() || store.show(name).is_ok();
    if let Some((what, _)) = jurors.clone().chain(stronger).find(|(_, name)| name.as_str() == LIKELIHOOD) {
        return Err(usage(format!(
            "{what} {LIKELIHOOD:?}, which gives no score from 1 to 5: name judges that do, or judge.model = {LIKELIHOOD:?}"
        )));
    }
    if let Some((what, name)) = jurors.clone().chain(stronger).find(|(_, name)| is_reward_model(store, name)) {
        return Err(usage(format!(
            "{what} {name:?}, a reward model, which gives no score from 1 to 5: name judges that do, or judge.model = {name:?}"
        )));
    }
    match jurors.chain(stronger).find(|(_, name)| !is_known(name)) {
        Some((what, name)) => Err(usage(format!(
            "{what} {name:?}, and there is no such model: name one that `hone list --all` shows, or a GGUF file"
        ))),
        None => Ok(()),
    }
}

/// The configuration in which only the judge of this name judges.
pub fn with_judge(config: &Config, name: &str, fallback: Fallback) -> Config {
    let mut config = config.clone();
    config.judge = JudgeSettings { model: name.to_owned(), models: Vec::new(), fallback, ..config.judge };
    config
}

/// The parts that the judges of a jury share.
struct Parts<'a> {
    store: &'a Store,
    data_folder: &'a Path,
    key: FenceKey,
    generator: Arc<dyn Generate>,
}

impl Parts<'_> {
    /// The configured judge, which must be installed if it was named on the command line and has no fallback.
    fn juror(&self, config: &Config) -> anyhow::Result<Judge> {
        let judge = self.judge(config)?;
        let JudgeSettings { model, fallback, .. } = judge.settings();
        if is_named_by_hand(config) && *fallback == Fallback::None && model != LIKELIHOOD {
            self.store.show(model).with_context(|| format!("cannot judge with {model:?}"))?;
        }
        Ok(judge)
    }

    /// The configured judge.
    fn judge(&self, config: &Config) -> anyhow::Result<Judge> {
        let Parts { store, data_folder, key, generator } = self;
        let own_profile = profile(config, store.catalog(), &config.judge.model)?;
        let stand_in = profile(config, store.catalog(), &config.engine.model)?;
        let (settings, rubric) = (settings(config, own_profile), rubric(config)?);
        let judge = Judge::new(Arc::clone(generator), settings, own_profile.clone(), rubric, key.clone())
            .map_err(|invalid| usage(format!("the section judge: {invalid}")))?;
        let is_reward_model = is_reward_model(store, &judge.settings().model);
        let judge = judge.with_stand_in(stand_in.clone()).of_reward_model(is_reward_model);
        judge.set_standings(standings(config, store, data_folder, &judge));
        Ok(judge)
    }
}

/// Whether a model is a reward model, as far as it is installed. Those in the catalog that write text are not, so their
/// files need not be read.
fn is_reward_model(store: &Store, name: &str) -> bool {
    let writes = store.catalog().about(name).is_some_and(|known| known.role.writes());
    let file = || store.show(name).ok()?.gguf();
    !writes && file().is_some_and(|file| model_purpose(&file) == Some(ModelPurpose::Rewards))
}

/// The profile of `model`: the chosen one, or else the one in the catalog, or else the one that suits its name.
///
/// # Errors
/// When the chosen profile does not exist.
pub fn profile<'a>(config: &'a Config, catalog: &Catalog, model: &str) -> anyhow::Result<&'a JudgeProfile> {
    let profile = &config.judge.profile;
    let of_catalog = || catalog.about(model).and_then(|known| known.judge_profile.as_deref());
    let name = Some(profile.as_str()).filter(|name| !name.trim().is_empty());
    let Some(name) = name.or_else(of_catalog) else { return Ok(config.judges.for_model(model)) };
    config.judges.get(name).ok_or_else(|| {
        let names: Vec<&str> = config.judges.iter().map(|profile| profile.name.as_str()).collect();
        usage(format!("judge.profile is {name:?}, and there is no such profile: there are {}", names.join(", ")))
    })
}

/// The rubric that the configuration names.
///
/// # Errors
/// When it does not exist.
pub fn rubric(config: &Config) -> anyhow::Result<Rubric> {
    rubrics::find(&config.judge.rubric, Places::of_this_process().folder())
}

/// The model whose examination decides whether this judge grades, if it is installed and has not taken it.
pub fn unexamined(config: &Config, store: &Store, data_folder: &Path, judge: &Judge) -> Option<String> {
    let settings = judge.settings();
    let is_installed = |model: &str| store.show(model).is_ok();
    let model = match settings.fallback {
        _ if settings.model == LIKELIHOOD || !settings.examination => return None,
        _ if is_installed(&settings.model) => &settings.model,
        Fallback::Generator => &config.engine.model,
        Fallback::Likelihood | Fallback::None => return None,
    };
    let marks = marks_of(config, store, data_folder, judge.rubric(), model).ok().flatten();
    (is_installed(model) && marks.is_none()).then(|| model.clone())
}

/// Which verdicts may be shown, by the marks of the models that the judge may ask.
pub fn standings(config: &Config, store: &Store, data_folder: &Path, judge: &Judge) -> Standings {
    let settings = judge.settings();
    if !settings.examination {
        return Standings::default();
    }
    let marks = |model: &str| marks_of(config, store, data_folder, judge.rubric(), model).ok().flatten();
    let of_model = |model: &str| match marks(model) {
        // A model that is not installed cannot be asked, which is reported on use.
        None if store.show(model).is_err() => Standing::Unchecked,
        None => {
            Standing::Barred(format!("{model} has not taken its examination yet: `hone judge exam {model}` starts it"))
        }
        Some(marks) if marks.passes(settings.least_auc) => Standing::Passed,
        Some(marks) => Standing::Barred(format!(
            "{model} did not pass its examination: it tells good answers from bad ones with an AUC of {}, and the lower end \
             must be above {}",
            marks.auc, settings.least_auc
        )),
    };
    let of_rewards = || {
        let marks = judge.is_reward_model().then(|| marks(&settings.model));
        marks??.reward_scale.map(Arc::new)
    };
    Standings {
        reward_scale: of_rewards(),
        judge: of_model(&settings.model),
        generator: of_model(&config.engine.model),
        likelihood: Standing::Passed,
    }
}

/// The judge's settings. The answering model stands in for the default judge; for a judge named on the command line, it
/// does so only if the fallback is configured explicitly. Settings that are not configured come from the profile.
pub fn settings(config: &Config, profile: &JudgeProfile) -> JudgeSettings {
    let is_fallback_chosen = config.source_of("judge.fallback") != Some(&Source::Default);
    let fallback = match is_named_by_hand(config) && !is_fallback_chosen {
        true => Fallback::None,
        false => config.judge.fallback,
    };
    let is_set = |key: &str| config.source_of(&format!("judge.{key}")) != Some(&Source::Default);
    JudgeSettings { fallback, ..config.judge.clone() }.for_profile(profile, is_set)
}

/// Whether the judge, or the jury, was named on the command line.
pub fn is_named_by_hand(config: &Config) -> bool {
    ["judge.model", "judge.models"].iter().any(|key| matches!(config.source_of(key), Some(Source::Flag(_))))
}
