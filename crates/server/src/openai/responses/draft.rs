//! A response in progress.

use std::collections::VecDeque;

use hone_protocol::{QueryId, Timestamp, Timings, ToolCall};
use serde_json::{Map, Value, json};

use super::response_id;
use super::tools::OfferedTools;
use crate::answering::{Answered, Piece, note_kept, was_cut};
use crate::error::ApiError;

/// Folds the pieces of an answer into a response, and writes an event for each change.
pub(super) struct Draft {
    id: QueryId,
    created: u64,
    /// When it was completed.
    completed: Option<u64>,
    /// The request fields that the response repeats.
    head: Map<String, Value>,
    /// The maximum number of tool calls.
    most_calls: usize,
    tools: OfferedTools,
    /// The complete items.
    output: Vec<Value>,
    /// The item being written.
    open: Option<Open>,
    status: Status,
    /// Whether memory has stored the answer, if it should.
    is_kept: bool,
    usage: Value,
    /// The number of reasoning pieces, each of one or a few tokens.
    n_thoughts: usize,
    events: VecDeque<Value>,
    n_events: usize,
}

/// The state of a response.
#[derive(Clone, Debug)]
enum Status {
    InProgress,
    Completed,
    /// The response reached a limit.
    Incomplete,
    Cancelled,
    Failed(ApiError),
}

/// An item being written.
struct Open {
    kind: Kind,
    text: String,
}

/// The kinds of items that are streamed piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
}

impl Draft {
    /// A response that has just begun. `head` holds the request fields that it repeats; the request offered the
    /// `tools`.
    pub(super) fn new(id: QueryId, head: Map<String, Value>, most_calls: usize, tools: OfferedTools) -> Draft {
        let mut draft = Draft {
            id,
            created: Timestamp::now().0 / 1000,
            completed: None,
            head,
            most_calls,
            tools,
            output: Vec::new(),
            open: None,
            status: Status::InProgress,
            is_kept: true,
            usage: Value::Null,
            n_thoughts: 0,
            events: VecDeque::new(),
            n_events: 0,
        };
        draft.tell_state("response.created");
        draft.tell_state("response.in_progress");
        draft
    }

    /// The response in its current state.
    pub(super) fn object(&self) -> Value {
        let mut object = self.head.clone();
        let error = match &self.status {
            Status::Failed(error) => json!({"code": "server_error", "message": error.message}),
            _ => Value::Null,
        };
        let incomplete = match self.status {
            Status::Incomplete => json!({"reason": "max_output_tokens"}),
            _ => Value::Null,
        };
        let fields = [
            ("id", json!(response_id(self.id))),
            ("object", json!("response")),
            ("created_at", json!(self.created)),
            ("completed_at", json!(self.completed)),
            ("status", json!(self.status.name())),
            ("error", error),
            ("incomplete_details", incomplete),
            ("output", json!(self.output)),
            ("usage", self.usage.clone()),
        ];
        object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        let mut object = Value::Object(object);
        note_kept(&mut object, self.is_kept);
        object
    }

    /// The next unsent event.
    pub(super) fn next_event(&mut self) -> Option<Value> {
        self.events.pop_front()
    }

    /// An event that says that the response is still in progress; `None` if it has ended.
    pub(super) fn sign_of_life(&mut self) -> Option<Value> {
        if self.has_ended() {
            return None;
        }
        self.tell_state("response.in_progress");
        self.next_event()
    }

    /// Discards the events that no client will be sent.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Whether the response has ended.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.status, Status::InProgress)
    }

    /// Why there is no response, if it failed.
    pub(super) fn failure(&self) -> Option<ApiError> {
        match &self.status {
            Status::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// Adds a piece. A finished response stays as is.
    pub(super) fn take(&mut self, piece: Piece) {
        if self.has_ended() {
            return;
        }
        match piece {
            Piece::Thinking(text) => {
                self.n_thoughts += 1;
                self.write(Kind::Reasoning, &text);
            }
            Piece::Text(text) => self.write(Kind::Message, &text),
            Piece::Logprobs(_) => {}
            Piece::Answered(answered) => self.answer(&answered),
            Piece::Failed(error) => self.end(Status::Failed(error)),
        }
    }

    /// Ends a response that is no longer wanted.
    pub(super) fn cancel(&mut self) {
        if !self.has_ended() {
            self.end(Status::Cancelled);
        }
    }

    fn answer(&mut self, Answered { response, is_kept }: &Answered) {
        self.is_kept = *is_kept;
        let is_cut = was_cut(response.finish_reason) && response.tool_calls.is_empty();
        let status = if is_cut { Status::Incomplete } else { Status::Completed };
        self.close(status.of_item());
        for (number, call) in response.tool_calls.iter().take(self.most_calls).enumerate() {
            self.call(number, call);
        }
        self.usage = usage(&response.timings, self.n_thoughts);
        self.end(status);
    }

    fn end(&mut self, status: Status) {
        self.close(status.of_item());
        self.completed = matches!(status, Status::Completed).then(|| Timestamp::now().0 / 1000);
        self.status = status;
        self.tell_state(match self.status {
            Status::Failed(_) => "response.failed",
            Status::Incomplete | Status::Cancelled => "response.incomplete",
            Status::Completed | Status::InProgress => "response.completed",
        });
    }

    /// Adds text to the open item of this kind, or to a new one.
    fn write(&mut self, kind: Kind, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close("completed");
            self.open(kind);
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
        self.tell_of_part(kind.delta_event(), kind, kind.said("delta", text));
    }

    fn open(&mut self, kind: Kind) {
        let item = kind.item(&self.item_id(kind.prefix()), "in_progress", None);
        self.tell("response.output_item.added", json!({"output_index": self.output.len(), "item": item}));
        self.tell_of_part("response.content_part.added", kind, json!({"part": kind.part("")}));
        self.open = Some(Open { kind, text: String::new() });
    }

    /// Completes the open item.
    fn close(&mut self, status: &str) {
        let Some(Open { kind, text }) = self.open.take() else { return };
        self.tell_of_part(kind.done_event(), kind, kind.said("text", &text));
        self.tell_of_part("response.content_part.done", kind, json!({"part": kind.part(&text)}));
        self.complete(kind.item(&self.item_id(kind.prefix()), status, Some(&text)));
    }

    fn call(&mut self, number: usize, call: &ToolCall) {
        let told = self.tools.told(call);
        let (prefix, event) = match told.takes_text {
            true => ("ctc", "response.custom_tool_call_input"),
            false => ("fc", "response.function_call_arguments"),
        };
        let (id, call_id) = (self.item_id(prefix), format!("call_{}_{number}", self.id));
        let begun = told.item(&id, &call_id, "", "in_progress");
        self.tell("response.output_item.added", json!({"output_index": self.output.len(), "item": begun}));
        self.tell_at(&id, &format!("{event}.delta"), json!({"delta": told.input}));
        self.tell_at(&id, &format!("{event}.done"), told.whole());
        self.complete(told.item(&id, &call_id, &told.input, "completed"));
    }

    /// Writes an event about an item.
    fn tell_at(&mut self, id: &str, event: &str, mut fields: Value) {
        fields["item_id"] = json!(id);
        fields["output_index"] = json!(self.output.len());
        self.tell(event, fields);
    }

    /// Adds a complete item.
    fn complete(&mut self, item: Value) {
        self.tell("response.output_item.done", json!({"output_index": self.output.len(), "item": item.clone()}));
        self.output.push(item);
    }

    /// The id of the item being written.
    fn item_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.id, self.output.len())
    }

    /// Writes an event about the text of the item being written.
    fn tell_of_part(&mut self, event: &str, kind: Kind, mut fields: Value) {
        fields["content_index"] = json!(0);
        self.tell_at(&self.item_id(kind.prefix()), event, fields);
    }

    fn tell_state(&mut self, kind: &str) {
        let response = self.object();
        self.tell(kind, json!({"response": response}));
    }

    fn tell(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.n_events);
        self.n_events += 1;
        self.events.push_back(event);
    }
}

impl Status {
    fn name(&self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
            Status::Cancelled => "cancelled",
            Status::Failed(_) => "failed",
        }
    }

    /// The status of the last item in a response with this status.
    fn of_item(&self) -> &'static str {
        match self {
            Status::Completed => "completed",
            _ => "incomplete",
        }
    }
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::Reasoning => "rs",
            Kind::Message => "msg",
        }
    }

    fn delta_event(self) -> &'static str {
        match self {
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Message => "response.output_text.delta",
        }
    }

    fn done_event(self) -> &'static str {
        match self {
            Kind::Reasoning => "response.reasoning_text.done",
            Kind::Message => "response.output_text.done",
        }
    }

    /// The fields of an event with this text.
    fn said(self, key: &str, text: &str) -> Value {
        match self {
            Kind::Reasoning => json!({key: text}),
            Kind::Message => json!({key: text, "logprobs": []}),
        }
    }

    fn part(self, text: &str) -> Value {
        match self {
            Kind::Reasoning => json!({"type": "reasoning_text", "text": text}),
            Kind::Message => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
        }
    }

    /// The item, with its text if it has one yet.
    fn item(self, id: &str, status: &str, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.map(|text| self.part(text)).into_iter().collect();
        match self {
            Kind::Reasoning => {
                json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content})
            }
            Kind::Message => {
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
        }
    }
}

fn usage(timings: &Timings, reasoning_tokens: usize) -> Value {
    json!({
        "input_tokens": timings.prompt_tokens,
        "input_tokens_details": {"cached_tokens": timings.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": timings.generation_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": timings.prompt_tokens + timings.generation_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_is_an_event_like_the_others_until_the_end() {
        let mut draft = Draft::new(QueryId::fresh(), Map::new(), 1, OfferedTools::default());
        while draft.next_event().is_some() {}
        let first = draft.sign_of_life().unwrap();
        assert_eq!((&first["type"], &first["sequence_number"]), (&json!("response.in_progress"), &json!(2)));
        draft.take(Piece::Text("Hello".to_owned()));
        assert_eq!(draft.next_event().unwrap()["sequence_number"], 3);
        while draft.next_event().is_some() {}
        draft.cancel();
        assert_eq!(draft.sign_of_life(), None);
        assert_eq!(std::iter::from_fn(|| draft.next_event()).last().unwrap()["type"], "response.incomplete");
    }
}
