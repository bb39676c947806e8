//! The commands, one module each.
//!
//! A command receives an [`Invocation`] and its arguments. Six are dispatched first because they work without a valid
//! configuration: `completions`, `help`, `verdict` and `preset` do not use it, `config set` mends it, and `doctor`
//! reports its problems.

mod background;
mod bench;
mod bundle;
mod cards;
mod chat;
mod compare;
mod completions;
mod config;
mod consolidate;
mod conversations;
mod critic;
mod critique;
mod decide;
mod describe;
mod doctor;
mod embed;
mod events;
mod gates;
mod generate;
mod grade;
mod help;
mod import;
mod intention;
mod judge;
mod launch;
mod lines;
mod list;
mod mcp;
mod memory;
mod perplexity;
mod preset;
mod ps;
mod pull;
mod pulled;
mod report;
mod rerank;
mod research;
mod rm;
mod serve;
mod show;
mod story;
mod synth;
mod task;
mod texts;
mod tokenize;
mod verdict;
mod worker;

use hone_app::config::{Config, Places};

use crate::arguments::{Arguments, Command, ConfigArguments, ConfigCommand, RunArguments};
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::Output;
use crate::threads;

/// Runs the command of this name.
///
/// # Errors
/// When the command fails.
pub(crate) fn run(arguments: Arguments, name: &str, output: Output) -> anyhow::Result<Outcome> {
    let places = Places::of_this_process();
    let overrides = arguments.overrides();
    let command = arguments.command;
    let loaded = Config::load(&places, command.preset(), overrides);
    let runs_a_model = command.runs_a_model();
    let app = |loaded| start(loaded, runs_a_model, name, output);
    match command {
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Help(arguments) => help::run(&arguments),
        Command::Verdict(arguments) => verdict::run(&arguments, output),
        Command::Preset(arguments) => preset::run(&arguments, &places, output),
        Command::Config(ConfigArguments { command: Some(ConfigCommand::Change(change)), .. }) => {
            config::change(&change, &places, output)
        }
        Command::Doctor(arguments) if arguments.checks_isolation() => doctor::isolation::run(&app(loaded)?, &arguments),
        Command::Doctor(arguments) => doctor::run(&arguments, &places, loaded, output),
        Command::Chat(chat) | Command::Run(RunArguments { chat, .. }) => chat::run(&answering(app(loaded)?)?, chat),
        Command::Serve(arguments) => serve::run(&answering(app(loaded)?)?, &arguments),
        Command::Up(arguments) => background::up(&answering(app(loaded)?)?, &arguments),
        Command::Down(arguments) => background::down(&app(loaded)?, &arguments),
        Command::Logs(arguments) => background::logs(&app(loaded)?, &arguments),
        Command::Launch(arguments) => launch::run(&app(loaded)?, &arguments),
        Command::Mcp(_) => mcp::run(&answering(app(loaded)?)?),
        Command::Generate(arguments) => generate::run(&answering(app(loaded)?)?, &arguments),
        Command::Decide(arguments) => decide::run(&app(loaded)?, &arguments),
        Command::Embed(arguments) => embed::run(&app(loaded)?, &arguments),
        Command::Rerank(arguments) => rerank::run(&app(loaded)?, &arguments),
        Command::Tokenize(arguments) => tokenize::run(&app(loaded)?, &arguments),
        Command::Perplexity(arguments) => perplexity::run(&app(loaded)?, &arguments),
        Command::Bench(arguments) => bench::run(&app(loaded)?, &arguments),
        Command::Story(arguments) => story::run(&app(loaded)?, &arguments),
        Command::Grade(arguments) => grade::run(&app(loaded)?, &arguments),
        Command::Judge(arguments) => judge::run(&app(loaded)?, &arguments),
        Command::Compare(arguments) => compare::run(&app(loaded)?, &arguments),
        Command::Critique(arguments) => critique::run(&app(loaded)?, &arguments),
        Command::Critic(arguments) => critic::run(&app(loaded)?, &arguments),
        Command::Intention(arguments) => intention::run(&answering(app(loaded)?)?, &arguments),
        Command::Consolidate(arguments) => consolidate::run(&answering(app(loaded)?)?, &arguments),
        Command::Research(arguments) => research::run(&answering(app(loaded)?)?, &arguments),
        Command::Synth(arguments) => synth::run(&app(loaded)?, &arguments),
        Command::Config(arguments) => config::run(&app(loaded)?, &arguments),
        Command::Pull(arguments) => pull::run(&app(loaded)?, arguments),
        Command::Import(arguments) => import::run(&app(loaded)?, &arguments),
        Command::List(arguments) => list::run(&app(loaded)?, &arguments),
        Command::Show(arguments) => show::run(&app(loaded)?, &arguments),
        Command::Rm(arguments) => rm::run(&app(loaded)?, &arguments),
        Command::Ps(arguments) => ps::run(&app(loaded)?, &arguments),
        Command::Worker(arguments) => worker::run(&app(loaded)?, &arguments),
        Command::Bundle(arguments) => bundle::run(&app(loaded)?, &arguments),
        Command::Conversations(arguments) => conversations::run(&app(loaded)?, &arguments),
        Command::Memory(arguments) => memory::run(&app(loaded)?, &arguments),
        Command::Report(arguments) => report::run(&app(loaded)?, &arguments),
        Command::Task(arguments) => task::run(&app(loaded)?, &arguments),
        Command::Events(arguments) => events::run(&app(loaded)?, &arguments),
    }
}

/// The app of a command whose answers come from the configured model, which may have to be chosen.
fn answering(app: Invocation) -> anyhow::Result<Invocation> {
    Ok(hone_app::routing::routed(&app)?.map(|routed| Invocation::of(routed, app.output)).unwrap_or(app))
}

/// Creates the app from a valid configuration.
fn start(
    loaded: anyhow::Result<(Config, Vec<String>)>,
    runs_a_model: bool,
    name: &str,
    output: Output,
) -> anyhow::Result<Invocation> {
    let (config, warnings) = loaded?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if runs_a_model {
        threads::apply(&config.engine.options.model)?;
    }
    Invocation::new(config, output, name)
}
