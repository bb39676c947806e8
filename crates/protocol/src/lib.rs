//! Plain data that all parts of hone share: chat messages, generation requests and their events, locations of model
//! files, and the traits through which the parts use each other.
//!
//! This crate computes nothing. A crate that wants to generate text depends on [`Generate`] and on nothing below it, so
//! that it runs in tests against a scripted model as well as against the engine.

mod abridged;
mod branches;
mod call_format;
mod call_schema;
mod causes;
mod chat;
pub mod configured;
mod critique;
mod decision;
mod embed;
mod envelope;
mod evaluation;
mod generate;
mod hexadecimal;
mod ids;
mod model;
pub mod prospect;
mod reasoning;
mod remark;
mod rerank;
mod sampling;
#[cfg(feature = "scripted")]
pub mod scripted;
mod support;
mod tool_rounds;
mod verdict;
mod work_result;

pub use branches::{BranchPlace, Branches, Forks, WrongFork};
pub use call_format::{ARGUMENTS_MARK, CALL_ID_MARK, CallBody, CallFormat, TEXT_MARK};
pub use call_schema::call_schema;
pub use causes::with_causes;
pub use chat::{Message, Role, Tool, ToolCall};
pub use critique::{
    BlockRuling, ContentType, CriticDecision, CriticMode, CriticOverride, CritiqueLevel, CritiqueResult, VettingState,
};
pub use decision::{
    Decision, DecisionForm, DecisionKind, DecisionOption, DecisionQuestion, DecisionRequest, DecisionTuning,
    DecisionTunings, DecisionType, Decisions,
};
pub use embed::{Embed, EmbedError, TextLength};
pub use envelope::{
    AnswerOptions, AnswersToCompare, Chunk, ComparedAnswer, Comparison, Envelope, Feedback, GradedAnswer, Nothing,
    Payload, Query, Rating, Recall, RecallMode, RecalledEngram, Response, Reward, SecondAnswer, Stored, Subject,
    UnknownSubject,
};
pub use evaluation::{
    Category, CriterionResult, CriticScore, EvaluationResult, EvaluationStatus, GateAction, GateDecision, Metrics,
    TestCounts, WorkDecided, WorkEvaluated, WorkStep,
};
pub use generate::{
    Completion, Constraint, Effort, FinishReason, Generate, GenerateError, GenerateRequest, Generation,
    GenerationEvent, GenerationSender, Lane, LogprobOptions, Prompt, ThinkingOptions, Timings, TokenLogprob,
    TokenLogprobs,
};
pub use hexadecimal::hexadecimal;
pub use ids::{EnvelopeId, HolderId, InvalidRespondent, OwnerId, QueryId, RespondentId, SessionId, TaskId, Timestamp};
pub use model::{LocateError, LocateModel, ModelFile, PartError, PartName};
pub use prospect::Prospect;
pub use reasoning::{MessageMarks, ReasoningTags};
pub use remark::{AnswerTrait, Remark, remarks_in_words};
pub use rerank::{Relevance, Rerank, RerankError};
pub use sampling::{DryOptions, DynamicTemperature, InvalidSampling, MirostatOptions, SamplingOptions, XtcOptions};
pub use support::Support;
pub use tool_rounds::{ToolLimits, ToolRounds};
pub use verdict::{Grade, Judging, JudgingMethod, Juror, Likely, Preference, Suspicion, SuspicionKind};
pub use work_result::WorkResult;
