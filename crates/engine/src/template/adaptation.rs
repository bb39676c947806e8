//! Adapts a conversation to a template that refuses it.
//!
//! Templates differ in the input they take. Some want the arguments of a call as a text, or show a call only in a turn
//! without text: that is determined once, with a probe call ([`CallStyle`]). Some refuse ids of calls that are not like
//! their own, reasoning alongside a call, instructions after the beginning, or any at all: such a conversation is
//! rendered again without the likely cause, as little changed as possible.

use std::borrow::Cow;

use hone_protocol::{Message, Role, Tool, ToolCall};
use serde_json::json;

use super::host::Template;
use super::messages::{CallStyle, TemplateRequest};
use super::source::IsCancelled;
use super::{Chat, TemplateError};

/// Occurs in a template's output if it shows the call of the probe.
const SHOWN: &str = "probe_value";

/// The styles in which calls can be given to a template, the usual one first.
const STYLES: [CallStyle; 4] = [
    CallStyle { arguments_are_text: false, silence_is_none: false },
    CallStyle { arguments_are_text: true, silence_is_none: false },
    CallStyle { arguments_are_text: false, silence_is_none: true },
    CallStyle { arguments_are_text: true, silence_is_none: true },
];

/// The text of a conversation, adapted to the template if need be.
///
/// # Errors
/// The template's first failure, if it refuses every form of the conversation.
pub(super) fn render(template: &Template, chat: Chat<'_>) -> Result<String, TemplateError> {
    let refusal = match render_as(template, chat, chat.messages) {
        Err(error @ TemplateError::Failed(_)) => error,
        rendered => return rendered,
    };
    for messages in adaptations(chat.messages) {
        match render_as(template, chat, &messages) {
            Err(TemplateError::Failed(_)) => {}
            rendered => return rendered,
        }
    }
    Err(refusal)
}

fn render_as(template: &Template, chat: Chat<'_>, messages: &[Message]) -> Result<String, TemplateError> {
    let has_calls = messages.iter().any(|message| !message.tool_calls.is_empty());
    let calls =
        if has_calls { template.call_style(|| probe(template, chat.is_cancelled)) } else { CallStyle::default() };
    let request = TemplateRequest::Render {
        messages: Cow::Borrowed(messages),
        tools: Cow::Borrowed(chat.tools),
        thinking: chat.thinking,
        calls,
        opens_answer: chat.opens_answer,
    };
    template.ask(&request, chat.is_cancelled)
}

/// The style in which a template shows a call. A style that it refuses with a message of its own counts less than one
/// that it renders.
fn probe(template: &Template, is_cancelled: IsCancelled<'_>) -> CallStyle {
    let call = ToolCall::new("probe", json!({ "probe_key": SHOWN }));
    let messages = [
        Message::new(Role::User, "Question"),
        Message { tool_calls: vec![call], ..Message::new(Role::Assistant, "") },
        Message::new(Role::Tool, "Result"),
    ];
    let parameters = json!({"type": "object", "properties": {"probe_key": {"type": "string"}}});
    let tools = [Tool { name: "probe".to_owned(), description: "A probe".to_owned(), parameters }];
    let shows = |calls: CallStyle| {
        let request = TemplateRequest::Render {
            messages: Cow::Borrowed(&messages),
            tools: Cow::Borrowed(&tools),
            thinking: Default::default(),
            calls,
            opens_answer: true,
        };
        match template.ask(&request, is_cancelled) {
            Ok(text) if text.contains(SHOWN) => Some(true),
            Err(TemplateError::Failed(failure)) if failure.reason.contains(SHOWN) => Some(false),
            _ => None,
        }
    };
    let mut refused = None;
    for style in STYLES {
        match shows(style) {
            Some(true) => return style,
            Some(false) => refused = refused.or(Some(style)),
            None => {}
        }
    }
    refused.unwrap_or_default()
}

/// Other forms of a conversation, the closest first.
fn adaptations(messages: &[Message]) -> impl Iterator<Item = Vec<Message>> {
    let instructed = instructions_first(messages);
    let uninstructed = without_instructions(&instructed);
    let forms = [messages.to_vec(), instructed, uninstructed];
    let mut known = vec![messages.to_vec()];
    let details = |form: Vec<Message>| [without_details(&form), form].into_iter().rev();
    let calls = |form: Vec<Message>| [one_call_at_a_time(&form), form].into_iter().rev();
    forms.into_iter().flat_map(details).flat_map(calls).filter(move |form| {
        let is_new = !known.contains(form);
        if is_new {
            known.push(form.clone());
        }
        is_new
    })
}

/// The conversation without ids of its own and without reasoning.
fn without_details(messages: &[Message]) -> Vec<Message> {
    let plain = |message: &Message| {
        let tool_calls = message.tool_calls.iter().map(|call| ToolCall { id: None, ..call.clone() }).collect();
        Message { tool_calls, ..Message::new(message.role, message.content.clone()) }
    };
    messages.iter().map(plain).collect()
}

/// The conversation with the calls of a turn in turns of their own, each followed by its result.
fn one_call_at_a_time(messages: &[Message]) -> Vec<Message> {
    let (mut turns, mut rest) = (Vec::new(), messages);
    while let Some((message, after)) = rest.split_first() {
        let calls = &message.tool_calls;
        let results = &after[..after.iter().take_while(|turn| turn.role == Role::Tool).count().min(calls.len())];
        rest = after;
        if calls.len() < 2 || results.len() < calls.len() {
            turns.push(message.clone());
            continue;
        }
        let mut left: Vec<&Message> = results.iter().collect();
        for (number, call) in calls.iter().enumerate() {
            let said = if number == 0 { message.clone() } else { Message::new(message.role, "") };
            turns.push(Message { tool_calls: vec![call.clone()], ..said });
            let named = left.iter().position(|result| result.result_of.is_some() && result.result_of == call.id);
            turns.push(left.remove(named.unwrap_or(0)).clone());
        }
        rest = &after[results.len()..];
    }
    turns
}

/// The conversation with one turn of instructions, at its beginning. Later ones are said by the user, with the question
/// that follows.
fn instructions_first(messages: &[Message]) -> Vec<Message> {
    let mut turns: Vec<Message> = Vec::new();
    for message in messages {
        let is_late = message.role == Role::System && turns.iter().any(|turn| turn.role != Role::System);
        let role = if is_late { Role::User } else { message.role };
        match turns.last_mut() {
            Some(last) if last.role == role && role != Role::Tool && last.tool_calls.is_empty() => {
                last.content = format!("{}\n\n{}", last.content, message.content);
                last.tool_calls.clone_from(&message.tool_calls);
            }
            _ => turns.push(Message { role, ..message.clone() }),
        }
    }
    turns
}

/// The conversation with its instructions said by the user, before the first question.
fn without_instructions(messages: &[Message]) -> Vec<Message> {
    let (system, mut others): (Vec<Message>, Vec<Message>) =
        messages.iter().cloned().partition(|message| message.role == Role::System);
    let system: Vec<String> = system.into_iter().map(|message| message.content).collect();
    if system.is_empty() {
        return others;
    }
    let system = system.join("\n\n");
    match others.iter_mut().find(|message| message.role == Role::User) {
        Some(first) => first.content = format!("{system}\n\n{}", first.content),
        None => others.insert(0, Message::new(Role::User, system)),
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(adapt: fn(&[Message]) -> Vec<Message>, turns: &[(Role, &str)], expected: &[(Role, &str)]) {
        let messages = |turns: &[(Role, &str)]| -> Vec<Message> {
            turns.iter().map(|(role, text)| Message::new(*role, *text)).collect()
        };
        assert_eq!(adapt(&messages(turns)), messages(expected));
    }

    #[test]
    fn calls_are_made_one_after_the_other() {
        let call = |name: &str| ToolCall { id: Some(name.to_owned()), ..ToolCall::new(name, json!({})) };
        let result = |id: &str| Message { result_of: Some(id.to_owned()), ..Message::new(Role::Tool, id) };
        let asking = |calls: &[&str], text: &str| Message {
            tool_calls: calls.iter().map(|name| call(name)).collect(),
            ..Message::new(Role::Assistant, text)
        };
        let question = Message::new(Role::User, "Q");
        let messages = [question.clone(), asking(&["a", "b"], "I look."), result("b"), result("a"), question.clone()];
        let expected =
            [question.clone(), asking(&["a"], "I look."), result("a"), asking(&["b"], ""), result("b"), question];
        assert_eq!(one_call_at_a_time(&messages), expected);
        assert_eq!(one_call_at_a_time(&expected), expected);
        assert_eq!(one_call_at_a_time(&messages[..3]), messages[..3], "a result is missing");
    }

    #[test]
    fn later_instructions_are_said_with_the_next_question() {
        use Role::{Assistant, System, User};
        let turns = [(System, "A"), (System, "B"), (User, "Hi"), (Assistant, "Hello"), (System, "C"), (User, "Why?")];
        let first = [(System, "A\n\nB"), (User, "Hi"), (Assistant, "Hello"), (User, "C\n\nWhy?")];
        check(instructions_first, &turns, &first);
        check(without_instructions, &first, &[(User, "A\n\nB\n\nHi"), (Assistant, "Hello"), (User, "C\n\nWhy?")]);
        check(without_instructions, &[(System, "A")], &[(User, "A")]);
    }
}
