//! Layers with a state instead of a cache: causal convolutions over time, and matrices that every token decays and
//! adds to.
//!
//! A matrix M (key × value) of a head becomes decay · M, then M + k ⊗ d, and the head's output is Mᵀq. Mamba-2 adds
//! d = strength · v (<https://arxiv.org/abs/2405.21060>); a gated delta net only what M does not say already:
//! d = strength · (v − Mᵀk) (<https://arxiv.org/abs/2412.06464>). The columns of a matrix are independent, and a token's
//! part of the work is the same however a prompt is cut into steps.

mod body;
#[cfg(test)]
mod tests;

/// The most taps of a convolution.
pub(crate) const MAX_TAPS: usize = 16;

/// One row of a convolution over time, each channel by itself.
#[derive(Clone, Copy)]
pub(crate) struct Convolution<'a> {
    /// The inputs that the taps meet, the present one last; `None` before the beginning of the text.
    pub(crate) inputs: &'a [Option<&'a [f32]>],
    /// A row of channels for every tap.
    pub(crate) taps: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the result goes through x · sigmoid(x).
    pub(crate) has_silu: bool,
}

/// One token's work on one head's matrix.
#[derive(Clone, Copy)]
pub(crate) struct HeadStep<'a> {
    pub(crate) key: &'a [f32],
    pub(crate) query: &'a [f32],
    pub(crate) value: &'a [f32],
    pub(crate) decay: f32,
    pub(crate) strength: f32,
    /// Whether only what the matrix does not say already is added.
    pub(crate) is_delta: bool,
}

/// The functions for one instruction set.
pub(crate) struct RecurrenceKernels {
    convolve: unsafe fn(&Convolution<'_>, &mut [f32]),
    advance: unsafe fn(&HeadStep<'_>, *const f32, *mut f32, &mut [f32]),
}

impl RecurrenceKernels {
    /// Computes one row of a convolution.
    pub(crate) fn convolve(&self, convolution: &Convolution<'_>, out: &mut [f32]) {
        let n_taps = convolution.inputs.len();
        assert!((1..=MAX_TAPS).contains(&n_taps) && convolution.taps.len() == n_taps * out.len());
        assert!(convolution.inputs.iter().flatten().all(|input| input.len() == out.len()));
        assert!(convolution.bias.is_none_or(|bias| bias.len() == out.len()));
        // SAFETY: the lengths are checked, and the table is for an instruction set that the processor has.
        unsafe { (self.convolve)(convolution, out) }
    }

    /// Computes a head's matrix after a token from the one before it, and the head's output.
    ///
    /// # Safety
    /// `before` is valid for reads and `after` for writes of `key.len() · value.len()` floats, a row for every element
    /// of the key. They are the same memory or do not overlap, and no one else accesses them meanwhile.
    pub(crate) unsafe fn advance(&self, step: &HeadStep<'_>, before: *const f32, after: *mut f32, out: &mut [f32]) {
        assert!(step.query.len() == step.key.len() && step.value.len() == out.len());
        // SAFETY: the lengths are checked, the table is for an instruction set that the processor has; the rest is the
        // caller's promise.
        unsafe { (self.advance)(step, before, after, out) }
    }
}

/// Compiles the bodies for one instruction set.
macro_rules! table {
    ($name:ident, $vector:ty $(, $features:literal)?) => {
        pub(crate) mod $name {
            use super::{Convolution, HeadStep, RecurrenceKernels, body};

            pub(crate) static TABLE: RecurrenceKernels = RecurrenceKernels { convolve, advance };

            /// # Safety
            /// The lengths are those that [`RecurrenceKernels::convolve`] checks, and the processor has the instruction
            /// set.
            $(#[target_feature(enable = $features)])?
            unsafe fn convolve(convolution: &Convolution<'_>, out: &mut [f32]) {
                // SAFETY: the caller's promise.
                unsafe { body::convolve::<$vector>(convolution, out) }
            }

            /// # Safety
            /// As [`RecurrenceKernels::advance`].
            $(#[target_feature(enable = $features)])?
            unsafe fn advance(step: &HeadStep<'_>, before: *const f32, after: *mut f32, out: &mut [f32]) {
                // SAFETY: the caller's promise.
                unsafe { body::advance::<$vector>(step, before, after, out) }
            }
        }
    };
}

table!(portable, f32);
#[cfg(target_arch = "x86_64")]
table!(avx2, std::arch::x86_64::__m256, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
table!(avx512, std::arch::x86_64::__m512, "avx512f");
