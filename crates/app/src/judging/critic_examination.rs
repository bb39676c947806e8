//! Examines a critic, separately for each type of text, and keeps its marks.

use std::path::PathBuf;

use anyhow::{Context, bail};
use hone_judging::{CriticMarks, CritiqueSettings, PlantedFlaw, Review, ReviewTask, critique_result};
use hone_protocol::{ContentType, CriticMode, CritiqueResult, Prospect};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::driver::{Completed, Driver, Judged};
use super::lender::named_or_judge;
use crate::app::App;
use crate::config::Config;
use crate::judge;
use crate::judge::is_named_by_hand;
use crate::judge::marks::JudgeSetup;
use crate::kept;

/// The folder of the marks within the data folder.
const FOLDER: &str = "critics";

/// The model that criticizes the texts of `author`, or of an unknown one.
pub fn critic_model<'a>(config: &'a Config, author: Option<&str>) -> &'a str {
    let configured = config.critique.critic_of(author.unwrap_or_default()).filter(|_| !is_named_by_hand(config));
    named_or_judge(config, configured.unwrap_or_default())
}

/// The marks of a model as a critic of one type of text.
#[derive(Serialize, Deserialize)]
struct Examined {
    model: String,
    content_type: ContentType,
    marks: CriticMarks,
}

/// Examines the driver's judge as a critic, and shows how many texts it has read. Verdicts come from the cache if an
/// earlier examination was interrupted. Returns `None` if this one is.
///
/// # Errors
/// When the critic cannot work.
pub(super) fn examine(
    driver: &Driver<'_>,
    settings: &CritiqueSettings,
    kind: ContentType,
) -> anyhow::Result<Option<CriticMarks>> {
    let flaws = PlantedFlaw::shipped(kind);
    let tasks: Vec<ReviewTask> = flaws.iter().flat_map(|flaw| flaw.tasks(settings, kind)).collect();
    let mut said: Vec<CritiqueResult> = Vec::new();
    let completed = driver.judge_all(&tasks, |judged: Judged<Review>| {
        let result = critique_result(kind, &judged.verdict, None);
        let is_broken = |failure: &String| matches!(Prospect::of(failure), Prospect::Failed | Prospect::Unjudged);
        if let Some(failure) = result.judging.failure.as_ref().filter(|failure| is_broken(failure)) {
            bail!("{} cannot be examined: {failure}", driver.judge.first().settings().model);
        }
        said.push(result);
        driver.activity.advance(said.len(), tasks.len(), kind.name());
        Ok(())
    })?;
    let pairs: Vec<[CritiqueResult; 2]> = said.as_chunks().0.to_vec();
    Ok((completed == Completed::All).then(|| CriticMarks::of(&flaws, &pairs)))
}

/// The marks of `model` as a critic of texts of this type; `None` if it has not been examined in the way it is asked
/// now.
pub(super) fn find(app: &App, model: &str, kind: ContentType) -> Option<CriticMarks> {
    let text = std::fs::read(path_of(app, model, kind)?).ok()?;
    serde_json::from_slice(&text).ok().map(|examined: Examined| examined.marks)
}

/// Saves the marks of `model`.
///
/// # Errors
/// When they cannot be written, or the model is not installed.
pub(super) fn keep(app: &App, model: &str, kind: ContentType, marks: &CriticMarks) -> anyhow::Result<()> {
    let path = path_of(app, model, kind).with_context(|| format!("{model} is not installed"))?;
    let examined = Examined { model: model.to_owned(), content_type: kind, marks: marks.clone() };
    kept::write(&app.data_folder().join(FOLDER), &path, &examined)
}

/// The path of the marks, named after everything that the critiques depend on, and after the texts.
fn path_of(app: &App, model: &str, kind: ContentType) -> Option<PathBuf> {
    let profile = judge::profile(&app.config, app.store.catalog(), model).ok()?;
    let (settings, rubric) = (judge::settings(&app.config, profile), app.rubric().ok()?);
    let setup = JudgeSetup { model, settings: &settings, profile, rubric: &rubric };
    let subject = json!([kind, app.config.critique.task(kind, "", ""), PlantedFlaw::shipped(kind)]);
    Some(app.data_folder().join(FOLDER).join(setup.file_name(&app.store, &subject)?))
}

/// The reason why verdicts of `model` on texts of this type do not count; `None` if they count.
pub(super) fn unproven(app: &App, model: &str, kind: ContentType) -> Option<String> {
    if !app.config.critique.examination {
        return None;
    }
    if let Err(error) = app.store.show(model) {
        return Some(error.to_string());
    }
    match find(app, model, kind) {
        None => Some(format!(
            "{model} has not taken the critic's examination for texts of type {kind}: run \
             `hone critic exam --judge {model} --type {kind}`"
        )),
        Some(marks) if !marks.passes(app.config.critique.least_precision) => {
            Some(format!("{model} has not passed the critic's examination for texts of type {kind}"))
        }
        Some(_) => None,
    }
}

/// The types of texts for which a critic is asked but has not been examined.
pub(super) fn due(app: &App, model: &str) -> impl Iterator<Item = ContentType> {
    let is_asked = |kind: &ContentType| app.config.critique.mode(*kind) != CriticMode::Off;
    ContentType::ALL.into_iter().filter(is_asked).filter(move |kind| find(app, model, *kind).is_none())
}

/// The critic of this configuration, if it is installed and has not taken the examination for every type of text.
pub(super) fn unexamined(app: &App) -> Option<String> {
    let model = critic_model(&app.config, None);
    let is_due = app.config.critique.examination && app.config.memory.remember && app.store.show(model).is_ok();
    (is_due && due(app, model).next().is_some()).then(|| model.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::bounded;
    use hone_judging::{JudgeSettings, scripted};
    use hone_protocol::CritiqueLevel;
    use hone_protocol::scripted::Script;

    use super::*;
    use crate::interrupt::Interrupt;
    use crate::progress::Silent;

    const KIND: ContentType = ContentType::General;

    /// Examines a critic with these responses.
    fn examined(respond: impl Fn(&str) -> Script + Send + Sync + 'static) -> anyhow::Result<Option<CriticMarks>> {
        let (_press, pressed) = bounded(1);
        examined_until(&Interrupt::from_channel(pressed), respond)
    }

    fn examined_until(
        interrupt: &Interrupt,
        respond: impl Fn(&str) -> Script + Send + Sync + 'static,
    ) -> anyhow::Result<Option<CriticMarks>> {
        let settings = JudgeSettings { grade_timeout: Duration::from_secs(60), ..JudgeSettings::shipped() };
        let (judge, _) = scripted::judge(settings, move |request| respond(scripted::turn(request)));
        let critique = toml::from_str(include_str!("../../../../config/critique.toml")).unwrap();
        let judge = judge.into();
        let driver = Driver { judge: &judge, answered_by: "", cache: None, interrupt, activity: &Silent };
        examine(&driver, &critique, KIND)
    }

    fn says(level: CritiqueLevel) -> Script {
        let validity = if level <= CritiqueLevel::Minor { 0.9 } else { 0.1 };
        Script::saying(&[&format!(
            r#"{{"reasoning": "R", "strongest_counterargument": "C", "challenges": [], "suggested_improvements": [],
            "validity_score": {validity}, "level": "{level}"}}"#
        )])
    }

    /// The severity of the flaw in the text that a critic is asked about.
    fn severity(turn: &str) -> Option<CritiqueLevel> {
        PlantedFlaw::shipped(KIND).into_iter().find(|flaw| turn.contains(&flaw.flawed)).map(|flaw| flaw.severity)
    }

    #[test]
    fn a_critic_that_finds_the_flaws_passes_and_one_that_finds_others_does_not() {
        let knowing = examined(|turn| says(severity(turn).unwrap_or(CritiqueLevel::Pass))).unwrap().unwrap();
        assert!(knowing.passes(0.8), "{knowing:?}");
        // Sentences addressed to the critic are removed from its text, so that three flaws are not recognised here.
        assert!((21..=24).contains(&knowing.n_rightly_blocked) && knowing.n_blocked == knowing.n_rightly_blocked);
        let blocks_half =
            |turn: &str| if turn.len().is_multiple_of(2) { CritiqueLevel::Block } else { CritiqueLevel::Pass };
        let guessing = examined(move |turn| says(blocks_half(turn))).unwrap().unwrap();
        assert!(guessing.n_blocked > 10 && !guessing.passes(0.8), "{guessing:?}");
        let rambling = examined(|_| Script::saying(&["{"])).unwrap().unwrap();
        assert_eq!((rambling.n_without_verdict, rambling.passes(0.8)), (80, false), "{rambling:?}");
    }

    #[test]
    fn a_critic_that_cannot_work_is_not_examined_and_a_person_can_stop_it() {
        let absent = |_: &str| Script::failing(hone_protocol::GenerateError::Stopped);
        let error = examined(absent).unwrap_err().to_string();
        assert!(error.contains("cannot be examined"), "{error}");
        let (press, pressed) = bounded(1);
        let stopped = examined_until(&Interrupt::from_channel(pressed), move |_| {
            let _ = press.try_send(());
            Script::never_ending(&[])
        });
        assert_eq!(stopped.unwrap(), None);
    }
}
