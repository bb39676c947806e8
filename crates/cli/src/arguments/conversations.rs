//! Flags of `hone conversations`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::JsonFlag;

/// Flags of `hone conversations`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsArguments {
    #[command(subcommand)]
    pub(crate) command: ConversationsCommand,
}

/// Subcommands of `hone conversations`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConversationsCommand {
    /// List conversations, latest first, with their dates, lengths, grades and models
    List(ConversationsListArguments),
    /// Show a conversation with the grades of its answers
    Show(ConversationsShowArguments),
    /// Find conversations by text in their names, questions and answers
    Search(ConversationsSearchArguments),
    /// Rename a conversation
    Rename(ConversationsRenameArguments),
    /// Delete conversations
    Delete(ConversationsDeleteArguments),
    /// Export a conversation as Markdown or JSON, or all of them
    Export(ConversationsExportArguments),
    /// Import conversations of hone, ChatGPT, Claude or Open WebUI
    Import(ConversationsImportArguments),
}

/// Flags of `hone conversations list`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsListArguments {
    /// Maximum number of conversations; 0 lists all
    #[arg(short, value_name = "N", default_value_t = 20)]
    pub(crate) n: usize,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone conversations show`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsShowArguments {
    /// The conversation's name, or a unique part of its name or first question
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone conversations search`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsSearchArguments {
    /// Text to look for, ignoring case
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone conversations rename`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsRenameArguments {
    /// The conversation's name, or a unique part of its name or first question
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The conversation's new name
    #[arg(value_name = "NEW_NAME")]
    pub(crate) new_name: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone conversations delete`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsDeleteArguments {
    /// The conversations' full names
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Also forget their answers, the facts stated in them, and notes made from either
    #[arg(long)]
    pub(crate) forget: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone conversations export`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsExportArguments {
    /// The conversation's name, or a unique part of its name or first question
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) name: Option<String>,
    /// New file to write, as JSON if its name ends in .json; - or nothing for stdout
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Export all conversations with all branches to a new FILE, or to stdout: one JSON object per line, which `hone
    /// conversations import` reads
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with_all = ["name", "file"])]
    pub(crate) all: Option<PathBuf>,
    /// Write JSON, whatever the file's name
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Flags of `hone conversations import`.
#[derive(Debug, Args)]
pub(crate) struct ConversationsImportArguments {
    /// File to read: one that `hone conversations export` wrote, the conversations.json of ChatGPT's or Claude's data
    /// export, or Open WebUI's export of chats; - for stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}
