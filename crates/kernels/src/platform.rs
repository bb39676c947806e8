//! Which instructions the kernels use: determined once per process.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::arch;

pub use crate::arch::{InstructionSet, Kernels};

static CHOSEN: AtomicPtr<Kernels> = AtomicPtr::new(ptr::null_mut());

/// The kernels that this process uses: by default, for the machine's widest instruction set.
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

/// Makes the whole process use these kernels, from its next step on.
pub fn choose(kernels: &'static Kernels) {
    CHOSEN.store(ptr::from_ref(kernels).cast_mut(), Ordering::Release);
}
