//! `hone critic exam`: whether the critic tells flawed texts from sound ones, so that it may block.

use hone_app::judging::{ExaminedCritic, JudgeSession, critic_model};
use hone_judging::Share;
use hone_protocol::ContentType;
use serde::Serialize;

use crate::arguments::CriticExamArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// The output of `--json`, a line for each type.
#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    r#type: ContentType,
    #[serde(flatten)]
    examined: &'a ExaminedCritic,
}

pub(super) fn run(app: &Invocation, arguments: &CriticExamArguments) -> anyhow::Result<Outcome> {
    let model = critic_model(&app.config, None).to_owned();
    let mut config = app.config.clone();
    config.judge.model.clone_from(&model);
    let session = JudgeSession::open_for_examination(&app.with_config(config), interrupt::install()?)?;
    let steps = Steps::new(app.output, "texts");
    let kinds = arguments.kind.map_or(ContentType::ALL.to_vec(), |kind| vec![kind]);
    let mut has_passed = true;
    for kind in kinds {
        let marks = session.examine_critic(app, kind, &steps);
        steps.clear();
        if marks?.is_none() {
            app.output.note("stopped: the same command continues from here");
            return Ok(Outcome::Interrupted);
        }
        let examined = ExaminedCritic::of(app, &model, kind);
        has_passed &= examined.unproven.is_none();
        match arguments.json.json {
            true => app.output.print_json(&Line { model: &model, r#type: kind, examined: &examined })?,
            false => app.output.print_line(&format!("{kind}: {}", describe(&examined)))?,
        }
    }
    Ok(if has_passed { Outcome::Done } else { Outcome::BelowThreshold })
}

/// The marks of a critic, in a sentence.
pub(super) fn describe(examined: &ExaminedCritic) -> String {
    let (Some(texts), Some(precision), Some(missed), Some(sound_blocked)) =
        (examined.texts, &examined.precision, &examined.missed, &examined.sound_blocked)
    else {
        return "not examined: blocks nothing and lets nothing pass (`hone critic exam`)".to_owned();
    };
    let verdict = match &examined.unproven {
        None => "passed",
        Some(_) => "not passed, so it blocks nothing and lets nothing pass",
    };
    format!(
        "{verdict}: of {texts} texts {}; it missed {} of the grave flaws and blocked {} of the sound texts",
        match precision.of {
            0 => "none was blocked".to_owned(),
            n => format!("{n} were blocked, {} of them rightly", percent(precision)),
        },
        percent(missed),
        percent(sound_blocked)
    )
}

fn percent(share: &Share) -> String {
    share.share.map_or("none".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}
