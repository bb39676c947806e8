//! Layers with a state instead of a cache: causal convolutions over time, and matrices that every token decays and
//! adds to.
//!
//! A matrix M (key × value) of a head becomes decay · M, then M + k ⊗ d, and the head's output is Mᵀq. Mamba-2 adds
//! d = strength · v (<https://arxiv.org/abs/2405.21060>); a gated delta net adds only the part that M does not predict
//! yet: d = strength · (v − Mᵀk) (<https://arxiv.org/abs/2412.06464>). The columns of a matrix are independent, and a
//! token's part of the work is the same however a prompt is cut into steps.

mod body;
#[cfg(test)]
mod tests;

/// Columns of a strip of a matrix, the last of which may have fewer. A matrix is stored strip by strip, and a strip row
/// by row, a row for every element of the key: full-width rows would compete for few places in the cache.
pub(crate) const STRIP_COLUMNS: usize = 16;

/// Maximum number of taps of a convolution.
pub(crate) const MAX_TAPS: usize = 16;

/// One row of a convolution over time, each channel by itself.
#[derive(Clone, Copy)]
pub(crate) struct Convolution<'a> {
    /// The inputs that the taps apply to, the current one last; `None` before the beginning of the text.
    pub(crate) inputs: &'a [Option<&'a [f32]>],
    /// A row of channels for every tap.
    pub(crate) taps: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the result goes through x · sigmoid(x).
    pub(crate) has_silu: bool,
}

/// A part of the rows of a buffer.
#[derive(Clone, Copy)]
pub(crate) struct RowsAt<P> {
    /// Pointer to the first row.
    pub(crate) pointer: P,
    /// Floats from one row to the next.
    pub(crate) stride: usize,
}

/// The work of some neighbouring tokens on one head's matrix.
///
/// A kernel reads `key_dim` floats of every row of keys and queries, `value_dim` of values, one of decays and
/// strengths, and writes `value_dim` of `out`. The code that builds a `HeadRun` must guarantee that all of them exist,
/// that no one writes the inputs, and that no one else accesses the outputs.
#[derive(Clone, Copy)]
pub(crate) struct HeadRun {
    pub(crate) keys: RowsAt<*const f32>,
    pub(crate) queries: RowsAt<*const f32>,
    pub(crate) values: RowsAt<*const f32>,
    pub(crate) decays: RowsAt<*const f32>,
    pub(crate) strengths: RowsAt<*const f32>,
    pub(crate) out: RowsAt<*mut f32>,
    pub(crate) n_tokens: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    /// Whether only the part that the matrix does not predict yet is added.
    pub(crate) is_delta: bool,
}

/// The functions for one instruction set.
pub(crate) struct RecurrenceKernels {
    convolve: unsafe fn(&Convolution<'_>, &mut [f32]),
    advance: unsafe fn(&HeadRun, *const f32, *mut f32),
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

    /// Advances a head's matrix by some tokens, and computes the head's output for each.
    ///
    /// # Safety
    /// The requirements of [`HeadRun`] hold. `before` is valid for reads and `after` for writes of
    /// `key_dim · value_dim` floats, in strips of [`STRIP_COLUMNS`]. They are the same memory or do not overlap, and no
    /// one else accesses them meanwhile.
    pub(crate) unsafe fn advance(&self, run: &HeadRun, before: *const f32, after: *mut f32) {
        // SAFETY: the table is for an instruction set that the processor has; the rest is the caller's promise.
        unsafe { (self.advance)(run, before, after) }
    }
}

/// Compiles the bodies for one instruction set, with the given number of column registers at a time.
macro_rules! table {
    ($name:ident, $vector:ty, $registers:literal $(, $features:literal)?) => {
        pub(crate) mod $name {
            use super::{Convolution, HeadRun, RecurrenceKernels, body};

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
            unsafe fn advance(run: &HeadRun, before: *const f32, after: *mut f32) {
                // SAFETY: the caller's promise.
                unsafe { body::advance::<$vector, $registers>(run, before, after) }
            }
        }
    };
}

table!(portable, wide::f32x4, 2);
#[cfg(target_arch = "x86_64")]
table!(avx2, std::arch::x86_64::__m256, 2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
table!(avx512, std::arch::x86_64::__m512, 1, "avx512f");
#[cfg(target_arch = "aarch64")]
table!(neon, std::arch::aarch64::float32x4_t, 4, "neon");
