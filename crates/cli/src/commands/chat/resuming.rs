//! `hone chat --resume` and `--continue`: finds the conversation to continue.

use std::io::IsTerminal;

use anyhow::{Context, bail};
use hone_app::conversations::{Conversation, ConversationStore, Conversations, FoundConversation, Named, Session};
use hone_app::describe::moment;
use time::OffsetDateTime;

use crate::chat::attachments::label;
use crate::commands::conversations::several;
use crate::failure::usage;
use crate::invocation::Invocation;
use crate::terminal::choice::choose;

/// Resumes the conversation that `text` stands for. Among several, a person in a chat chooses; elsewhere, an empty name
/// stands for the latest conversation.
///
/// # Errors
/// When no conversation is found or chosen, or it cannot be read.
pub(super) fn resume(
    app: &Invocation,
    session: &mut Session,
    store: &ConversationStore,
    text: &str,
    is_conversation: bool,
) -> anyhow::Result<()> {
    let output = app.output;
    let can_show = output.stdout_is_terminal && output.stderr_is_terminal && output.moves_cursor;
    let can_choose = is_conversation && can_show && std::io::stdin().is_terminal();
    let kept = Conversations::of_store(store.clone(), String::new());
    let name = name(app, &kept, text, can_choose)?;
    let conversation = store.load(&name)?;
    session.resume(name, conversation)
}

/// Continues the latest conversation, or a later single question, which becomes a conversation.
///
/// # Errors
/// When there is nothing to continue, or it cannot be read.
pub(super) fn go_on(session: &mut Session, store: &ConversationStore) -> anyhow::Result<()> {
    let latest = store.entries()?.into_iter().next();
    let single = store.single()?.filter(|(asked, _)| latest.as_ref().is_none_or(|(written, _)| written < asked));
    let (name, conversation) = match (single, latest) {
        (Some((_, conversation)), _) => return go_on_from(session, store, conversation),
        (None, Some((_, name))) => {
            let conversation = store.load(&name)?;
            (name, conversation)
        }
        (None, None) => bail!("there is nothing to continue"),
    };
    session.resume(name, conversation)
}

/// Continues a single question, which becomes a conversation; a saved one if saving is on.
fn go_on_from(session: &mut Session, store: &ConversationStore, conversation: Conversation) -> anyhow::Result<()> {
    let question = conversation.exchanges.first().map_or("", |exchange| &exchange.question);
    let today = OffsetDateTime::now_utc().date();
    let is_saved = session.config().chat.save;
    let name = if is_saved { Some(store.begin(today, question, &conversation)?) } else { None };
    session.go_on(name, conversation)
}

fn name(app: &Invocation, kept: &Conversations, text: &str, can_choose: bool) -> anyhow::Result<String> {
    if text.is_empty() {
        let mut names = kept.list()?;
        return match names.len() {
            0 => bail!("there is no saved conversation to continue"),
            2.. if can_choose => chosen(app, kept.search("")?),
            _ => Ok(names.swap_remove(0).name),
        };
    }
    match kept.named(text)? {
        Named::One(name) => Ok(name),
        Named::Several(found) if can_choose => chosen(app, found),
        Named::Several(found) => bail!("{}", several(text, &found)),
        Named::Nothing if text.contains(char::is_whitespace) => {
            let hint =
                "no conversation has this name: to ask a question in the latest one, write `--resume= \"QUESTION\"`";
            Err(usage(format!("--resume {text:?}: {hint}")))
        }
        // The store reports the problem with the name.
        Named::Nothing => Ok(text.to_owned()),
    }
}

/// The conversation that the person chooses.
fn chosen(app: &Invocation, found: Vec<FoundConversation>) -> anyhow::Result<String> {
    let row =
        |found: &FoundConversation| vec![moment(found.written), found.name.clone(), label(found.first_question())];
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let place = choose("Which conversation?", &rows, app.output)?.context("no conversation was chosen")?;
    found.into_iter().nth(place).map(|found| found.name).context("no conversation was chosen")
}
