//! Which instructions the kernels use: found out once per process, one table of functions per instruction set.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::{fmt, ptr};

use crate::WeightType;
use crate::activations::QuantizedRow;
use crate::arch;
use crate::attention::AttentionKernels;
use crate::elementwise::Elementwise;
use crate::product::Product;

/// Instruction sets that there are kernels for, from the plainest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstructionSet {
    /// Plain Rust, on every architecture.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with the products of bytes of AVX-VNNI.
    AvxVnni,
    /// AVX-512 (F, BW, DQ, VL) with VNNI.
    Avx512,
}

impl InstructionSet {
    /// Every instruction set, whether this machine has it or not.
    pub const ALL: [InstructionSet; 4] =
        [InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::AvxVnni, InstructionSet::Avx512];

    /// The name to show.
    pub const fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Avx2 => "AVX2",
            InstructionSet::AvxVnni => "AVX-VNNI",
            InstructionSet::Avx512 => "AVX-512 VNNI",
        }
    }
}

/// All functions of one instruction set: a processor family has a table for each of its instruction sets in `arch`,
/// and nothing else asks which one it is. Tables are handed out only where the machine has the instruction set.
pub struct Kernels {
    pub(crate) instruction_set: InstructionSet,
    /// Quantizes a row.
    ///
    /// Safety: the pointers are valid for writes of all blocks of the row, and the machine has the instruction set.
    pub(crate) quantize_row: unsafe fn(&[f32], &QuantizedRow),
    /// The products, by weight type.
    ///
    /// Safety: see [`Product`]; the machine has the instruction set.
    pub(crate) products: [unsafe fn(&Product); WeightType::ALL.len()],
    /// What is done to a row at a time.
    pub(crate) elementwise: &'static Elementwise,
    /// Attention.
    pub(crate) attention: &'static AttentionKernels,
}

impl Kernels {
    /// The kernels of one instruction set, where this machine has it.
    pub fn of(instruction_set: InstructionSet) -> Option<&'static Kernels> {
        arch::kernels(instruction_set)
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

static CHOSEN: AtomicPtr<Kernels> = AtomicPtr::new(ptr::null_mut());

/// The kernels that this process uses: those of the widest instruction set that the machine has.
pub fn kernels() -> &'static Kernels {
    let chosen = CHOSEN.load(Ordering::Acquire);
    // SAFETY: the pointer is null or came from a `&'static Kernels`.
    if let Some(kernels) = unsafe { chosen.cast_const().as_ref() } {
        return kernels;
    }
    let widest = InstructionSet::ALL.into_iter().rev().find_map(Kernels::of).unwrap_or(&arch::portable::KERNELS);
    choose(widest);
    widest
}

/// Makes the whole process use these kernels, so that tests and benches can compare instruction sets.
#[doc(hidden)]
pub fn choose(kernels: &'static Kernels) {
    CHOSEN.store(ptr::from_ref(kernels).cast_mut(), Ordering::Release);
}
