//! Kernels for the vector instructions of x86-64.

mod avx2;
mod avx512;

use crate::arch::{InstructionSet, Kernels};

/// The kernels of one instruction set, if this machine has it.
pub(super) fn kernels(instruction_set: InstructionSet) -> Option<&'static Kernels> {
    match instruction_set {
        InstructionSet::Avx2 if has_avx2() => Some(&avx2::KERNELS),
        InstructionSet::AvxVnni if has_avx2() && is_x86_feature_detected!("avxvnni") => Some(&avx2::VNNI_KERNELS),
        InstructionSet::Avx512 if has_avx2() && has_avx512() => Some(&avx512::KERNELS),
        _ => None,
    }
}

fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Whether the machine has the AVX-512 features that these kernels use.
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}
