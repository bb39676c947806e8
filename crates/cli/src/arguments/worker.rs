//! Flags of `hone worker`, and the one that names a bus.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use hone_app::PARALLEL_SEQUENCES;
use hone_app::config::Override;
use hone_app::fleet::{EMBED, GENERATE, GRADE};

use super::shared::{EngineFlags, JudgeFlag, add};

/// `--bus`.
#[derive(Debug, Default, Args)]
pub(crate) struct BusFlag {
    /// NATS server with JetStream that connects hone to other machines: nats://HOST:4222
    #[arg(long, value_name = "URL", help_heading = None::<&str>)]
    pub(crate) bus: Option<String>,
}

impl BusFlag {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "bus.url", "--bus", self.bus.clone());
    }
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkerRole {
    /// Grade answers
    Grade,
    /// Answer questions with --model, for machines that do not have it
    Generate,
    /// Turn texts into vectors with memory.embedder, for machines that do not have it
    Embed,
}

impl WorkerRole {
    /// Its name on the bus.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            WorkerRole::Grade => GRADE,
            WorkerRole::Generate => GENERATE,
            WorkerRole::Embed => EMBED,
        }
    }
}

/// The number of sequences that the engine computes at a time.
const ENGINE_SLOTS: NonZeroUsize = NonZeroUsize::new(PARALLEL_SEQUENCES).expect("it is not 0");

/// Flags of `hone worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) bus: BusFlag,
    /// Kinds of work to do
    #[arg(long, value_name = "ROLES", value_delimiter = ',', default_value = "grade")]
    pub(crate) roles: Vec<WorkerRole>,
    /// Number of concurrent jobs of each kind
    #[arg(long, value_name = "N", default_value_t = ENGINE_SLOTS)]
    pub(crate) slots: NonZeroUsize,
    /// Address to serve this worker's Prometheus metrics on (/metrics), such as 127.0.0.1:9465
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) judge: JudgeFlag,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

impl WorkerArguments {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        self.bus.add_to(overrides);
        self.judge.add_to(overrides);
        self.engine.add_to(overrides);
    }
}
