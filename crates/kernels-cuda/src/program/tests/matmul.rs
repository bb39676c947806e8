//! The product of many rows, which cards without cuBLAS use, launched by itself.

use bytemuck::{bytes_of, cast_slice, cast_slice_mut};
use half::bf16;
use half::slice::HalfFloatSliceExt;

use super::Random;
use crate::arguments::MatmulArguments;
use crate::device::{Buffer, SharedDevice};
use crate::shapes;

struct Product {
    n_rows: usize,
    n_out: usize,
    n_columns: usize,
    weights_stride: usize,
    input_stride: usize,
    to_stride: usize,
    add: bool,
}

impl Product {
    /// Runs the kernel.
    fn launch(&self, weights: &[bf16], input: &[bf16], to: &mut [f32]) {
        let device = SharedDevice::host();
        let upload = |values: &[bf16]| Buffer::from_bytes(&device, cast_slice(values.reinterpret_cast())).unwrap();
        let [weights, input] = [weights, input].map(upload);
        let result = Buffer::from_bytes(&device, cast_slice(to)).unwrap();
        let arguments = MatmulArguments {
            weights: weights.address(),
            input: input.address(),
            to: result.address(),
            weights_stride: self.weights_stride as u64,
            input_stride: self.input_stride as u64,
            to_stride: self.to_stride as u64,
            n_rows: self.n_rows as u32,
            n_out: self.n_out as u32,
            n_columns: self.n_columns as u32,
            add: u32::from(self.add),
        };
        let kernel = device.0.kernel("matmul_bf16").unwrap();
        // SAFETY: the buffers are as long as the strides require.
        unsafe { device.0.launch(kernel, shapes::matmul(self.n_rows, self.n_out), bytes_of(&arguments)).unwrap() };
        result.download(0, cast_slice_mut(to)).unwrap();
    }

    /// An element, and the sum of the absolute values of its terms.
    fn element(&self, weights: &[bf16], input: &[bf16], row: usize, out: usize) -> (f64, f64) {
        let weights = &weights[out * self.weights_stride..][..self.n_columns];
        let input = &input[row * self.input_stride..][..self.n_columns];
        let products = std::iter::zip(weights, input).map(|(w, x)| w.to_f64() * x.to_f64());
        products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()))
    }

    fn check(&self, random: &mut Random) {
        let mut halves = |n: usize| random.floats(n, 1.0).into_iter().map(bf16::from_f32).collect::<Vec<bf16>>();
        let weights = halves(self.n_out * self.weights_stride);
        let input = halves(self.n_rows * self.input_stride);
        let before = random.floats(self.n_rows * self.to_stride, 1.0);
        let mut after = before.clone();
        self.launch(&weights, &input, &mut after);
        for (index, (before, after)) in std::iter::zip(&before, &after).enumerate() {
            let (row, out) = (index / self.to_stride, index % self.to_stride);
            if out >= self.n_out {
                assert_eq!(before, after, "beside the result, nothing changes");
                continue;
            }
            let (sum, size) = self.element(&weights, &input, row, out);
            let expected = if self.add { sum + f64::from(*before) } else { sum };
            // Only single-precision sums are rounded.
            let is_close = (f64::from(*after) - expected).abs() <= 1e-5 * (size + 1.0);
            assert!(is_close, "row {row}, element {out}: {after} and not {expected}");
        }
    }
}

#[test]
fn the_product_of_many_rows_is_that_of_a_plain_loop() {
    let mut random = Random::new(3);
    for _ in 0..12 {
        let n_columns = 8 * random.between(1, 40);
        let n_out = random.between(1, 280);
        let product = Product {
            n_rows: random.between(1, 150),
            n_out,
            n_columns,
            weights_stride: n_columns + 8 * random.below(3),
            input_stride: n_columns + 8 * random.below(3),
            to_stride: n_out + random.below(5),
            add: random.is_lucky(),
        };
        product.check(&mut random);
    }
}
