//! `hone help`: the list of commands, or the help of one.

use clap::Command;
use hone_app::describe::nearest;

use crate::arguments::{HelpArguments, command_line, complete_command_line};
use crate::failure::{Outcome, usage};

/// Prints the help.
///
/// # Errors
/// When there is no such command, or stdout cannot be written.
pub(crate) fn run(arguments: &HelpArguments) -> anyhow::Result<Outcome> {
    let mut root = if arguments.all { complete_command_line() } else { command_line() };
    root.build();
    let mut command = &mut root;
    for (place, name) in arguments.command.iter().enumerate() {
        let before = arguments.command[..place].join(" ");
        let similar = nearest(name, command.get_subcommands().map(Command::get_name)).map(str::to_owned);
        command = find(command, name).ok_or_else(|| {
            let all = if before.is_empty() { "hone help --all".to_owned() } else { format!("hone help {before}") };
            let wrong = format!("{before} {name}");
            let did_you_mean = similar.map(|name| format!("did you mean {name:?}? ")).unwrap_or_default();
            usage(format!("there is no command {:?}: {did_you_mean}`{all}` lists the commands", wrong.trim()))
        })?;
    }
    command.print_help()?;
    Ok(Outcome::Done)
}

fn find<'a>(command: &'a mut Command, name: &str) -> Option<&'a mut Command> {
    command.find_subcommand_mut(name)
}
