//! Plain data that every part of hone shares: chat messages, generation requests and their events, where a model's bytes
//! lie, and the traits through which the parts see each other.
//!
//! Nothing here computes. A crate that wants to generate text depends on [`Generate`] and on nothing below it, so that
//! it runs in tests against a scripted model as well as against the engine.

mod causes;
mod chat;
mod generate;
mod model;

pub use causes::with_causes;
pub use chat::{Message, Role};
pub use generate::{
    Completion, Constraint, FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent,
    GenerationSender, InvalidSampling, LogprobOptions, Prompt, SamplingOptions, Timings, TokenLogprob, TokenLogprobs,
};
pub use model::{LocateError, LocateModel, ModelFile};
