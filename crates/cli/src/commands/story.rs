//! `hone story run`: runs stories, each with all agents and a fresh memory.

use anyhow::Context;
use hone_agents::Load;
use hone_app::StackOptions;
use hone_app::config::Source;
use hone_app::story::run::{StoryReport, play};
use hone_app::story::script::{SecondRespondent, Story};

use crate::arguments::{StoryArguments, StoryCommand, StoryRunArguments};
use crate::chat::shell::ModelShelf;
use crate::failure::Outcome;
use crate::invocation::Invocation;

/// Runs the subcommand.
///
/// # Errors
/// When a file is not a story, or the stack cannot be started. A story that fails is reported and fails the command.
pub(crate) fn run(app: &Invocation, arguments: &StoryArguments) -> anyhow::Result<Outcome> {
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

fn play_alone(app: &Invocation, story: &Story) -> anyhow::Result<StoryReport> {
    let mut config = app.config.clone();
    for (key, value) in &story.config {
        config.set(key, value.clone(), Source::Story(story.id.clone()))?;
    }
    let folder = tempfile::tempdir().context("cannot create a folder for the story's memory")?;
    let app = app.with_config(config);
    let respondent_b = story.respondent_b.clone().map(|SecondRespondent { model, temperature }| (model, temperature));
    if let Some((Some(model), _)) = &respondent_b {
        app.provide(model)?;
    }
    let options = StackOptions {
        grades: true,
        respondent_b,
        memory: Some(folder.path().to_path_buf()),
        grades_due: false,
        works_off_backlog: false,
        critic: None,
        keeps_prefix: false,
        load: Load::PERSON,
    };
    Ok(play(story, app.stack(options)?, &app.config))
}

fn tell(app: &Invocation, arguments: &StoryRunArguments, report: &StoryReport) -> anyhow::Result<()> {
    if arguments.json.json {
        return app.output.print_json(report);
    }
    report.lines().iter().try_for_each(|line| app.output.print_line(line))
}
