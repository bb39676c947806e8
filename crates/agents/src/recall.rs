//! Recollections for an answer: found by meaning, limited in size, and marked as data.

use std::sync::Arc;

use hone_judging::fill;
use hone_memory::{Filters, MemoryError, MemoryStore, QuestionType, RecallQuestion, Whose, WithinScope};
use hone_protocol::{
    AnswerOptions, Embed, Message, OwnerId, Query, Rating, RecalledEngram, Role, Tool, ToolCall, VettingState,
    with_causes,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::notes::quoted;
use crate::repetition::repeats;
use crate::settings::{MemorySettings, RecallPolicy, SCOPE_OF_CLIENTS, on_one_line, shortened};
use crate::statements::is_personal;
use crate::whose::{keep_those_asked_about, names_somebody};

/// The most blocked texts near a question that are compared with its recollections, and their minimum similarity.
const BLOCKED: usize = 16;
const NEAR_BLOCKED: f32 = 0.3;

/// The tool's name.
const TOOL: &str = "search_memory";

/// If a question names somebody, facts about them are looked for among so many candidates per recalled engram, down to
/// this share of the highest similarity.
const CANDIDATES_PER_RECALLED: usize = 2;
const WIDENED_NEARNESS: f32 = 0.5;

/// Searches memory on behalf of a model.
#[derive(Clone)]
pub struct Recaller {
    /// The memory that is searched.
    pub store: MemoryStore,
    /// The embedder of the question.
    pub embedder: Arc<dyn Embed>,
    /// The bounds of similarity, and the texts around recollections.
    pub settings: Arc<MemorySettings>,
}

impl Recaller {
    /// The owner's memories about `search` in the scope of a query, best first: facts that were stated and exchanges
    /// that may help. Answers that were cut short, stopped, marked bad or not shown are left out, as are texts that
    /// repeat a blocked one or that the conversation already contains. A failure is logged and finds nothing: an answer
    /// without recollections is better than none.
    pub fn search(&self, search: &str, query: &Query, owner: Option<OwnerId>) -> Vec<RecalledEngram> {
        // "What is 10 minus 3?" shares its words with facts, but needs none.
        if QuestionType::of(search) == QuestionType::Math && !is_personal(search) {
            return Vec::new();
        }
        let found = self.question(search, query).and_then(|mut question| {
            let (mut n, is_widened) = (self.settings.n_recalled, names_somebody(search));
            if is_widened {
                question.matching.nearness = question.matching.nearness.min(WIDENED_NEARNESS);
                n = n.saturating_mul(CANDIDATES_PER_RECALLED);
            }
            let filters = Filters {
                whose: Whose::Of(owner),
                scope: WithinScope::Only(scope(query)),
                facts: true,
                notes: true,
                reviewed: self.settings.recall == RecallPolicy::Reviewed,
                worth_recalling: true,
                unhelpful: self.settings.unhelpful.clone(),
                ..Filters::default()
            };
            let vector = question.vector.clone();
            let found = self.store.recall(question, n, &filters);
            let found = found.and_then(|found| self.without_repetitions(found, &vector, owner));
            let mut found = found.map_err(|error| with_causes(&error))?;
            keep_those_asked_about(search, &mut found, self.settings.nearness);
            if is_widened {
                keep_near(&mut found, &self.settings);
                found.truncate(self.settings.n_recalled);
            }
            Ok(found)
        });
        found.unwrap_or_else(|error| {
            tracing::error!("memory cannot be searched: {error}");
            Vec::new()
        })
    }

    /// The answers that do not repeat a text that a critic has blocked.
    fn without_repetitions(
        &self,
        found: Vec<RecalledEngram>,
        question: &[f32],
        owner: Option<OwnerId>,
    ) -> Result<Vec<RecalledEngram>, MemoryError> {
        if found.iter().all(|engram| engram.is_fact) {
            return Ok(found);
        }
        let blocked = Filters {
            whose: Whose::Of(owner),
            vetting: Some(VettingState::Blocked),
            notes: true,
            min_similarity: Some(NEAR_BLOCKED),
            ..Filters::default()
        };
        let blocked = self.store.search(question, BLOCKED, &blocked)?;
        let mut kept = Vec::new();
        for engram in found {
            let is_repetition = !engram.is_fact && blocked.iter().any(|blocked| repeats(&engram, blocked));
            if !is_repetition || self.is_rated_good(&engram)? {
                kept.push(engram);
            }
        }
        Ok(kept)
    }

    fn is_rated_good(&self, engram: &RecalledEngram) -> Result<bool, MemoryError> {
        Ok(self.store.get(engram.query_id)?.is_some_and(|engram| engram.user_feedback == Some(Rating::Good)))
    }

    fn question(&self, search: &str, query: &Query) -> Result<RecallQuestion, String> {
        let asked = query.history.iter().filter(|message| message.role == Role::User);
        let asked = asked.map(|message| &message.content);
        // The question is sent again with the results of a program's tools, or to continue an answer.
        let AnswerOptions { turns_after, begun, .. } = &query.options;
        let again = (!turns_after.is_empty() || !begun.is_empty()).then_some(&query.query);
        Ok(RecallQuestion {
            text: search.to_owned(),
            vector: self.embedder.embed_query(search).map_err(|error| with_causes(&error))?,
            known: asked.chain(again).cloned().collect(),
            matching: self.settings.matching(search),
            keeps_all: false,
        })
    }

    /// The question, preceded by the recollections. They are placed here rather than in the instructions before the
    /// conversation, so that the conversation's KV cache stays valid, and because some chat templates do not support
    /// instructions.
    pub(crate) fn in_context(&self, engrams: &[RecalledEngram], query: &str) -> String {
        let (facts, exchanges): (Vec<_>, Vec<_>) = engrams.iter().cloned().partition(|engram| engram.is_fact);
        let mut room = self.settings.recalled_characters;
        let said = said_before(&facts, &mut room);
        let memories = self.quoted(&exchanges, room);
        let question = match said.is_empty() {
            true => query.to_owned(),
            false => fill(&self.settings.facts_template, &[("facts", said.as_str()), ("question", query)]),
        };
        match memories.is_empty() {
            true => question,
            false => format!("{}\n\n{question}", fill(&self.settings.context_template, &[("memories", &memories)])),
        }
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
            engrams => {
                let memories = self.quoted(engrams, self.settings.recalled_characters);
                fill(&self.settings.tool_template, &[("memories", &memories)])
            }
        };
        Message::new(Role::Tool, text)
    }

    /// The recollections, limited to this many characters, with every line quoted.
    fn quoted(&self, engrams: &[RecalledEngram], mut room: usize) -> String {
        let mut memories = Vec::new();
        for engram in engrams {
            if room == 0 {
                break;
            }
            let memory = shortened(&self.written(engram), room);
            room -= memory.chars().count().min(room);
            memories.push(quoted(&memory));
        }
        memories.join("\n\n")
    }

    fn written(&self, engram: &RecalledEngram) -> String {
        match engram.is_fact {
            true => fill(&self.settings.fact_template, &[("statement", engram.query.as_str())]),
            false => {
                let exchange = [("query", engram.query.as_str()), ("answer", engram.answer.as_str())];
                let exchange = fill(&self.settings.memory_template, &exchange);
                let mark = Some(&self.settings.unreviewed_mark).filter(|mark| engram.is_unreviewed && !mark.is_empty());
                mark.map_or(exchange.clone(), |mark| format!("{mark}\n{exchange}"))
            }
        }
    }
}

/// Keeps the engrams that are as similar or have as many of the question's words as recall demands.
fn keep_near(found: &mut Vec<RecalledEngram>, settings: &MemorySettings) {
    let highest = found.iter().map(|engram| engram.similarity).fold(0.0, f32::max);
    let least = if settings.nearness > 0.0 { settings.nearness * highest } else { f32::MIN };
    found.retain(|engram| engram.similarity >= least || engram.words >= settings.words_threshold);
}

/// Facts in the person's own words, the most relevant one last, next to the question. If room is short, the less
/// relevant ones are left out first.
fn said_before(facts: &[RecalledEngram], room: &mut usize) -> String {
    let mut said = Vec::new();
    for fact in facts {
        if *room == 0 {
            break;
        }
        let sentence = shortened(&as_sentence(&fact.query), *room);
        *room -= sentence.chars().count().min(*room);
        said.insert(0, sentence);
    }
    said.join(" ")
}

/// A statement on one line, with closing punctuation.
fn as_sentence(statement: &str) -> String {
    let line = on_one_line(statement);
    let is_ended = line.ends_with(['.', '!', '?', '…', '。', '！', '？']);
    if is_ended { line } else { format!("{line}.") }
}

/// The scope of a program's questions without instructions, within that of programs.
const NO_INSTRUCTIONS: &str = "plain";

/// The bytes of the instructions' digest that name their scope.
const SCOPE_BYTES: usize = 8;

/// The scope in which the answer to a query is recalled. A program's questions are apart from the person's, and an
/// answer given under instructions does not suit other conversations.
pub(crate) fn scope(query: &Query) -> Option<String> {
    match (query.options.is_of_client, scope_of_instructions(&query.history)) {
        // Earlier versions called all answers to programs `client`, whatever their instructions were.
        (true, instructions) => {
            Some(format!("{SCOPE_OF_CLIENTS}:{}", instructions.as_deref().unwrap_or(NO_INSTRUCTIONS)))
        }
        (false, instructions) => instructions,
    }
}

fn scope_of_instructions(conversation: &[Message]) -> Option<String> {
    let instructions = conversation.iter().filter(|message| message.role == Role::System);
    let texts: Vec<&str> = instructions.map(|message| message.content.trim()).filter(|text| !text.is_empty()).collect();
    let digest = (!texts.is_empty()).then(|| Sha256::digest(texts.join("\n")))?;
    Some(digest[..SCOPE_BYTES].iter().fold("system:".to_owned(), |scope, byte| format!("{scope}{byte:02x}")))
}

/// The search text of a tool call, or the error in the call.
pub(crate) fn search_of(call: &ToolCall) -> Result<&str, String> {
    if call.name != TOOL {
        return Err(format!("There is no tool {:?}, only {TOOL:?}.", call.name));
    }
    let search = call.arguments["query"].as_str().map(str::trim).filter(|search| !search.is_empty());
    search.ok_or_else(|| format!("{TOOL} needs a text {:?}.", "query"))
}
