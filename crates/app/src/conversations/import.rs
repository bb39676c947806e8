//! Conversations from files: hone's own exports, and those of ChatGPT, Claude and Open WebUI.
//!
//! Of a conversation with branches in another program, the branch that it showed last is read. Only text is: images and
//! the calls of tools are left out.

use anyhow::{Context, bail};
use hone_protocol::{Branches, FinishReason, Timings};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::names::{LONGEST_NAME, check_name};
use super::saved::SavedConversation;
use super::session::{Conversation, SavedExchange};
use super::store::ConversationStore;

/// The name of a conversation without a title.
const UNTITLED: &str = "imported";

/// A conversation from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedConversation {
    /// Its title.
    pub title: String,
    /// When it began, in seconds since 1970, as far as the file says.
    began: f64,
    /// Its contents.
    pub conversation: SavedConversation,
}

/// The outcome of saving an imported conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Import {
    /// It is saved under this name.
    Saved(String),
    /// It has been imported before, and has this name.
    AlreadyHere(String),
}

/// The conversations in a file, the oldest first, and the number of those without a single answer, which are left out.
/// `model` answers further questions in them.
///
/// # Errors
/// When the file is neither JSON nor JSON lines, or something in it is not a conversation of a known form.
pub fn read(text: &str, model: &str) -> anyhow::Result<(Vec<ImportedConversation>, usize)> {
    let items = items(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let read = |(number, item)| of_item(item, model).with_context(|| format!("conversation {number} cannot be read"));
    let all: Vec<ImportedConversation> = (1..).zip(items).map(read).collect::<anyhow::Result<_>>()?;
    let n_all = all.len();
    let mut found: Vec<ImportedConversation> =
        all.into_iter().filter(|imported| imported.conversation.exchanges.all().next().is_some()).collect();
    found.sort_by(|a, b| a.began.total_cmp(&b.began));
    let n_empty = n_all - found.len();
    Ok((found, n_empty))
}

/// Saves an imported conversation under its title, with a number if another one has it.
///
/// # Errors
/// When it cannot be written.
pub fn save(store: &ConversationStore, imported: &ImportedConversation) -> anyhow::Result<Import> {
    let base = name_of(&imported.title);
    let names = std::iter::once(base.clone()).chain((2..).map(|number| format!("{base} {number}")));
    let file = imported.conversation.clone().into_file();
    for name in names {
        if store.save_new(&name, &file)? {
            return Ok(Import::Saved(name));
        }
        let is_same = |saved: &Conversation| saved.exchanges == file.exchanges && saved.forks == file.forks;
        if store.load(&name).is_ok_and(|saved| is_same(&saved)) {
            return Ok(Import::AlreadyHere(name));
        }
    }
    unreachable!("there are always more numbers")
}

/// The title as a name.
fn name_of(title: &str) -> String {
    let plain = |character: char| if character.is_control() || "/\\".contains(character) { ' ' } else { character };
    let words = title.chars().map(plain).collect::<String>();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let name: String = words.trim_start_matches('.').chars().take(LONGEST_NAME).collect();
    let name = name.trim().to_owned();
    if check_name(&name).is_ok() { name } else { UNTITLED.to_owned() }
}

/// The conversations of a file: an array, a single one, or one per line.
fn items(text: &str) -> anyhow::Result<Vec<Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Array(items)) => Ok(items),
        Ok(item) => Ok(vec![item]),
        Err(whole) => {
            let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
            let line = |(number, line)| serde_json::from_str(line).with_context(|| format!("line {number}"));
            match lines.clone().count() {
                0 | 1 => Err(whole).context("it is not JSON"),
                _ => lines.map(line).collect::<anyhow::Result<_>>().context("it is neither JSON nor JSON lines"),
            }
        }
    }
}

fn of_item(item: Value, model: &str) -> anyhow::Result<ImportedConversation> {
    let Value::Object(object) = item else { bail!("it is not an object") };
    if object.contains_key("exchanges") {
        return of_hone(object, model);
    }
    let (title, turns) = if object.contains_key("mapping") {
        (object.get("title"), of_chat_gpt(&object))
    } else if let Some(Value::Object(chat)) = object.get("chat") {
        (object.get("title").or_else(|| chat.get("title")), of_open_webui(chat))
    } else if let Some(Value::Array(messages)) = object.get("chat_messages") {
        (object.get("name"), messages.iter().filter_map(of_claude).collect())
    } else {
        bail!("it is not a conversation of hone, ChatGPT, Claude or Open WebUI");
    };
    let began = ["create_time", "created_at"].iter().find_map(|key| seconds(object.get(*key)?)).unwrap_or_default();
    let title = title.and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(ImportedConversation { title, began, conversation: conversation_of(turns, model) })
}

/// The time in seconds since 1970.
fn seconds(value: &Value) -> Option<f64> {
    let of_text = |text: &str| {
        let moment = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
        Some(moment.unix_timestamp() as f64)
    };
    value.as_f64().or_else(|| of_text(value.as_str()?))
}

/// A conversation of `hone conversations export`, with all branches or only with the one that is shown.
fn of_hone(mut object: Map<String, Value>, model: &str) -> anyhow::Result<ImportedConversation> {
    #[derive(Deserialize)]
    struct Shown {
        question: String,
        answer: String,
        model: String,
        #[serde(default)]
        query_id: Option<hone_protocol::QueryId>,
    }
    let title = object.remove("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    let conversation = match object.contains_key("format") {
        true => SavedConversation::of_file(serde_json::from_value(object.into())?)?,
        false => {
            let shown: Vec<Shown> = serde_json::from_value(object.remove("exchanges").unwrap_or_default())?;
            let exchange = |shown: Shown| SavedExchange {
                query_id: shown.query_id,
                ..exchange(shown.question, shown.answer, shown.model)
            };
            let mut exchanges = Branches::default();
            shown.into_iter().map(exchange).for_each(|exchange| exchanges.push(exchange));
            let system = object.get("system").and_then(Value::as_str).unwrap_or_default().to_owned();
            SavedConversation { model: model.to_owned(), system, exchanges }
        }
    };
    Ok(ImportedConversation { title, began: 0.0, conversation })
}

fn exchange(question: String, answer: String, model: String) -> SavedExchange {
    SavedExchange {
        question,
        answer,
        thinking: String::new(),
        model,
        finish_reason: Some(FinishReason::Stop),
        timings: Timings::default(),
        query_id: None,
        recalled: Vec::new(),
    }
}

/// The author of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    System,
    Person,
    Model,
}

/// A message of another program.
struct Turn {
    author: Author,
    text: String,
    /// The model's name, if it is known.
    model: String,
}

impl Turn {
    /// A turn with text; `None` without any, and for the results of tools.
    fn new(author: &str, text: String, model: Option<&str>) -> Option<Turn> {
        let author = match author {
            "system" => Author::System,
            "user" | "human" => Author::Person,
            "assistant" => Author::Model,
            _ => return None,
        };
        let model = model.unwrap_or("unknown").to_owned();
        (!text.trim().is_empty()).then(|| Turn { author, text: text.trim().to_owned(), model })
    }
}

/// The turns of ChatGPT's `conversations.json`: a tree of nodes, of which one is the current one.
fn of_chat_gpt(object: &Map<String, Value>) -> Vec<Turn> {
    let nodes = object.get("mapping").unwrap_or(&Value::Null);
    let current = object.get("current_node").and_then(Value::as_str);
    let turn = |node: &Value| {
        let message = &node["message"];
        let is_for_person = message["recipient"].as_str().is_none_or(|recipient| recipient == "all");
        let parts = message["content"]["parts"].as_array()?.iter().filter_map(Value::as_str);
        let text = parts.collect::<Vec<_>>().join("\n\n");
        let author = message["author"]["role"].as_str()?;
        Turn::new(author, text, message["metadata"]["model_slug"].as_str()).filter(|_| is_for_person)
    };
    path_to(nodes, current, "parent").into_iter().filter_map(turn).collect()
}

/// The turns of a chat of Open WebUI: a tree of messages, of which one is the current one, or a list.
fn of_open_webui(chat: &Map<String, Value>) -> Vec<Turn> {
    let turn = |message: &Value| {
        let text = without_reasoning(message["content"].as_str()?);
        Turn::new(message["role"].as_str()?, text, message["model"].as_str())
    };
    let history = chat.get("history").unwrap_or(&Value::Null);
    let path = path_to(&history["messages"], history["currentId"].as_str(), "parentId");
    let list = chat.get("messages").and_then(Value::as_array);
    match (path.is_empty(), list) {
        (true, Some(list)) => list.iter().filter_map(turn).collect(),
        _ => path.into_iter().filter_map(turn).collect(),
    }
}

/// A message of Claude's `conversations.json`.
fn of_claude(message: &Value) -> Option<Turn> {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_blocks: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let text = if of_blocks.is_empty() { message["text"].as_str()?.to_owned() } else { of_blocks.join("\n\n") };
    Turn::new(message["sender"].as_str()?, text, Some("claude"))
}

/// The nodes from the first one to `last`. A node that follows itself ends the path.
fn path_to<'a>(nodes: &'a Value, last: Option<&'a str>, parent: &str) -> Vec<&'a Value> {
    let most = nodes.as_object().map_or(0, Map::len);
    let node = |id: &str| nodes.get(id);
    let mut path: Vec<&Value> =
        std::iter::successors(last.and_then(node), |one| one[parent].as_str().and_then(node)).take(most).collect();
    path.reverse();
    path
}

/// The text without the blocks in which Open WebUI keeps a model's reasoning.
fn without_reasoning(text: &str) -> String {
    const OPEN: &str = "<details type=\"reasoning\"";
    const CLOSE: &str = "</details>";
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(OPEN) {
        kept.push_str(before);
        rest = after.split_once(CLOSE).map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Pairs questions with their answers. Turns of one author in a row become one; an answer without a question, and a
/// question without an answer, are left out.
fn conversation_of(turns: Vec<Turn>, model: &str) -> SavedConversation {
    let mut conversation = SavedConversation { model: model.to_owned(), ..SavedConversation::default() };
    let mut exchanges: Vec<SavedExchange> = Vec::new();
    let mut question: Option<String> = None;
    let joined = |before: String, text: &str| if before.is_empty() { text.to_owned() } else { before + "\n\n" + text };
    for Turn { author, text, model } in turns {
        match (author, question.take()) {
            (Author::System, open) => {
                conversation.system = joined(conversation.system, &text);
                question = open;
            }
            (Author::Person, open) => question = Some(joined(open.unwrap_or_default(), &text)),
            (Author::Model, Some(question)) => exchanges.push(exchange(question, text, model)),
            (Author::Model, None) => {
                if let Some(last) = exchanges.last_mut() {
                    last.answer = joined(std::mem::take(&mut last.answer), &text);
                }
            }
        }
    }
    exchanges.into_iter().for_each(|exchange| conversation.exchanges.push(exchange));
    conversation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exchanges(conversation: &SavedConversation) -> Vec<[&str; 3]> {
        let shown = conversation.exchanges.shown();
        shown.map(|it| [it.question.as_str(), it.answer.as_str(), it.model.as_str()]).collect()
    }

    #[track_caller]
    fn check(file: &Value, title: &str, expected: &[[&str; 3]]) {
        let (found, n_empty) = read(&file.to_string(), "here").unwrap();
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.title.as_str(), exchanges(&one.conversation), n_empty), (title, expected.to_vec(), 0));
        assert_eq!(one.conversation.model, "here");
    }

    #[test]
    fn the_current_branch_of_chat_gpt_is_read_without_calls_and_images() {
        let node = |parent: &str, role: &str, parts: Value, more: Value| {
            let mut message = json!({"author": {"role": role}, "content": {"content_type": "text", "parts": parts}});
            message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"message": message, "parent": parent})
        };
        let file = json!([{
            "title": "Tides", "create_time": 1_700_000_000.5, "current_node": "e",
            "mapping": {
                "root": {"message": null, "parent": null},
                "s": node("root", "system", json!([""]), json!({})),
                "a": node("s", "user", json!(["Why do tides come?", {"asset_pointer": "file://x"}]), json!({})),
                "old": node("a", "assistant", json!(["Magic."]), json!({})),
                "call": node("a", "assistant", json!(["search()"]), json!({"recipient": "browser"})),
                "tool": node("call", "tool", json!(["results"]), json!({})),
                "b": node("tool", "assistant", json!(["The moon."]), json!({"metadata": {"model_slug": "gpt-4o"}})),
                "c": node("b", "assistant", json!(["And the sun."]), json!({"metadata": {"model_slug": "gpt-4o"}})),
                "d": node("c", "user", json!(["How often?"]), json!({})),
                "e": node("d", "assistant", json!(["Twice a day."]), json!({})),
            },
        }]);
        let first = ["Why do tides come?", "The moon.\n\nAnd the sun.", "gpt-4o"];
        check(&file, "Tides", &[first, ["How often?", "Twice a day.", "unknown"]]);
        let circular = json!({"title": "x", "current_node": "a", "mapping": {"a": {"parent": "a", "message": null}}});
        assert_eq!(read(&circular.to_string(), "m").unwrap(), (Vec::new(), 1));
    }

    #[test]
    fn chats_of_open_webui_and_claude_are_read() {
        let answer = "<details type=\"reasoning\" done=\"true\">\nHm.\n</details>\nBlue.";
        let message = |parent: Option<&str>, role: &str, content: &str| json!({"parentId": parent, "role": role, "content": content, "model": "llama3"});
        let tree = json!({
            "currentId": "2",
            "messages": {"1": message(None, "user", "Which colour?"), "2": message(Some("1"), "assistant", answer)},
        });
        let expected = ["Which colour?", "Blue.", "llama3"];
        check(&json!([{"title": "Sky", "chat": {"history": tree}, "created_at": 1}]), "Sky", &[expected]);
        let list = json!([message(None, "user", "Which colour?"), message(None, "assistant", "Blue.")]);
        check(&json!([{"chat": {"title": "Sky", "messages": list}}]), "Sky", &[expected]);
        let claude = json!([{
            "name": "Sky", "created_at": "2026-01-02T03:04:05.678Z",
            "chat_messages": [
                {"sender": "human", "text": "Which colour?", "content": []},
                {"sender": "assistant", "text": "", "content": [{"type": "text", "text": "Blue."}]},
            ],
        }]);
        check(&claude, "Sky", &[["Which colour?", "Blue.", "claude"]]);
    }

    #[test]
    fn an_export_comes_back_with_its_branches_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = ConversationStore::new(folder.path().join("conversations"));
        let mut conversation = SavedConversation { model: "m".into(), ..SavedConversation::default() };
        conversation.exchanges.push(exchange("one".into(), "1".into(), "m".into()));
        conversation.exchanges.show_first(0);
        conversation.exchanges.push(exchange("two".into(), "2".into(), "m".into()));
        let lines = format!("{}\n{}\n", conversation.to_archive("a/b"), conversation.to_archive("other"));
        let (found, _) = read(&format!("\u{feff}{lines}"), "here").unwrap();
        assert_eq!(found.iter().map(|one| &one.conversation).collect::<Vec<_>>(), [&conversation; 2]);
        let saved: Vec<Import> = found.iter().map(|one| save(&store, one).unwrap()).collect();
        assert_eq!(saved, [Import::Saved("a b".into()), Import::Saved("other".into())]);
        assert_eq!(save(&store, &found[0]).unwrap(), Import::AlreadyHere("a b".into()));
        let (changed, _) = read(&conversation.to_json("a b").to_string(), "here").unwrap();
        assert_eq!(exchanges(&changed[0].conversation), [["two", "2", "m"]]);
        assert_eq!(save(&store, &changed[0]).unwrap(), Import::Saved("a b 2".into()));
    }

    #[test]
    fn what_is_no_conversation_is_named() {
        let refused = |text: &str| format!("{:#}", read(text, "m").unwrap_err());
        assert!(refused("hello").starts_with("it is not JSON: "));
        assert_eq!(
            refused("[{\"exchanges\": []}, {\"a\": 1}]"),
            "conversation 2 cannot be read: it is not a conversation of hone, ChatGPT, Claude or Open WebUI"
        );
        assert!(refused("{\"exchanges\": []}\nx").starts_with("it is neither JSON nor JSON lines: line 2: "));
        assert_eq!(refused("[7]"), "conversation 1 cannot be read: it is not an object");
        // Nothing in a file is taken for granted.
        for odd in ["{\"mapping\": 7}", "{\"chat\": {}}", "{\"chat_messages\": [7, {}]}", "{\"exchanges\": []}"] {
            assert_eq!(read(odd, "m").unwrap(), (Vec::new(), 1), "{odd}");
        }
        assert_eq!(name_of(".. /etc\u{7}"), "etc");
        assert_eq!((name_of(""), name_of("nul")), (UNTITLED.to_owned(), UNTITLED.to_owned()));
    }
}
