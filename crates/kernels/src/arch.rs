//! The kernels, an instruction set per module.

pub(crate) mod portable;

use crate::platform::{InstructionSet, Kernels};

/// The kernels of one instruction set, where this machine has it.
pub(crate) fn kernels(instruction_set: InstructionSet) -> Option<&'static Kernels> {
    match instruction_set {
        InstructionSet::Portable => Some(&portable::KERNELS),
        InstructionSet::Avx2 | InstructionSet::AvxVnni | InstructionSet::Avx512 => None,
    }
}
