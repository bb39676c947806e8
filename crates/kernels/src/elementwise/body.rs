//! The functions over rows, written once for all register widths.

use std::f32::consts::{FRAC_2_SQRT_PI, SQRT_2};

use half::f16;

use super::vector::Vector;

/// One step of a function over a row.
trait RowStep {
    /// # Safety
    /// A vector's worth of elements from `index` on exist and are accessed by no one else; the processor has the
    /// vector's instruction set.
    unsafe fn at<V: Vector>(&self, index: usize);
}

/// Processes `n` elements, register by register, and the rest one by one.
#[inline(always)]
unsafe fn each<V: Vector>(n: usize, step: &impl RowStep) {
    let whole = n - n % V::LANES;
    for index in (0..whole).step_by(V::LANES) {
        // SAFETY: below n.
        unsafe { step.at::<V>(index) }
    }
    for index in whole..n {
        // SAFETY: below n.
        unsafe { step.at::<f32>(index) }
    }
}

/// # Safety
/// `values` and `weight` have `n` elements.
#[inline(always)]
pub(super) unsafe fn rms_norm<V: Vector>(values: *mut f32, weight: *const f32, n: usize, epsilon: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let mean = sum_of_squares::<V>(values, n) / n as f32;
        each::<V>(n, &Norm { values, weight, factor: 1.0 / (mean + epsilon).sqrt() });
    }
}

/// Accumulates four sums in parallel, because each addition depends on the one before it.
#[inline(always)]
unsafe fn sum_of_squares<V: Vector>(values: *const f32, n: usize) -> f32 {
    // SAFETY: every index is below n.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        let mut index = 0;
        while index + 4 * V::LANES <= n {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let x = V::load(values.add(index + lane * V::LANES));
                *sum = x.multiply_add(x, *sum);
            }
            index += 4 * V::LANES;
        }
        let mut total = sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum();
        while index < n {
            let x = *values.add(index);
            total += x * x;
            index += 1;
        }
        total
    }
}

struct Norm {
    values: *mut f32,
    weight: *const f32,
    factor: f32,
}

impl RowStep for Norm {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let scaled = V::load(self.values.add(index)).multiply(V::splat(self.factor));
            scaled.multiply(V::load(self.weight.add(index))).store(self.values.add(index));
        }
    }
}

/// # Safety
/// `values` and `others` have `n` elements.
#[inline(always)]
pub(super) unsafe fn add<V: Vector>(values: *mut f32, others: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &Add { values, others }) }
}

struct Add {
    values: *mut f32,
    others: *const f32,
}

impl RowStep for Add {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let sum = V::load(self.values.add(index)).add(V::load(self.others.add(index)));
            sum.store(self.values.add(index));
        }
    }
}

/// # Safety
/// `values` has `n` elements.
#[inline(always)]
pub(super) unsafe fn scale<V: Vector>(values: *mut f32, n: usize, factor: f32) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &Scale { values, factor }) }
}

struct Scale {
    values: *mut f32,
    factor: f32,
}

impl RowStep for Scale {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.values.add(index)).multiply(V::splat(self.factor)).store(self.values.add(index)) }
    }
}

/// # Safety
/// `gate` and `up` have `n` elements.
#[inline(always)]
pub(super) unsafe fn gate_silu<V: Vector>(gate: *mut f32, up: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &GateSilu { gate, up }) }
}

struct GateSilu {
    gate: *mut f32,
    up: *const f32,
}

impl RowStep for GateSilu {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = V::load(self.gate.add(index));
            let gated = times_sigmoid(x, x).multiply(V::load(self.up.add(index)));
            gated.store(self.gate.add(index));
        }
    }
}

/// # Safety
/// `gate` and `up` have `n` elements.
#[inline(always)]
pub(super) unsafe fn gate_gelu<V: Vector>(gate: *mut f32, up: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &GateGelu { gate, up }) }
}

struct GateGelu {
    gate: *mut f32,
    up: *const f32,
}

impl RowStep for GateGelu {
    /// (1 + tanh(u)) / 2 is sigmoid(2u).
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = V::load(self.gate.add(index));
            let cubic = x.multiply(x).multiply_add(V::splat(0.044_715), V::splat(1.0)).multiply(x);
            let twice_root_of_2_over_pi = V::splat(FRAC_2_SQRT_PI * SQRT_2);
            let gated = times_sigmoid(x, cubic.multiply(twice_root_of_2_over_pi)).multiply(V::load(self.up.add(index)));
            gated.store(self.gate.add(index));
        }
    }
}

/// # Safety
/// `gate` and `up` have `n` elements.
#[inline(always)]
pub(super) unsafe fn gate_clamped<V: Vector>(gate: *mut f32, up: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &GateClamped { gate, up }) }
}

struct GateClamped {
    gate: *mut f32,
    up: *const f32,
}

impl RowStep for GateClamped {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        const LIMIT: f32 = 7.0;
        // SAFETY: the caller's promise.
        unsafe {
            let x = minimum(V::load(self.gate.add(index)), V::splat(LIMIT));
            let up = minimum(V::load(self.up.add(index)), V::splat(LIMIT)).maximum(V::splat(-LIMIT));
            let gated = times_sigmoid(x, x.multiply(V::splat(1.702))).multiply(up.add(V::splat(1.0)));
            gated.store(self.gate.add(index));
        }
    }
}

#[inline(always)]
unsafe fn minimum<V: Vector>(x: V, y: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        zero.subtract(zero.subtract(x).maximum(zero.subtract(y)))
    }
}

/// # Safety
/// `values` and `gate` have `n` elements.
#[inline(always)]
pub(super) unsafe fn gate_sigmoid<V: Vector>(values: *mut f32, gate: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &GateSigmoid { values, gate }) }
}

struct GateSigmoid {
    values: *mut f32,
    gate: *const f32,
}

impl RowStep for GateSigmoid {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let gated = times_sigmoid(V::load(self.values.add(index)), V::load(self.gate.add(index)));
            gated.store(self.values.add(index));
        }
    }
}

/// # Safety
/// `values` and `others` have `n` elements.
#[inline(always)]
pub(super) unsafe fn multiply<V: Vector>(values: *mut f32, others: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &Multiply { values, others }) }
}

struct Multiply {
    values: *mut f32,
    others: *const f32,
}

impl RowStep for Multiply {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let product = V::load(self.values.add(index)).multiply(V::load(self.others.add(index)));
            product.store(self.values.add(index));
        }
    }
}

/// # Safety
/// `values` and `others` have `n` elements.
#[inline(always)]
pub(super) unsafe fn add_scaled<V: Vector>(values: *mut f32, others: *const f32, n: usize, factor: f32) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &AddScaled { values, others, factor }) }
}

struct AddScaled {
    values: *mut f32,
    others: *const f32,
    factor: f32,
}

impl RowStep for AddScaled {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let others = V::load(self.others.add(index));
            let sum = others.multiply_add(V::splat(self.factor), V::load(self.values.add(index)));
            sum.store(self.values.add(index));
        }
    }
}

/// x · sigmoid(y) = x / (1 + e⁻ʸ).
#[inline(always)]
unsafe fn times_sigmoid<V: Vector>(x: V, y: V) -> V {
    // SAFETY: the caller's promise.
    unsafe { x.divide(V::splat(0.0).subtract(y).exp().add(V::splat(1.0))) }
}

/// # Safety
/// `values` has `n` elements.
#[inline(always)]
pub(super) unsafe fn soft_cap<V: Vector>(values: *mut f32, n: usize, cap: f32) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &SoftCap { values, cap }) }
}

struct SoftCap {
    values: *mut f32,
    cap: f32,
}

impl RowStep for SoftCap {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe { capped(V::load(self.values.add(index)), self.cap).store(self.values.add(index)) }
    }
}

/// cap · tanh(x / cap), with tanh(u) = 1 - 2 / (e²ᵘ + 1).
///
/// # Safety
/// The processor has the vector's instruction set.
#[inline(always)]
pub(crate) unsafe fn capped<V: Vector>(x: V, cap: f32) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let exponential = x.multiply(V::splat(2.0 / cap)).exp();
        V::splat(-2.0 * cap).divide(exponential.add(V::splat(1.0))).add(V::splat(cap))
    }
}

/// # Safety
/// `head` has 2 · `n_pairs` elements, `cosines` and `sines` have `n_pairs`.
#[inline(always)]
pub(super) unsafe fn rotate_halves<V: Vector>(head: *mut f32, cosines: *const f32, sines: *const f32, n_pairs: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n_pairs, &RotateHalves { first: head, second: head.add(n_pairs), cosines, sines }) }
}

struct RotateHalves {
    first: *mut f32,
    second: *mut f32,
    cosines: *const f32,
    sines: *const f32,
}

impl RowStep for RotateHalves {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let (x, y) = (V::load(self.first.add(index)), V::load(self.second.add(index)));
            let (cosine, sine) = (V::load(self.cosines.add(index)), V::load(self.sines.add(index)));
            x.multiply(cosine).subtract(y.multiply(sine)).store(self.first.add(index));
            x.multiply(sine).add(y.multiply(cosine)).store(self.second.add(index));
        }
    }
}

/// # Safety
/// `head`, `cosines` and `sines` have `n` elements, an even number.
#[inline(always)]
pub(super) unsafe fn rotate_neighbours<V: Vector>(head: *mut f32, cosines: *const f32, sines: *const f32, n: usize) {
    let whole = n - n % V::LANES;
    // SAFETY: every index is below n.
    unsafe {
        for index in (0..whole).step_by(V::LANES) {
            let x = V::load(head.add(index));
            let turned = x.swap_neighbours().multiply(V::load(sines.add(index)));
            x.multiply(V::load(cosines.add(index))).add(turned).store(head.add(index));
        }
        for index in (whole..n).step_by(2) {
            let (x, y) = (*head.add(index), *head.add(index + 1));
            *head.add(index) = x * *cosines.add(index) + y * *sines.add(index);
            *head.add(index + 1) = y * *cosines.add(index + 1) + x * *sines.add(index + 1);
        }
    }
}

/// # Safety
/// `out` and `values` have `n` elements.
#[inline(always)]
pub(super) unsafe fn to_f16<V: Vector>(out: *mut f16, values: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<V>(n, &ToF16 { out, values }) }
}

struct ToF16 {
    out: *mut f16,
    values: *const f32,
}

impl RowStep for ToF16 {
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, index: usize) {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.values.add(index)).store_f16(self.out.add(index)) }
    }
}
