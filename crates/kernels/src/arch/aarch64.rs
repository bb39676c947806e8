//! Kernels for the vector instructions of 64-bit ARM.

mod neon;

use std::arch::is_aarch64_feature_detected;

use crate::arch::{InstructionSet, Kernels};

/// The kernels of one instruction set, if this machine has it.
pub(super) fn kernels(instruction_set: InstructionSet) -> Option<&'static Kernels> {
    match instruction_set {
        InstructionSet::NeonDotprod if has_dotprod() => Some(&neon::KERNELS),
        InstructionSet::NeonI8mm if has_dotprod() && is_aarch64_feature_detected!("i8mm") => Some(&neon::I8MM_KERNELS),
        _ => None,
    }
}

fn has_dotprod() -> bool {
    is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod")
}
