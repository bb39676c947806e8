//! The states of the critic agent and the actions each allows.

use hone_judging::{JudgeRun, ReviewTask};
use hone_memory::Engram;

use crate::machine::state_machine;

/// A remembered text that the critic reads.
pub(crate) struct EngramAtCritic {
    pub(crate) engram: Engram,
    pub(crate) run: JudgeRun<ReviewTask>,
}

state_machine! {
    "critic";
    rests {
        Idle = "IDLE",
        Reviewing(Box<EngramAtCritic>) = "REVIEWING",
    }
    passes {}
    actions {
        StartReview = "START_REVIEW",
        Decide = "DECIDE",
        Withdraw = "WITHDRAW",
    }
    transitions {
        Idle + StartReview => Reviewing,
        Reviewing + Decide => Idle,
        Reviewing + Withdraw => Idle,
    }
}
