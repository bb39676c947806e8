//! The judge: whether it is here, and which one of the catalog suits this machine.

use hone_models::{Bundle, CatalogModel, Role, Store, data_folder};
use serde::Serialize;

use crate::config::Config;
use crate::judge::profile;
use crate::terminal::bytes;

/// Memory that a model takes for each byte of its file, with its KV cache.
const BYTES_PER_BYTE: f64 = 1.25;
/// Memory that is left to the rest of the system.
const SPARE_BYTES: u64 = 1 << 30;

/// What grades here, and what could.
#[derive(Debug, Default, Serialize)]
pub(super) struct Judge {
    model: String,
    profile: String,
    is_installed: bool,
    /// The judge of the catalog that suits this machine best.
    recommended: Option<Candidate>,
}

/// A judge of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Candidate {
    model: String,
    bytes: u64,
    /// Whether it writes long thoughts before every verdict, which takes minutes without an accelerator.
    thinks: bool,
}

/// What a judge has to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory_bytes: u64,
    /// Of the file of the model that answers.
    pub(super) generator_bytes: u64,
    pub(super) is_accelerated: bool,
}

impl Judge {
    /// Looks at it. What cannot be seen is the problem of the store, or of the configuration.
    pub(super) fn look(config: &Config, room: Option<Room>) -> Judge {
        let model = config.critic.model.clone();
        Judge::look_in_store(config, room).unwrap_or(Judge { model, ..Judge::default() })
    }

    fn look_in_store(config: &Config, room: Option<Room>) -> anyhow::Result<Judge> {
        let bundle = Bundle::open(&std::env::current_exe()?)?;
        let store = Store::open(&std::path::absolute(data_folder()?)?)?.with_bundle(bundle);
        let catalog = store.catalog();
        let candidate = |known: &CatalogModel| {
            let is_pullable = known.role == Role::Judge && known.sources.iter().any(|source| source.is_confirmed());
            let profile = config.judges.get(known.judge_profile.as_deref()?)?;
            let (model, bytes) = (known.name.clone(), known.size());
            is_pullable.then(|| Candidate { model, bytes, thinks: profile.thinking_tokens() > 0 })
        };
        let candidates: Vec<Candidate> = catalog.models.iter().filter_map(candidate).collect();
        Ok(Judge {
            model: config.critic.model.clone(),
            profile: profile(config, catalog, &config.critic.model)?.name.clone(),
            is_installed: store.show(&config.critic.model).is_ok(),
            recommended: room.and_then(|room| room.best_of(&candidates)),
        })
    }

    /// For a person.
    pub(super) fn row(&self) -> String {
        let Judge { model, profile, is_installed, recommended } = self;
        let state = if *is_installed { format!("profile {profile}") } else { "not installed".to_string() };
        let advice = match recommended {
            _ if *is_installed => String::new(),
            None => "; no judge of the catalog fits this machine's memory".to_string(),
            Some(other) => {
                let size = bytes(other.bytes);
                let setting = match other.model == *model {
                    true => String::new(),
                    false => format!(" and critic.model = \"{}\"", other.model),
                };
                format!("; fits this machine: `hone pull {}` ({size}){setting}", other.model)
            }
        };
        format!("{model} ({state}){advice}")
    }
}

impl Room {
    /// The largest judge that fits beside the model that answers; one that thinks first only on an accelerator.
    fn best_of(self, candidates: &[Candidate]) -> Option<Candidate> {
        let need = |bytes: u64| (bytes as f64 * BYTES_PER_BYTE) as u64;
        let fits = |candidate: &&Candidate| {
            let total = need(candidate.bytes) + need(self.generator_bytes) + SPARE_BYTES;
            total <= self.memory_bytes && (self.is_accelerated || !candidate.thinks)
        };
        candidates.iter().filter(fits).max_by_key(|candidate| candidate.bytes).cloned()
    }
}

#[cfg(test)]
mod tests {
    use hone_models::Catalog;
    use hone_quality::JudgeProfiles;

    use super::*;

    fn candidates() -> Vec<Candidate> {
        let candidate =
            |(model, bytes, thinks): (&str, u64, bool)| Candidate { model: model.to_string(), bytes, thinks };
        [("small", 2_400_000_000, false), ("middle", 4_400_000_000, false), ("thinker", 5_000_000_000, true)]
            .map(candidate)
            .to_vec()
    }

    #[track_caller]
    fn check(memory_bytes: u64, generator_bytes: u64, is_accelerated: bool, expected: Option<&str>) {
        let best = Room { memory_bytes, generator_bytes, is_accelerated }.best_of(&candidates());
        assert_eq!(best.map(|best| best.model).as_deref(), expected);
    }

    #[test]
    fn the_largest_judge_that_fits_is_recommended() {
        check(64_000_000_000, 100_000_000, false, Some("middle"));
        check(64_000_000_000, 100_000_000, true, Some("thinker"));
        check(6_000_000_000, 100_000_000, true, Some("small"));
        check(6_000_000_000, 4_000_000_000, true, None);
        check(2_000_000_000, 100_000_000, false, None);
    }

    #[test]
    fn the_row_says_what_to_do() {
        let judge = |is_installed, recommended: Option<usize>| Judge {
            model: "middle".to_string(),
            profile: "plain".to_string(),
            is_installed,
            recommended: recommended.map(|index| candidates().remove(index)),
        };
        assert_eq!(judge(true, Some(0)).row(), "middle (profile plain)");
        assert_eq!(
            judge(false, None).row(),
            "middle (not installed); no judge of the catalog fits this machine's memory"
        );
        assert_eq!(
            judge(false, Some(1)).row(),
            "middle (not installed); fits this machine: `hone pull middle` (4.40 GB)"
        );
        let other =
            "middle (not installed); fits this machine: `hone pull small` (2.40 GB) and critic.model = \"small\"";
        assert_eq!(judge(false, Some(0)).row(), other);
    }

    #[test]
    fn every_judge_of_the_catalog_has_a_profile() {
        let (catalog, profiles) = (Catalog::built_in().unwrap(), JudgeProfiles::shipped());
        for model in catalog.models.iter().filter(|model| model.role == Role::Judge) {
            let profile = model.judge_profile.as_deref().and_then(|name| profiles.get(name));
            assert!(profile.is_some_and(|profile| profile.context as u32 <= model.context), "{}", model.name);
        }
    }
}
