//! The kernels, an instruction set per module.

pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::platform::{InstructionSet, Kernels};

/// The kernels of one instruction set, where this machine has it.
pub(crate) fn kernels(instruction_set: InstructionSet) -> Option<&'static Kernels> {
    if instruction_set == InstructionSet::Portable {
        return Some(&portable::KERNELS);
    }
    #[cfg(target_arch = "x86_64")]
    return x86_64::kernels(instruction_set);
    #[cfg(not(target_arch = "x86_64"))]
    None
}
