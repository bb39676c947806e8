//! Recollections for an answer: found by meaning, limited in size, and marked as data.

use std::sync::Arc;

use hone_memory::{Filters, MemoryStore};
use hone_protocol::{Embed, Message, RecalledEngram, Role, Tool, ToolCall, with_causes};
use hone_quality::fill;
use serde_json::json;

use crate::settings::{MemorySettings, shortened};

/// The tool's name.
const TOOL: &str = "search_memory";

/// How many times more results are requested than used, because some of them are redundant.
const SPARE: usize = 4;

/// Searches memory on behalf of a model.
#[derive(Clone)]
pub(crate) struct Recaller {
    pub(crate) store: MemoryStore,
    pub(crate) embedder: Arc<dyn Embed>,
    pub(crate) settings: Arc<MemorySettings>,
}

impl Recaller {
    /// What memory holds about `search`, best first. Exchanges already in the `conversation` are left out, and so are
    /// other answers to the same question. A failure is logged and finds nothing: an answer without recollections is
    /// better than none.
    pub(crate) fn search(&self, search: &str, conversation: &[Message]) -> Vec<RecalledEngram> {
        let found = self.embed(search).and_then(|vector| {
            // An answer that the user stopped is not one they wanted.
            let filters =
                Filters { min_similarity: Some(self.settings.threshold), finished: Some(true), ..Filters::default() };
            let n_wanted = self.settings.n_recalled.saturating_mul(SPARE);
            self.store.search(&vector, n_wanted, &filters).map_err(|error| with_causes(&error))
        });
        let found = found.unwrap_or_else(|error| {
            tracing::error!("memory cannot be searched: {error}");
            Vec::new()
        });
        let mut known: Vec<&str> = conversation.iter().map(|message| message.content.as_str()).collect();
        let mut kept: Vec<&RecalledEngram> = Vec::new();
        for engram in &found {
            if kept.len() < self.settings.n_recalled && !known.contains(&engram.query.as_str()) {
                known.push(&engram.query);
                kept.push(engram);
            }
        }
        kept.into_iter().cloned().collect()
    }

    fn embed(&self, text: &str) -> Result<Vec<f32>, String> {
        let vectors = self.embedder.embed(&[text]).map_err(|error| with_causes(&error))?;
        vectors.into_iter().next().ok_or_else(|| format!("{} gave no vector", self.embedder.model()))
    }

    /// The question, preceded by the recollections. They are placed here rather than in the instructions before the
    /// conversation, so that the conversation's KV cache stays valid, and because some chat templates do not support
    /// instructions.
    pub(crate) fn in_context(&self, engrams: &[RecalledEngram], query: &str) -> String {
        if engrams.is_empty() {
            return query.to_owned();
        }
        let paragraph = fill(&self.settings.context_template, &[("memories", &self.quoted(engrams))]);
        format!("{paragraph}\n\n{query}")
    }

    /// The tool's description for a model.
    pub(crate) fn tool(&self) -> Tool {
        Tool {
            name: TOOL.to_owned(),
            description: self.settings.tool_description.clone(),
            parameters: json!({
                "type": "object",
                "properties": {"query": {"type": "string", "description": self.settings.tool_query_description}},
                "required": ["query"],
            }),
        }
    }

    /// The tool's result message.
    pub(crate) fn tool_result(&self, engrams: &[RecalledEngram]) -> Message {
        let text = match engrams {
            [] => self.settings.tool_found_nothing.clone(),
            engrams => fill(&self.settings.tool_template, &[("memories", &self.quoted(engrams))]),
        };
        Message::new(Role::Tool, text)
    }

    /// The recollections, truncated to the limit, with every line quoted.
    fn quoted(&self, engrams: &[RecalledEngram]) -> String {
        let mut room = self.settings.recalled_characters;
        let mut memories = Vec::new();
        for engram in engrams {
            if room == 0 {
                break;
            }
            let exchange = [("query", engram.query.as_str()), ("answer", engram.answer.as_str())];
            let memory = shortened(&fill(&self.settings.memory_template, &exchange), room);
            room -= memory.chars().count().min(room);
            memories.push(memory.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n"));
        }
        memories.join("\n\n")
    }
}

/// The search text of a tool call, or what is wrong with the call.
pub(crate) fn search_of(call: &ToolCall) -> Result<&str, String> {
    if call.name != TOOL {
        return Err(format!("There is no tool {:?}, only {TOOL:?}.", call.name));
    }
    let search = call.arguments["query"].as_str().map(str::trim).filter(|search| !search.is_empty());
    search.ok_or_else(|| format!("{TOOL} needs a text {:?}.", "query"))
}
