//! Tools for models whose chat template supports none: the instructions list the tools and explain how to call them,
//! and calls and their results are written in the form of Hermes.

use hone_protocol::{CallFormat, Message, Role, Tool, ToolCall};
use serde_json::json;

/// The tags around a result.
const RESULT: (&str, &str) = ("<tool_response>", "</tool_response>");

/// The form of the calls.
pub(crate) const FORM: CallFormat = CallFormat::ALL[0];

/// The conversation with the tools in its instructions, and with calls and results as text.
pub(super) fn told(messages: &[Message], tools: &[Tool]) -> Vec<Message> {
    let mut turns = Vec::with_capacity(messages.len() + 1);
    let (first, rest) = match messages.split_first() {
        Some((first, rest)) if first.role == Role::System => (first.content.as_str(), rest),
        _ => ("", messages),
    };
    let lesson = lesson(tools);
    let instructions = if first.is_empty() { lesson } else { format!("{first}\n\n{lesson}") };
    turns.push(Message::new(Role::System, instructions));
    for message in rest {
        match (message.role, turns.last_mut()) {
            // The results of calls that were made at the same time are one turn.
            (Role::Tool, Some(last)) if last.role == Role::User && last.content.ends_with(RESULT.1) => {
                last.content.push_str(&format!("\n{}", result(message)));
            }
            (Role::Tool, _) => turns.push(Message::new(Role::User, result(message))),
            _ => turns.push(spoken(message)),
        }
    }
    turns
}

fn lesson(tools: &[Tool]) -> String {
    let line = |tool: &Tool| {
        let Tool { name, description, parameters } = tool;
        json!({"name": name, "description": description, "parameters": parameters}).to_string()
    };
    let lines: Vec<String> = tools.iter().map(line).collect();
    let (open, close) = (FORM.open, FORM.close);
    format!(
        "You can call these tools, each described by its name, what it does, and the JSON schema of its arguments:\n{}\n\n\
         To call a tool, write its name and its arguments as JSON, like this, and nothing after it:\n\
         {open}{{\"name\": \"the tool\", \"arguments\": {{}}}}{close}\n\
         You will be told the result. If no tool helps, answer in words.",
        lines.join("\n"),
    )
}

fn result(message: &Message) -> String {
    format!("{}\n{}\n{}", RESULT.0, message.content, RESULT.1)
}

/// A turn whose calls are text.
fn spoken(message: &Message) -> Message {
    let call = |call: &ToolCall| {
        let written = json!({"name": call.name, "arguments": call.arguments});
        format!("{}{written}{}", FORM.open, FORM.close)
    };
    let words = Some(message.content.clone()).filter(|words| !words.is_empty());
    let content: Vec<String> = words.into_iter().chain(message.tool_calls.iter().map(call)).collect();
    Message { content: content.join("\n"), tool_calls: Vec::new(), ..message.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_calls_and_results_are_text() {
        let tool = Tool { name: "time".to_owned(), description: "The time".to_owned(), parameters: json!({}) };
        let calls = vec![ToolCall::new("time", json!({"in": "Rome"})), ToolCall::new("time", json!({}))];
        let messages = [
            Message::new(Role::System, "Be brief."),
            Message::new(Role::User, "When?"),
            Message { tool_calls: calls, ..Message::new(Role::Assistant, "I look.") },
            Message::new(Role::Tool, "noon"),
            Message::new(Role::Tool, "one"),
        ];
        let told = told(&messages, &[tool]);
        let roles: Vec<Role> = told.iter().map(|turn| turn.role).collect();
        assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::User]);
        assert!(told[0].content.starts_with("Be brief.\n\nYou can call"), "{}", told[0].content);
        assert!(told[0].content.contains("{\"name\":\"time\",\"description\":\"The time\",\"parameters\":{}}"));
        let call = |arguments: &str| format!("<tool_call>{{\"name\":\"time\",\"arguments\":{arguments}}}</tool_call>");
        assert_eq!(told[2].content, format!("I look.\n{}\n{}", call("{\"in\":\"Rome\"}"), call("{}")));
        let results = "<tool_response>\nnoon\n</tool_response>\n<tool_response>\none\n</tool_response>";
        assert_eq!(told[3].content, results);
    }
}
