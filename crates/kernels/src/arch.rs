//! The kernels: one table of functions per instruction set, each in a module of its own.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fmt;
use std::str::FromStr;

use crate::TensorType;
use crate::attention::AttentionKernels;
use crate::elementwise::Elementwise;
use crate::operands::{Product, QuantizedRow};
use crate::recurrence::RecurrenceKernels;

/// Instruction sets that have kernels, from the plainest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstructionSet {
    /// Plain Rust, on every architecture.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with the byte products of AVX-VNNI.
    AvxVnni,
    /// AVX-512 (F, BW, DQ, VL) with VNNI.
    Avx512,
    /// 64-bit ARM with NEON and the byte products of `dotprod`.
    NeonDotprod,
    /// `NeonDotprod` with the byte matrices of `i8mm`.
    NeonI8mm,
}

impl InstructionSet {
    /// Every instruction set, whether this machine has it or not.
    pub const ALL: [InstructionSet; 6] = [
        InstructionSet::Portable,
        InstructionSet::Avx2,
        InstructionSet::AvxVnni,
        InstructionSet::Avx512,
        InstructionSet::NeonDotprod,
        InstructionSet::NeonI8mm,
    ];

    /// The display name.
    pub const fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Avx2 => "AVX2",
            InstructionSet::AvxVnni => "AVX-VNNI",
            InstructionSet::Avx512 => "AVX-512 VNNI",
            InstructionSet::NeonDotprod => "NEON dotprod",
            InstructionSet::NeonI8mm => "NEON i8mm",
        }
    }
}

impl FromStr for InstructionSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "portable" => Ok(InstructionSet::Portable),
            "avx2" => Ok(InstructionSet::Avx2),
            "avx_vnni" => Ok(InstructionSet::AvxVnni),
            "avx512" => Ok(InstructionSet::Avx512),
            "neon_dotprod" => Ok(InstructionSet::NeonDotprod),
            "neon_i8mm" => Ok(InstructionSet::NeonI8mm),
            _ => Err(format!(
                "unknown instruction_set {text:?}: expected auto, portable, avx2, avx_vnni, avx512, neon_dotprod or neon_i8mm"
            )),
        }
    }
}

/// All functions of one instruction set. A processor family has a table for each of its instruction sets in `arch`, and
/// nothing else distinguishes them. Tables are handed out only if the machine has the instruction set.
pub struct Kernels {
    pub(crate) instruction_set: InstructionSet,
    /// Quantizes a row.
    ///
    /// Safety: the pointers are valid for writes of all blocks of the row, and the machine has the instruction set.
    pub(crate) quantize_row: unsafe fn(&[f32], &QuantizedRow),
    /// The products, by weight type.
    ///
    /// Safety: see [`Product`]; the machine has the instruction set.
    pub(crate) products: [unsafe fn(&Product); TensorType::ALL.len()],
    /// Operations on single rows.
    pub(crate) elementwise: &'static Elementwise,
    /// Attention.
    pub(crate) attention: &'static AttentionKernels,
    /// Layers with a state.
    pub(crate) recurrence: &'static RecurrenceKernels,
}

impl Kernels {
    /// The kernels of one instruction set, if this machine has it.
    pub fn of(instruction_set: InstructionSet) -> Option<&'static Kernels> {
        kernels(instruction_set)
    }

    /// The instruction set that these kernels use.
    pub fn instruction_set(&self) -> InstructionSet {
        self.instruction_set
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Kernels({})", self.instruction_set.name())
    }
}

/// The kernels of one instruction set, if this machine has it.
fn kernels(instruction_set: InstructionSet) -> Option<&'static Kernels> {
    if instruction_set == InstructionSet::Portable {
        return Some(&portable::KERNELS);
    }
    #[cfg(target_arch = "x86_64")]
    return x86_64::kernels(instruction_set);
    #[cfg(target_arch = "aarch64")]
    return aarch64::kernels(instruction_set);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}
