//! `hone story run`: runs stories, each with all agents and a fresh memory.

use anyhow::Context;

use crate::app::{App, StackOptions};
use crate::arguments::{StoryArguments, StoryCommand, StoryRunArguments};
use crate::config::Source;
use crate::failure::Outcome;
use crate::story::run::{Report, play};
use crate::story::script::Story;

/// The second respondent's temperature, as for `hone chat --respondent-b`.
const TEMPERATURE_B: f32 = 0.5;

/// Runs the subcommand.
///
/// # Errors
/// When a file is not a story, or the stack cannot be started. A story that does not hold is reported and fails the
/// command.
pub(crate) fn run(app: &App, arguments: &StoryArguments) -> anyhow::Result<Outcome> {
    let StoryCommand::Run(arguments) = &arguments.command;
    // All stories are read before the first is played.
    let stories = arguments.files.iter().map(|file| Story::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut all_hold = true;
    for story in stories {
        let report = play_alone(app, &story)?;
        all_hold &= report.passed;
        tell(app, arguments, &report)?;
    }
    Ok(if all_hold { Outcome::Done } else { Outcome::Failed })
}

fn play_alone(app: &App, story: &Story) -> anyhow::Result<Report> {
    let mut config = app.config.clone();
    for (key, value) in &story.config {
        config.set(key, value.clone(), Source::Story(story.id.clone()))?;
    }
    let folder = tempfile::tempdir().context("cannot create a folder for the story's memory")?;
    let respondent_b = story.respondent_b.then_some((None, TEMPERATURE_B));
    let app = app.with_config(config);
    let options =
        StackOptions { grades: true, respondent_b, memory: Some(folder.path().to_path_buf()), keeps_prefix: false };
    let stack = app.stack(options)?;
    Ok(play(story, &stack, &app.config))
}

fn tell(app: &App, arguments: &StoryRunArguments, report: &Report) -> anyhow::Result<()> {
    if arguments.json.json {
        return app.output.print_json(report);
    }
    report.lines().iter().try_for_each(|line| app.output.print_line(line))
}
