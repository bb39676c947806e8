//! The server over real agents and a scripted model: its responses, its access rules, and its behaviour under overload.

#![allow(clippy::unwrap_used)]

mod anthropic;
mod bounds;
mod branches;
mod comparing;
mod conformance;
mod crowd;
mod decisions;
mod embeddings;
mod errors;
mod guard;
mod hone;
mod isolation;
mod judging;
mod load;
mod mcp;
mod metrics;
mod models;
mod ollama;
mod openai;
mod page;
mod pulls;
mod rerank;
mod responses;
mod shelf;
mod stage;
mod staged;
