//! Completions for the shell's Tab key: commands, flags and their values, and the names of models, judges and presets
//! that exist at that moment. The script of `hone completions` asks this program each time.

use std::io::{self, Write};

use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use hone_app::config::Places;
use hone_app::presets::Presets;
use hone_models::{Role, Store, data_folder};

use crate::arguments::Arguments;

/// The variable with which the shell's script asks.
const VARIABLE: &str = "HONE_COMPLETE";

/// Answers a shell that asks for completions, and ends the process; otherwise returns at once.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(|| with_names(Arguments::command())).var(VARIABLE).complete();
}

/// Writes the script that makes a shell ask.
///
/// # Errors
/// When the shell is not known, or the script cannot be written.
pub(crate) fn write_script(shell: &str, buffer: &mut dyn Write) -> io::Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(shell).ok_or_else(|| io::Error::other(format!("{shell} has no completions")))?;
    if shell.name() == "bash" {
        // Model names contain a colon, at which bash would cut them.
        writeln!(buffer, "COMP_WORDBREAKS=${{COMP_WORDBREAKS//:}}")?;
    }
    shell.write_registration(VARIABLE, "hone", "hone", "hone", buffer)
}

/// The command line with completions for its value names.
fn with_names(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|argument| match candidates(&name, &argument) {
        Some(candidates) => argument.add(candidates),
        None => argument,
    });
    command.mut_subcommands(with_names)
}

fn candidates(command: &str, argument: &Arg) -> Option<ArgValueCandidates> {
    let value = argument.get_value_names()?.first()?.as_str();
    match (command, argument.get_id().as_str(), value) {
        (_, "judge", _) => Some(ArgValueCandidates::new(judges)),
        (_, "preset", _) | ("show" | "delete", "names" | "name", "NAME") => Some(ArgValueCandidates::new(presets)),
        ("pull", "reference", _) => Some(ArgValueCandidates::new(not_installed)),
        ("show", "name", "MODEL") => {
            Some(ArgValueCandidates::new(|| installed().into_iter().chain(not_installed()).collect()))
        }
        (_, _, "MODEL") => Some(ArgValueCandidates::new(installed)),
        _ => None,
    }
}

fn store() -> Option<Store> {
    Store::open(&data_folder().ok()?).ok()
}

fn installed() -> Vec<CompletionCandidate> {
    let models = store().and_then(|store| store.list().ok()).unwrap_or_default().models;
    models.into_iter().map(|model| CompletionCandidate::new(model.name)).collect()
}

/// The models of the catalog that are not installed, with their sizes.
fn not_installed() -> Vec<CompletionCandidate> {
    let Some(store) = store() else { return Vec::new() };
    let missing = store.catalog().models.iter().filter(|model| !store.has(&model.name));
    missing.map(|model| CompletionCandidate::new(&model.name).help(Some(sized(model.size()).into()))).collect()
}

fn sized(bytes: u64) -> String {
    format!("{} to download", hone_app::describe::bytes(bytes))
}

/// The judges of the catalog, and all installed models, because any model can judge.
fn judges() -> Vec<CompletionCandidate> {
    let known = store().map(|store| store.catalog().clone());
    let made_for_it = known.iter().flat_map(|catalog| &catalog.models).filter(|model| model.role == Role::Judge);
    let made_for_it = made_for_it.map(|model| CompletionCandidate::new(&model.name));
    let mut judges: Vec<CompletionCandidate> = made_for_it.chain(installed()).collect();
    judges.sort_by(|one, other| one.get_value().cmp(other.get_value()));
    judges.dedup_by(|one, other| one.get_value() == other.get_value());
    judges
}

fn presets() -> Vec<CompletionCandidate> {
    let presets = Presets::of(Places::of_this_process().folder()).and_then(|presets| presets.names());
    presets.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}
