//! The judge: whether it is here, and which one of the catalog suits this machine.

use hone_app::config::{Config, Source};
use hone_app::describe::bytes;
use hone_app::judge::{prefer_installed_judge, profile};
use hone_app::judging::JudgeSession;
use hone_app::room::memory_needed;
use hone_models::{Bundle, Catalog, CatalogModel, Role, Store, data_folder};
use serde::Serialize;

use super::Problem;
use crate::invocation::Invocation;
use crate::terminal::Output;
use crate::terminal::interrupt;
use crate::terminal::progress::Spinner;

/// The configured judge, and the one to recommend.
#[derive(Debug, Default, Serialize)]
pub(super) struct Judge {
    model: String,
    profile: String,
    is_installed: bool,
    /// Whether the user has chosen it, so that no other one takes its place.
    #[serde(skip)]
    is_chosen: bool,
    /// Measured now, or by its examination.
    seconds_per_grade: Option<f64>,
    /// Why it could not be measured.
    grading_problem: Option<String>,
    /// The judges of the jury, and the stronger judge last; empty if a single judge grades.
    jury: Vec<Member>,
    /// The judge of the catalog that suits this machine best.
    recommended: Option<Candidate>,
}

/// A judge of a jury.
#[derive(Debug, Serialize)]
struct Member {
    model: String,
    profile: String,
    is_installed: bool,
    /// Whether it is asked only where the others disagree.
    is_stronger: bool,
}

/// A judge of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Candidate {
    model: String,
    bytes: u64,
    /// Whether it writes long thoughts before every verdict, which takes minutes without an accelerator.
    thinks: bool,
}

/// The resources available to a judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory_bytes: u64,
    /// Size of the answering model's file.
    pub(super) generator_bytes: u64,
    pub(super) is_accelerated: bool,
}

impl Judge {
    /// Collects the facts. Errors are ignored here, since the store or the configuration reports them.
    pub(super) fn look(config: &Config, room: Option<Room>) -> Judge {
        let model = config.judge.model.clone();
        Judge::look_in_store(config, room).unwrap_or(Judge { model, ..Judge::default() })
    }

    fn look_in_store(config: &Config, room: Option<Room>) -> anyhow::Result<Judge> {
        let bundle = Bundle::open(&std::env::current_exe()?)?;
        let store = Store::open(&std::path::absolute(data_folder()?)?)?.with_bundle(bundle);
        let config = &mut config.clone();
        prefer_installed_judge(config, &store, &data_folder()?)?;
        let catalog = store.catalog();
        let candidates = candidates(config, catalog);
        let member = |model: &String, is_stronger| {
            let profile = profile(config, catalog, model)?.name.clone();
            Ok(Member { model: model.clone(), profile, is_installed: store.show(model).is_ok(), is_stronger })
        };
        let jurors = config.judge.jurors().iter().map(|model| member(model, false));
        let stronger = Some(&config.judge.stronger).filter(|name| !name.is_empty()).map(|model| member(model, true));
        let jury: Vec<Member> = jurors.chain(stronger).collect::<anyhow::Result<_>>()?;
        let is_jury = config.judge.jurors().len() > 1;
        let model = &config.judge.jurors()[0];
        Ok(Judge {
            model: model.clone(),
            profile: profile(config, catalog, model)?.name.clone(),
            is_installed: store.show(model).is_ok(),
            is_chosen: config.source_of("judge.model") != Some(&Source::Default),
            seconds_per_grade: None,
            grading_problem: None,
            jury: if is_jury { jury } else { Vec::new() },
            recommended: room.and_then(|room| room.best_of(&candidates)),
        })
    }

    /// Adds the cost of a grade here: from the judge's examination, or, if `deep`, from grading some answers now.
    pub(super) fn measured(mut self, config: &Config, deep: bool, output: Output) -> Judge {
        if !self.is_installed {
            return self;
        }
        match Invocation::new(config.clone(), output, "doctor").and_then(|app| seconds_per_grade(&app, deep)) {
            Ok(seconds) => self.seconds_per_grade = seconds,
            Err(error) => self.grading_problem = Some(format!("{error:#}")),
        }
        self
    }

    /// Why it cannot grade.
    pub(super) fn problem(&self) -> Option<Problem> {
        let what = format!("the judge {} cannot grade: {}", self.model, self.grading_problem.as_ref()?);
        Some(Problem { what, next: "pull it again, or choose another: `hone judge list`".to_string() })
    }

    /// The row for display.
    pub(super) fn row(&self) -> String {
        let Judge { model, profile, is_installed, seconds_per_grade, jury, recommended, .. } = self;
        if !jury.is_empty() {
            let members: Vec<String> = jury.iter().map(Member::text).collect();
            return format!("a jury: {}", members.join(", "));
        }
        let state = match (is_installed, seconds_per_grade) {
            (true, Some(seconds)) => format!("profile {profile}; a grade takes {seconds:.1} s here"),
            (true, None) => format!("profile {profile}; `hone doctor --deep` measures what a grade costs"),
            (false, _) => "not installed".to_string(),
        };
        let advice = match recommended {
            _ if *is_installed => String::new(),
            None => "; no judge of the catalog fits this machine's memory".to_string(),
            Some(other) => {
                let size = bytes(other.bytes);
                let setting = match self.is_chosen && other.model != *model {
                    true => format!(" and judge.model = \"{}\"", other.model),
                    false => String::new(),
                };
                format!("; fits this machine: `hone pull {}` ({size}){setting}", other.model)
            }
        };
        format!("{model} ({state}){advice}")
    }
}

fn seconds_per_grade(app: &Invocation, deep: bool) -> anyhow::Result<Option<f64>> {
    match deep {
        true => {
            let spinner = Spinner::new(app.output, "measuring what a grade costs");
            JudgeSession::seconds_per_grade(app, interrupt::install()?, &spinner)
        }
        false => Ok(app.marks(&app.config.judge.model, &app.rubric()?)?.map(|marks| marks.seconds_per_grade)),
    }
}

/// The judges of the catalog that can be pulled.
fn candidates(config: &Config, catalog: &Catalog) -> Vec<Candidate> {
    let candidate = |known: &CatalogModel| {
        let is_pullable = known.role == Role::Judge && known.sources.iter().any(|source| source.is_confirmed());
        let profile = config.judges.get(known.judge_profile.as_deref()?)?;
        let (model, bytes) = (known.name.clone(), known.size());
        is_pullable.then(|| Candidate { model, bytes, thinks: profile.thinking_tokens() > 0 })
    };
    catalog.models.iter().filter_map(candidate).collect()
}

/// The name and the size of the judge of the catalog that fits best.
pub(super) fn best(config: &Config, catalog: &Catalog, room: Room) -> Option<(String, u64)> {
    room.best_of(&candidates(config, catalog)).map(|best| (best.model, best.bytes))
}

/// The suggestion of a judge to replace `judge`; empty if no other one of the catalog fits.
pub(super) fn instead_of(judge: &str, config: &Config, catalog: &Catalog, room: Option<Room>) -> String {
    let mut others = candidates(config, catalog);
    others.retain(|other| other.model != judge);
    match room.and_then(|room| room.best_of(&others)) {
        Some(Candidate { model, bytes: size, .. }) => {
            format!("`hone pull {model}` ({}) and judge.model = \"{model}\" get another one", bytes(size))
        }
        None => String::new(),
    }
}

impl Member {
    fn text(&self) -> String {
        let Member { model, profile, is_installed, is_stronger } = self;
        let state = match is_installed {
            true => format!(" (profile {profile})"),
            false => " (not installed: no vote)".to_string(),
        };
        let role = if *is_stronger { "where they disagree " } else { "" };
        format!("{role}{model}{state}")
    }
}

impl Room {
    /// The largest judge that fits alongside the model that answers; one that thinks first only on an accelerator.
    fn best_of(self, candidates: &[Candidate]) -> Option<Candidate> {
        let fits = |candidate: &&Candidate| {
            let total = memory_needed(candidate.bytes + self.generator_bytes);
            total <= self.memory_bytes && (self.is_accelerated || !candidate.thinks)
        };
        candidates.iter().filter(fits).max_by_key(|candidate| candidate.bytes).cloned()
    }
}

#[cfg(test)]
mod tests {
    use hone_judging::JudgeProfiles;

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
            is_chosen: true,
            jury: Vec::new(),
            recommended: recommended.map(|index| candidates().remove(index)),
            ..Judge::default()
        };
        let unmeasured = "middle (profile plain; `hone doctor --deep` measures what a grade costs)";
        assert_eq!(judge(true, Some(0)).row(), unmeasured);
        let measured = Judge { seconds_per_grade: Some(12.34), ..judge(true, None) };
        assert_eq!(measured.row(), "middle (profile plain; a grade takes 12.3 s here)");
        assert_eq!(
            judge(false, None).row(),
            "middle (not installed); no judge of the catalog fits this machine's memory"
        );
        assert_eq!(
            judge(false, Some(1)).row(),
            "middle (not installed); fits this machine: `hone pull middle` (4.40 GB)"
        );
        let other =
            "middle (not installed); fits this machine: `hone pull small` (2.40 GB) and judge.model = \"small\"";
        assert_eq!(judge(false, Some(0)).row(), other);
        let default = Judge { is_chosen: false, ..judge(false, Some(0)) };
        assert_eq!(default.row(), "middle (not installed); fits this machine: `hone pull small` (2.40 GB)");
        let member = |model: &str, is_installed, is_stronger| Member {
            model: model.to_string(),
            profile: "plain".to_string(),
            is_installed,
            is_stronger,
        };
        let jury = vec![member("a", true, false), member("b", false, true)];
        let expected = "a jury: a (profile plain), where they disagree b (not installed: no vote)";
        assert_eq!(Judge { jury, ..judge(true, None) }.row(), expected);
    }

    #[test]
    fn another_judge_takes_the_place_of_one_that_does_not_pass() {
        let (config, catalog) = (Config::defaults().unwrap(), Catalog::built_in().unwrap());
        let room = |memory_bytes| Some(Room { memory_bytes, generator_bytes: 100_000_000, is_accelerated: false });
        let advice = instead_of("", &config, &catalog, room(64_000_000_000));
        let best = advice.strip_prefix("`hone pull ").and_then(|rest| rest.split('`').next()).unwrap();
        let next = instead_of(best, &config, &catalog, room(64_000_000_000));
        assert!(next.starts_with("`hone pull ") && !next.contains(best), "{best}: {next}");
        assert_eq!(instead_of("", &config, &catalog, room(0)), "");
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
