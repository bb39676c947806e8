//! A message being streamed.

use std::collections::VecDeque;

use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Value, json};

use super::message::{Head, call_block, stop_reason, text_block, total};
use crate::answering::{Answered, Answering, Piece, note_kept};
use crate::error::{ApiError, request_id};
use crate::streams::first_piece;

/// The events of a message.
pub(super) struct Events {
    answering: Answering,
    head: Head,
    blocks: Blocks,
    is_over: bool,
}

/// The blocks of a message, written one after the other.
struct Blocks {
    /// Events to send before anything else.
    waiting: VecDeque<Value>,
    /// The kind of the open block.
    open: Option<Kind>,
    /// The index of the open block, or of the next one.
    index: usize,
}

/// The kinds of blocks that are streamed piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
}

impl Events {
    /// Waits for the first piece: it shows whether the answer has failed, and so determines the HTTP status.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) async fn begin(mut answering: Answering, head: Head) -> Result<Events, ApiError> {
        let first = first_piece(&mut answering).await?;
        let start = json!({"type": "message_start", "message": head.begun(answering.prompt_tokens())});
        let blocks = Blocks { waiting: VecDeque::from([start]), open: None, index: 0 };
        let mut events = Events { answering, head, blocks, is_over: false };
        first.into_iter().for_each(|piece| events.take(piece));
        Ok(events)
    }

    pub(super) fn stream(self) -> impl Stream<Item = Value> + Send + 'static {
        unfold(self, async |mut events| Some((events.next().await?, events)))
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            match self.blocks.waiting.pop_front() {
                Some(event) => return Some(event),
                None if self.is_over => return None,
                None => {
                    let piece = self.answering.next().await;
                    self.take(piece);
                }
            }
        }
    }

    fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Thinking(text) => self.blocks.write(Kind::Thinking, &text),
            Piece::Text(text) => self.blocks.write(Kind::Text, &text),
            Piece::Logprobs(_) => {}
            Piece::Answered(answered) => self.end(&answered),
            Piece::Failed(error) => {
                self.blocks.waiting.push_back(error.to_anthropic(&request_id(self.head.id)));
                self.is_over = true;
            }
        }
    }

    fn end(&mut self, Answered { response, is_kept }: &Answered) {
        self.blocks.close();
        for (id, call) in self.head.calls(response) {
            let block = call_block(&id, &call.name, &json!({}));
            let delta = json!({"type": "input_json_delta", "partial_json": call.arguments.to_string()});
            self.blocks.start(block);
            self.blocks.add(delta);
            self.blocks.stop();
        }
        let delta = json!({
            "stop_reason": stop_reason(response),
            "stop_sequence": response.stopped_by,
            "stop_details": null,
            "container": null,
        });
        let mut end = json!({"type": "message_delta", "delta": delta, "usage": total(&response.timings)});
        note_kept(&mut end, *is_kept);
        self.blocks.waiting.extend([end, json!({"type": "message_stop"})]);
        self.is_over = true;
    }
}

impl Blocks {
    /// Adds text to the open block of this kind, or to a new one.
    fn write(&mut self, kind: Kind, text: &str) {
        if self.open != Some(kind) {
            self.close();
            self.start(kind.empty());
            self.open = Some(kind);
        }
        self.add(kind.delta(text));
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.stop();
        }
    }

    fn start(&mut self, block: Value) {
        let event = json!({"type": "content_block_start", "index": self.index, "content_block": block});
        self.waiting.push_back(event);
    }

    fn add(&mut self, delta: Value) {
        self.waiting.push_back(json!({"type": "content_block_delta", "index": self.index, "delta": delta}));
    }

    fn stop(&mut self) {
        self.waiting.push_back(json!({"type": "content_block_stop", "index": self.index}));
        self.index += 1;
    }
}

impl Kind {
    fn empty(self) -> Value {
        match self {
            Kind::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Kind::Text => text_block(""),
        }
    }

    fn delta(self, text: &str) -> Value {
        match self {
            Kind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
            Kind::Text => json!({"type": "text_delta", "text": text}),
        }
    }
}
