//! Flags of `hone worker`, and the one that names a bus.

use std::num::NonZeroUsize;

use clap::Args;
use hone_app::config::Override;

use super::shared::{EngineFlags, JudgeFlag, add};

/// `--bus`.
#[derive(Debug, Default, Args)]
pub(crate) struct BusFlag {
    /// NATS server with JetStream through which other machines work: nats://HOST:4222
    #[arg(long, value_name = "URL")]
    pub(crate) bus: Option<String>,
}

impl BusFlag {
    pub(super) fn add_to(&self, overrides: &mut Vec<Override>) {
        add(overrides, "bus.url", "--bus", self.bus.clone());
    }
}

/// Flags of `hone worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) bus: BusFlag,
    /// Kinds of work to do: grade
    #[arg(long, value_name = "ROLES", value_delimiter = ',', default_value = "grade")]
    pub(crate) roles: Vec<String>,
    /// Pieces of work to do at a time
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) slots: NonZeroUsize,
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
