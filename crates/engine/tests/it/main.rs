//! Tests of the engine from outside: on small made-up models, on the built-in one, and on files that are broken. One
//! binary, because each one that links the engine takes long to build.

#![allow(clippy::unwrap_used)]

mod arch2026;
mod batching;
mod embedder;
mod engine;
mod family_templates;
mod heads;
mod native;
mod opening;
mod reasoning;
mod sharing;
mod smollm2;
mod speculation;
mod support;
mod synth;
mod template;
mod tokenizer;
