//! Operations on single rows: norms, sums, gates, rotations, caps.
//!
//! A token's rows take a few kilobytes and stay in the first-level cache from one function to the next, so the
//! functions are small and their callers combine them. There is a table of them for each instruction set; they take
//! slices, whose lengths are checked here, once per row.

pub(crate) mod body;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod vector;

use half::f16;

/// The function of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// The tanh approximation of GELU, x/2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))):
    /// <https://arxiv.org/abs/1606.08415>.
    GeluTanh,
    /// g · sigmoid(1.702 · g) with g = min(x, 7), and in place of the factor u that it gates, 1 + u with u between −7
    /// and 7: the SwiGLU of gpt-oss (<https://github.com/openai/gpt-oss>, `swiglu`).
    ClampedSilu,
}

/// The functions for one instruction set.
pub(crate) struct Elementwise {
    rms_norm: unsafe fn(*mut f32, *const f32, usize, f32),
    add: unsafe fn(*mut f32, *const f32, usize),
    scale: unsafe fn(*mut f32, usize, f32),
    gate_silu: unsafe fn(*mut f32, *const f32, usize),
    gate_gelu: unsafe fn(*mut f32, *const f32, usize),
    gate_clamped: unsafe fn(*mut f32, *const f32, usize),
    gate_sigmoid: unsafe fn(*mut f32, *const f32, usize),
    multiply: unsafe fn(*mut f32, *const f32, usize),
    add_scaled: unsafe fn(*mut f32, *const f32, usize, f32),
    soft_cap: unsafe fn(*mut f32, usize, f32),
    rotate_halves: unsafe fn(*mut f32, *const f32, *const f32, usize),
    rotate_neighbours: unsafe fn(*mut f32, *const f32, *const f32, usize),
    to_f16: unsafe fn(*mut f16, *const f32, usize),
}

impl Elementwise {
    /// values ← values / √(mean(values²) + epsilon) · weight: <https://arxiv.org/abs/1910.07467>.
    pub(crate) fn rms_norm(&self, values: &mut [f32], weight: &[f32], epsilon: f32) {
        assert_eq!(values.len(), weight.len());
        // SAFETY: the lengths are equal, and the table is for an instruction set that the processor has.
        unsafe { (self.rms_norm)(values.as_mut_ptr(), weight.as_ptr(), values.len(), epsilon) }
    }

    /// values ← values + others.
    pub(crate) fn add(&self, values: &mut [f32], others: &[f32]) {
        assert_eq!(values.len(), others.len());
        // SAFETY: as in `rms_norm`.
        unsafe { (self.add)(values.as_mut_ptr(), others.as_ptr(), values.len()) }
    }

    /// values ← values · factor.
    pub(crate) fn scale(&self, values: &mut [f32], factor: f32) {
        // SAFETY: the table is for an instruction set that the processor has.
        unsafe { (self.scale)(values.as_mut_ptr(), values.len(), factor) }
    }

    /// gate ← activation(gate) · up.
    pub(crate) fn gate(&self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len());
        let function = match activation {
            Activation::Silu => self.gate_silu,
            Activation::GeluTanh => self.gate_gelu,
            Activation::ClampedSilu => self.gate_clamped,
        };
        // SAFETY: as in `rms_norm`.
        unsafe { function(gate.as_mut_ptr(), up.as_ptr(), gate.len()) }
    }

    /// values ← values · sigmoid(gate).
    pub(crate) fn gate_sigmoid(&self, values: &mut [f32], gate: &[f32]) {
        assert_eq!(values.len(), gate.len());
        // SAFETY: as in `rms_norm`.
        unsafe { (self.gate_sigmoid)(values.as_mut_ptr(), gate.as_ptr(), values.len()) }
    }

    /// values ← values · others.
    pub(crate) fn multiply(&self, values: &mut [f32], others: &[f32]) {
        assert_eq!(values.len(), others.len());
        // SAFETY: as in `rms_norm`.
        unsafe { (self.multiply)(values.as_mut_ptr(), others.as_ptr(), values.len()) }
    }

    /// values ← values + others · factor.
    pub(crate) fn add_scaled(&self, values: &mut [f32], others: &[f32], factor: f32) {
        assert_eq!(values.len(), others.len());
        // SAFETY: as in `rms_norm`.
        unsafe { (self.add_scaled)(values.as_mut_ptr(), others.as_ptr(), values.len(), factor) }
    }

    /// values ← cap · tanh(values / cap).
    pub(crate) fn soft_cap(&self, values: &mut [f32], cap: f32) {
        // SAFETY: the table is for an instruction set that the processor has.
        unsafe { (self.soft_cap)(values.as_mut_ptr(), values.len(), cap) }
    }

    /// Rotates the pairs (i, i + n) of a head's first 2n elements, by n cosines and n sines.
    pub(crate) fn rotate_halves(&self, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
        assert!(cosines.len() == sines.len() && head.len() >= 2 * cosines.len());
        // SAFETY: the lengths are checked, and the table is for an instruction set that the processor has.
        unsafe { (self.rotate_halves)(head.as_mut_ptr(), cosines.as_ptr(), sines.as_ptr(), cosines.len()) }
    }

    /// Rotates the pairs (2i, 2i + 1) of a head's first 2n elements, by 2n cosines and 2n sines: both elements of a
    /// pair have the same cosine, and the first has the sine negated.
    pub(crate) fn rotate_neighbours(&self, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
        assert!(cosines.len() == sines.len() && head.len() >= cosines.len() && cosines.len().is_multiple_of(2));
        // SAFETY: the lengths are checked, and the table is for an instruction set that the processor has.
        unsafe { (self.rotate_neighbours)(head.as_mut_ptr(), cosines.as_ptr(), sines.as_ptr(), cosines.len()) }
    }

    /// out ← values, rounded to nearest.
    pub(crate) fn to_f16(&self, values: &[f32], out: &mut [f16]) {
        assert_eq!(values.len(), out.len());
        // SAFETY: as in `rms_norm`.
        unsafe { (self.to_f16)(out.as_mut_ptr(), values.as_ptr(), values.len()) }
    }
}

/// Compiles the bodies for one instruction set.
macro_rules! table {
    ($name:ident, $vector:ty $(, $features:literal)?) => {
        pub(crate) mod $name {
            use half::f16;

            use super::{Elementwise, body};

            pub(crate) static TABLE: Elementwise = Elementwise {
                rms_norm,
                add,
                scale,
                gate_silu,
                gate_gelu,
                gate_clamped,
                gate_sigmoid,
                multiply,
                add_scaled,
                soft_cap,
                rotate_halves,
                rotate_neighbours,
                to_f16,
            };

            table!(@ $vector, [$($features)?], rms_norm(values: *mut f32, weight: *const f32, n: usize, epsilon: f32));
            table!(@ $vector, [$($features)?], add(values: *mut f32, others: *const f32, n: usize));
            table!(@ $vector, [$($features)?], scale(values: *mut f32, n: usize, factor: f32));
            table!(@ $vector, [$($features)?], gate_silu(gate: *mut f32, up: *const f32, n: usize));
            table!(@ $vector, [$($features)?], gate_gelu(gate: *mut f32, up: *const f32, n: usize));
            table!(@ $vector, [$($features)?], gate_clamped(gate: *mut f32, up: *const f32, n: usize));
            table!(@ $vector, [$($features)?], gate_sigmoid(values: *mut f32, gate: *const f32, n: usize));
            table!(@ $vector, [$($features)?], multiply(values: *mut f32, others: *const f32, n: usize));
            table!(@ $vector, [$($features)?],
                add_scaled(values: *mut f32, others: *const f32, n: usize, factor: f32));
            table!(@ $vector, [$($features)?], soft_cap(values: *mut f32, n: usize, cap: f32));
            table!(@ $vector, [$($features)?],
                rotate_halves(head: *mut f32, cosines: *const f32, sines: *const f32, n: usize));
            table!(@ $vector, [$($features)?],
                rotate_neighbours(head: *mut f32, cosines: *const f32, sines: *const f32, n: usize));
            table!(@ $vector, [$($features)?], to_f16(out: *mut f16, values: *const f32, n: usize));
        }
    };
    (@ $vector:ty, [$($features:literal)?], $name:ident($($argument:ident: $type:ty),*)) => {
        /// # Safety
        /// As for the body of the same name; the processor must have the instruction set.
        $(#[target_feature(enable = $features)])?
        unsafe fn $name($($argument: $type),*) {
            // SAFETY: the caller's promise.
            unsafe { body::$name::<$vector>($($argument),*) }
        }
    };
}

table!(portable, wide::f32x4);
#[cfg(target_arch = "x86_64")]
table!(avx2, std::arch::x86_64::__m256, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
table!(avx512, std::arch::x86_64::__m512, "avx512f");
#[cfg(target_arch = "aarch64")]
table!(neon, std::arch::aarch64::float32x4_t, "neon");
