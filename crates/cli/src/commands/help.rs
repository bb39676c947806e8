//! `hone help`: the list of commands, or the help of one.

use clap::Command;

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
        command = find(command, name).ok_or_else(|| {
            let all = if before.is_empty() { "hone help --all".to_owned() } else { format!("hone help {before}") };
            usage(format!("there is no command {:?}: `{all}` lists the commands", format!("{before} {name}").trim()))
        })?;
    }
    command.print_help()?;
    Ok(Outcome::Done)
}

fn find<'a>(command: &'a mut Command, name: &str) -> Option<&'a mut Command> {
    command.find_subcommand_mut(name)
}
