//! The help of the program, which lists the commands by purpose.

use clap::{Args, Command, CommandFactory};

use super::Arguments;

/// Every command by its purpose, in the order of `hone help --all`.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Chat", &["chat", "run", "conversations", "preset", "memory", "research"]),
    ("Models", &["list", "pull", "import", "show", "rm", "bundle"]),
    ("Servers and other programs", &["serve", "up", "down", "logs", "ps", "worker", "launch", "mcp"]),
    ("Grades", &["grade", "compare", "judge", "report", "verdict", "critique", "critic"]),
    ("Work and notes", &["task", "intention", "consolidate"]),
    ("Scripts", &["generate", "decide", "embed", "rerank", "tokenize", "perplexity"]),
    ("This machine", &["doctor", "config", "bench", "completions", "events", "story", "synth", "help"]),
];

/// The commands that a newcomer sees.
const FIRST: [&str; 10] = ["chat", "run", "serve", "list", "pull", "grade", "memory", "research", "task", "doctor"];

/// Flags of `hone help`.
#[derive(Debug, Args)]
pub(crate) struct HelpArguments {
    /// List every command
    #[arg(long, conflicts_with = "command")]
    pub(crate) all: bool,
    /// The command to explain
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The command line, whose help lists the first commands.
pub(crate) fn command_line() -> Command {
    let command = reflowed(Arguments::command());
    let list = format!("Commands:\n{}", rows(&command, &FIRST));
    let n_commands = command.get_subcommands().count();
    let more = format!("`hone help --all` lists all {n_commands} commands, `hone help COMMAND` explains one.");
    with_list(command, &list, &more)
}

/// The command line, whose help lists every command by its purpose.
pub(crate) fn complete_command_line() -> Command {
    let command = reflowed(Arguments::command());
    let group = |(title, names): &(&str, &[&str])| format!("{title}:\n{}", rows(&command, names));
    let list = GROUPS.iter().map(group).collect::<Vec<_>>().join("\n");
    with_list(command, &list, "`hone help COMMAND` explains a command.")
}

/// The command with the lines of each paragraph of its footers joined: clap breaks them again to fit the terminal.
fn reflowed(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(paragraphs(&text)),
        None => command,
    };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, reflowed))
}

/// The text with its line breaks removed, except around indented and empty lines.
fn paragraphs(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut lines = text.lines();
    let mut joined = lines.next().unwrap_or_default().to_owned();
    let mut was_prose = is_prose(&joined);
    for line in lines {
        joined.push(if was_prose && is_prose(line) { ' ' } else { '\n' });
        joined.push_str(line);
        was_prose = is_prose(line);
    }
    joined
}

fn with_list(command: Command, list: &str, more: &str) -> Command {
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}\nOptions:\n{{options}}\n\n{more}\n");
    command.help_template(template)
}

/// A line for each command.
fn rows(command: &Command, names: &[&str]) -> String {
    let row = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        format!("  {name:<13}  {}\n", about.map(ToString::to_string).unwrap_or_default())
    };
    names.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed_once_and_on_one_line() {
        let command = Arguments::command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        listed.sort_unstable();
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(listed, known);
        assert!(FIRST.iter().all(|name| known.contains(name)));
        let text = complete_command_line().render_help().to_string();
        let list = text.split("Options:").next().unwrap_or_default();
        let wide: Vec<&str> = list.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "too long for a terminal of 80 columns: {wide:#?}");
    }

    #[test]
    fn footers_are_broken_by_the_terminal_alone() {
        assert_eq!(paragraphs("a\nb\n  x\n  y\nc\nd\n\ne"), "a b\n  x\n  y\nc d\n\ne");
        let command = command_line();
        let footer = command.find_subcommand("research").and_then(Command::get_after_help).map(ToString::to_string);
        assert!(footer.is_some_and(|text| text.lines().count() == 1), "one paragraph");
    }

    #[test]
    fn the_short_help_says_where_the_rest_is() {
        let text = command_line().render_help().to_string();
        assert!(text.contains("  chat           Chat in the terminal") && text.contains("hone help --all"), "{text}");
        assert!(!text.contains("perplexity") && text.lines().count() < 30, "{text}");
        assert!(complete_command_line().render_help().to_string().contains("\nScripts:\n  generate "));
    }
}
