//! The commands that begin with a slash, and how they are parsed.

use hone_app::describe::nearest;
use hone_protocol::Rating;

/// A command of the chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlashCommand {
    /// List the commands.
    Help,
    /// Show or change the model.
    Model(Option<String>),
    /// Show or change the instructions before the conversation; an empty text leaves them to the model's template.
    System(Option<String>),
    /// Show the sampling settings, or one, or change one.
    Set(Option<(String, Option<String>)>),
    /// Attach files to the next question, or list the attached ones.
    File(Option<String>),
    /// Show the conversation and its settings.
    Show,
    /// Start a new conversation.
    Clear,
    /// Save the conversation, under this name or the one it has.
    Save(Option<String>),
    /// Resume a saved conversation, or list them.
    Load(Option<String>),
    /// Answer the last question again, with this model.
    Again(Option<String>),
    /// Have the model continue the last answer, which was cut off.
    Continue,
    /// Copy an answer to the clipboard: the one with this number, or the last.
    Copy(Option<usize>),
    /// Write the next question in an editor, which begins with this text.
    Edit(Option<String>),
    /// Write the conversation to this file.
    Export(String),
    /// Take the last exchange back.
    Undo,
    /// Show the cost of the answers.
    Stats,
    /// Show why an answer got its grade, and what was recalled for it: the one with this number, or the last.
    Why(Option<usize>),
    /// Forget something that was recalled for the last answer: the one with this number, or the only one.
    Forget(Option<usize>),
    /// Rate the last answer as good or bad.
    Rate(Rating),
    /// Leave.
    Exit,
}

/// The description of a command: its name, its argument, and its effect.
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) takes: &'static str,
    pub(crate) does: &'static str,
}

/// Every command, in the order of `/help`.
pub(crate) const COMMANDS: [Description; 21] = [
    describe("help", "", "list the commands"),
    describe("model", "[NAME]", "show the model, or change it"),
    describe("system", "[TEXT]", "show the instructions before the conversation, or change them (\"\" removes them)"),
    describe("set", "[KEY [VALUE]]", "show the sampling settings, or change one"),
    describe("file", "[PATH]", "attach a file to the next question (so does @PATH in it), or list the attached files"),
    describe("show", "", "show the conversation and its settings"),
    describe("clear", "", "start a new conversation"),
    describe("save", "[NAME]", "save the conversation, under another name if one is given"),
    describe("load", "[NAME]", "resume a saved conversation, or list them"),
    describe("again", "[MODEL]", "answer the last question again, with another model if one is given"),
    describe("continue", "", "continue the last answer, if it was cut off or stopped"),
    describe("copy", "[N]", "copy the last answer to the clipboard, or answer N as /show numbers them"),
    describe("edit", "[TEXT]", "write the next question in the editor that VISUAL or EDITOR names"),
    describe("export", "FILE", "write the conversation to a new file: Markdown, or JSON if it ends in .json"),
    describe("undo", "", "remove the last question and its answer"),
    describe("stats", "", "show the cost of the answers"),
    describe(
        "why",
        "[N]",
        "show why the last answer got its grade, or answer N as /show numbers them: scores, comparison, recollections",
    ),
    describe("forget", "[N]", "remove from memory what was recalled for the last answer, or the Nth of several"),
    describe("good", "", "say that the last answer was good"),
    describe("bad", "", "say that the last answer was bad"),
    describe("exit", "", "leave (as Ctrl-D does)"),
];

impl SlashCommand {
    /// Parses a command, without its slash.
    ///
    /// # Errors
    /// When the command does not exist, or its argument is not valid.
    pub(crate) fn parse(text: &str) -> Result<SlashCommand, String> {
        let (name, rest) = split(text);
        let argument = (!rest.is_empty()).then(|| rest.to_string());
        let command = match name {
            "help" | "?" => SlashCommand::Help,
            "model" => return Ok(SlashCommand::Model(argument)),
            "system" => return Ok(SlashCommand::System(argument.map(|text| without_quotes(&text)))),
            "set" => return Ok(SlashCommand::Set(argument.map(|text| key_and_value(&text)))),
            "file" => return Ok(SlashCommand::File(argument)),
            "show" => SlashCommand::Show,
            "clear" => SlashCommand::Clear,
            "save" => return Ok(SlashCommand::Save(argument)),
            "load" => return Ok(SlashCommand::Load(argument)),
            "again" | "regen" => return Ok(SlashCommand::Again(argument)),
            "continue" => SlashCommand::Continue,
            "copy" => return number("copy", argument).map(SlashCommand::Copy),
            "edit" => return Ok(SlashCommand::Edit(argument)),
            "export" => {
                let missing = "/export takes the name of a new file, such as conversation.md";
                return argument.map(SlashCommand::Export).ok_or_else(|| missing.to_owned());
            }
            "undo" => SlashCommand::Undo,
            "stats" => SlashCommand::Stats,
            "why" => return number("why", argument).map(SlashCommand::Why),
            "forget" => {
                let wrong =
                    |_| "/forget takes the number of a memory, which it shows where there are several".to_owned();
                return number("forget", argument).map(SlashCommand::Forget).map_err(wrong);
            }
            "good" => SlashCommand::Rate(Rating::Good),
            "bad" => SlashCommand::Rate(Rating::Bad),
            "exit" | "quit" | "bye" => SlashCommand::Exit,
            _ => {
                let meant = nearest(name, COMMANDS.iter().map(|command| command.name));
                let advice = meant.map_or(String::new(), |meant| format!("did you mean /{meant}? "));
                return Err(format!(
                    "unknown command /{name}: {advice}/help lists them, and // begins a question with a slash"
                ));
            }
        };
        match argument {
            None => Ok(command),
            Some(argument) => Err(format!("/{name} takes nothing, but {argument:?} follows it")),
        }
    }
}

const fn describe(name: &'static str, takes: &'static str, does: &'static str) -> Description {
    Description { name, takes, does }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()))
}

fn number(name: &str, argument: Option<String>) -> Result<Option<usize>, String> {
    let parse = |text: String| {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("/{name} takes the number of an answer, which /show shows, and not {text:?}"))
    };
    argument.map(parse).transpose()
}

fn key_and_value(text: &str) -> (String, Option<String>) {
    let (key, value) = split(text);
    (key.to_string(), (!value.is_empty()).then(|| value.to_string()))
}

fn without_quotes(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<SlashCommand, &str>) {
        assert_eq!(SlashCommand::parse(text), expected.map_err(str::to_string), "/{text}");
    }

    #[test]
    fn commands_are_read_with_what_they_take() {
        let some = |text: &str| Some(text.to_string());
        check("help", Ok(SlashCommand::Help));
        check("model", Ok(SlashCommand::Model(None)));
        check("model qwen3:4b ", Ok(SlashCommand::Model(some("qwen3:4b"))));
        check("system You are\nbrief.", Ok(SlashCommand::System(some("You are\nbrief."))));
        check("system \"\"", Ok(SlashCommand::System(some(""))));
        check("system", Ok(SlashCommand::System(None)));
        check("set", Ok(SlashCommand::Set(None)));
        check("set top_k", Ok(SlashCommand::Set(Some(("top_k".into(), None)))));
        check("set  stop  a b", Ok(SlashCommand::Set(Some(("stop".into(), some("a b"))))));
        check("file my notes.txt", Ok(SlashCommand::File(some("my notes.txt"))));
        check("load tides", Ok(SlashCommand::Load(some("tides"))));
        check("why", Ok(SlashCommand::Why(None)));
        check("why 12", Ok(SlashCommand::Why(Some(12))));
        check("quit", Ok(SlashCommand::Exit));
        check("regen", Ok(SlashCommand::Again(None)));
        check("again qwen3:4b", Ok(SlashCommand::Again(some("qwen3:4b"))));
        check("copy 2", Ok(SlashCommand::Copy(Some(2))));
        check("export a b.md", Ok(SlashCommand::Export("a b.md".into())));
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        let rest = "/help lists them, and // begins a question with a slash";
        check("hepl", Err(&format!("unknown command /hepl: did you mean /help? {rest}")));
        check("frobnicate", Err(&format!("unknown command /frobnicate: {rest}")));
        check("why last", Err("/why takes the number of an answer, which /show shows, and not \"last\""));
        check("why 0", Err("/why takes the number of an answer, which /show shows, and not \"0\""));
        check("export", Err("/export takes the name of a new file, such as conversation.md"));
        check("undo 2", Err("/undo takes nothing, but \"2\" follows it"));
    }

    #[test]
    fn every_described_command_is_read() {
        for description in &COMMANDS {
            let argument = if description.takes.starts_with('[') { "" } else { description.takes };
            let text = format!("{} {argument}", description.name);
            assert!(SlashCommand::parse(&text).is_ok(), "/{text}");
        }
    }
}
