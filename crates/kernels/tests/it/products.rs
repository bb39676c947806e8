//! Products of every weight type on every instruction set, against numbers computed in the simplest way.
//!
//! There are two references: the weights decoded directly from the GGUF blocks (which reads the formats independently),
//! and the portable kernels, which see the same quantized activations as the others and so must agree closely.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use hone_kernels::platform::{self, InstructionSet, Kernels};
use hone_kernels::pool::Pool;
use hone_kernels::{ActivationBits, Activations, Matrix, PackError, TensorType, dequantize, matmul};

/// The shape of the weights and the number of tokens to multiply it with.
#[derive(Clone, Copy, Debug)]
struct Shape {
    n_rows: usize,
    n_columns: usize,
    n_tokens: usize,
}

/// Multiplies random weights with random activations on every instruction set, in every precision, and compares.
fn check(tensor_type: TensorType, shape: Shape, seed: u64) {
    // The reads for 16 bits include the reads for 8 bits, and Miri takes seconds for each.
    if tensor_type.is_float() || !cfg!(miri) {
        check_in(ActivationBits::Eight, tensor_type, shape, seed);
    }
    if !tensor_type.is_float() {
        check_in(ActivationBits::Sixteen, tensor_type, shape, seed);
    }
}

fn check_in(bits: ActivationBits, tensor_type: TensorType, shape: Shape, seed: u64) {
    let mut random = Random(seed);
    let bytes = random_tensor(tensor_type, shape, &mut random);
    let rows: Vec<Vec<f32>> = (0..shape.n_tokens).map(|_| random.activations(shape.n_columns)).collect();
    let matrix = Matrix::pack(tensor_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
    let portable = product_in(bits, Kernels::of(InstructionSet::Portable).unwrap(), &matrix, &rows);
    let weights = decode_tensor(tensor_type, shape, &bytes);
    // Half a step of the activations' quantization, and the rounding of the sums.
    let tolerance = match bits {
        _ if tensor_type.is_float() => 1e-5,
        ActivationBits::Eight => 6e-3,
        ActivationBits::Sixteen => 6e-5,
    };
    for (token, row) in rows.iter().enumerate() {
        for (row_idx, weights) in weights.chunks_exact(shape.n_columns).enumerate() {
            let (exact, size) = exact_product(weights, row);
            let given = portable[token * shape.n_rows + row_idx];
            assert!(
                (given - exact).abs() <= tolerance * size + 1e-6,
                "{tensor_type:?} {bits:?} {shape:?} at {token}, {row_idx}: {given} {exact}"
            );
        }
    }
    for kernels in available().filter(|kernels| kernels.instruction_set() != InstructionSet::Portable) {
        let product = product_in(bits, kernels, &matrix, &rows);
        for (idx, (given, expected)) in product.iter().zip(&portable).enumerate() {
            let (token, row_idx) = (idx / shape.n_rows, idx % shape.n_rows);
            let (_, size) = exact_product(&weights[row_idx * shape.n_columns..][..shape.n_columns], &rows[token]);
            let rounding = if tensor_type == TensorType::BF16 { 4e-3 } else { 1e-5 };
            assert!(
                (given - expected).abs() <= rounding * size + 1e-6,
                "{tensor_type:?} {bits:?} {shape:?} on {kernels:?} at {token}, {row_idx}: {given} and not {expected}"
            );
        }
    }
}

/// A size, or a smaller one under Miri, which is about a thousand times slower.
const fn sized(size: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { size }
}

/// The cases; under Miri, only the first few.
fn cases<T>(all: &[T], n_under_miri: usize) -> &[T] {
    &all[..sized(all.len(), n_under_miri)]
}

fn available() -> impl Iterator<Item = &'static Kernels> {
    InstructionSet::ALL.into_iter().filter_map(Kernels::of)
}

fn product_on(kernels: &Kernels, matrix: &Matrix, rows: &[Vec<f32>]) -> Vec<f32> {
    product_in(ActivationBits::Eight, kernels, matrix, rows)
}

fn product_in(bits: ActivationBits, kernels: &Kernels, matrix: &Matrix, rows: &[Vec<f32>]) -> Vec<f32> {
    let mut activations = Activations::new(matrix.n_columns(), rows.len(), &[matrix.tensor_type()], bits);
    activations.set_n_tokens(rows.len());
    for (token, row) in rows.iter().enumerate() {
        activations.quantize_row(kernels, token, row);
    }
    let mut out = vec![f32::NAN; rows.len() * matrix.n_rows()];
    matmul(kernels, matrix, &activations, &mut out);
    out
}

/// The product in double precision, and the sum of the absolute values of its terms, relative to which errors are
/// measured.
fn exact_product(weights: &[f32], row: &[f32]) -> (f32, f32) {
    let terms = weights.iter().zip(row).map(|(&weight, &element)| f64::from(weight) * f64::from(element));
    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
    (sum as f32, size as f32)
}

#[test]
fn products_of_every_shape() {
    for tensor_type in TensorType::ALL {
        let block_elements = tensor_type.block_elements();
        let n_columns = sized(3, 1) * if tensor_type.is_float() { 32 } else { block_elements };
        let shapes = [(3, 2), (1, 1), (16, 1), (17, 2), (31, 3), (32, 4), (48, 5), (50, 8), (65, 13), (16, 40)];
        for &(n_rows, n_tokens) in cases(&shapes, 1) {
            check(tensor_type, Shape { n_rows, n_columns, n_tokens }, 7 * n_rows as u64 + n_tokens as u64);
        }
        if !cfg!(miri) {
            check(tensor_type, Shape { n_rows: 33, n_columns: block_elements, n_tokens: 2 }, 1);
        }
    }
}

#[test]
fn more_tokens_than_a_tile_has() {
    for &tensor_type in cases(&TensorType::ALL, 4) {
        let n_columns = sized(3, 1) * tensor_type.block_elements().max(32);
        check(tensor_type, Shape { n_rows: sized(33, 1), n_columns, n_tokens: sized(150, 65) }, 2);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn every_number_of_tokens() {
    for tensor_type in TensorType::ALL {
        let n_columns = tensor_type.block_elements().max(32);
        for n_tokens in 1..=40 {
            check(tensor_type, Shape { n_rows: 40, n_columns, n_tokens }, n_tokens as u64);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "wide rows take Miri hours and reach no other memory")]
fn rows_wider_than_a_panel() {
    for tensor_type in TensorType::ALL {
        for n_tokens in [1, 7, 66] {
            check(tensor_type, Shape { n_rows: 35, n_columns: 9 * 1024 + 256, n_tokens }, 3);
        }
    }
}

#[test]
fn columns_of_floats_that_fill_no_block() {
    for tensor_type in [TensorType::F32, TensorType::F16, TensorType::BF16] {
        for &n_columns in cases(&[33, 1, 2, 31, 45], 2) {
            check(tensor_type, Shape { n_rows: sized(19, 3), n_columns, n_tokens: sized(3, 2) }, n_columns as u64);
        }
    }
}

#[test]
fn rows_come_back_as_the_file_has_them() {
    for tensor_type in TensorType::ALL {
        let shape =
            Shape { n_rows: sized(37, 2), n_columns: sized(512, tensor_type.block_elements().max(64)), n_tokens: 0 };
        let bytes = random_tensor(tensor_type, shape, &mut Random(11));
        let matrix = Matrix::pack(tensor_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
        let mut row = vec![0.0; shape.n_columns];
        for (row_idx, expected) in decode_tensor(tensor_type, shape, &bytes).chunks_exact(shape.n_columns).enumerate() {
            matrix.dequantize_row(row_idx, &mut row);
            for (given, expected) in row.iter().zip(expected) {
                assert!(
                    (given - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
                    "{tensor_type:?}: {given} {expected}"
                );
            }
        }
    }
}

#[test]
fn threads_pack_what_one_packs_and_name_every_byte_once() {
    let shape = Shape { n_rows: sized(1099, 35), n_columns: sized(4096, 64), n_tokens: 0 };
    let bytes = random_tensor(TensorType::Q4_1, shape, &mut Random(5));
    let n_packed = AtomicUsize::new(0);
    let mut pool = Pool::new(NonZeroUsize::new(3).unwrap());
    let count = |part: &[u8]| {
        n_packed.fetch_add(part.len(), Ordering::Relaxed);
    };
    let matrix = Matrix::pack_on(&mut pool, TensorType::Q4_1, shape.n_rows, shape.n_columns, &bytes, &count).unwrap();
    assert_eq!(n_packed.into_inner(), bytes.len());
    let by_one = Matrix::pack(TensorType::Q4_1, shape.n_rows, shape.n_columns, &bytes).unwrap();
    let (mut row, mut alone) = (vec![0.0; shape.n_columns], vec![0.0; shape.n_columns]);
    for row_idx in 0..shape.n_rows {
        matrix.dequantize_row(row_idx, &mut row);
        by_one.dequantize_row(row_idx, &mut alone);
        assert_eq!(row, alone, "row {row_idx}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn extreme_blocks_neither_crash_nor_spread() {
    for tensor_type in TensorType::ALL {
        for pattern in [0x00, 0xff, 0x7f, 0x80, 0x88, 0x7c, 0xfc] {
            let shape = Shape { n_rows: 20, n_columns: 512, n_tokens: 5 };
            let mut bytes = random_tensor(tensor_type, shape, &mut Random(3));
            let row_bytes = bytes.len() / shape.n_rows;
            bytes[4 * row_bytes..5 * row_bytes].fill(pattern);
            check_only_one_row_differs(tensor_type, shape, &bytes, 4);
        }
    }
}

/// A row of arbitrary bytes (including infinite and NaN scales) may produce arbitrary elements, but must leave the
/// other rows' elements unchanged; on finite weights all instruction sets agree.
fn check_only_one_row_differs(tensor_type: TensorType, shape: Shape, bytes: &[u8], strange_row: usize) {
    let matrix = Matrix::pack(tensor_type, shape.n_rows, shape.n_columns, bytes).unwrap();
    let mut random = Random(9);
    let rows: Vec<Vec<f32>> = (0..shape.n_tokens).map(|_| random.activations(shape.n_columns)).collect();
    let portable = product_on(Kernels::of(InstructionSet::Portable).unwrap(), &matrix, &rows);
    let weights = decode_tensor(tensor_type, shape, bytes);
    for kernels in available() {
        for (idx, (given, expected)) in product_on(kernels, &matrix, &rows).iter().zip(&portable).enumerate() {
            let (token, row_idx) = (idx / shape.n_rows, idx % shape.n_rows);
            let (_, size) = exact_product(&weights[row_idx * shape.n_columns..][..shape.n_columns], &rows[token]);
            let agree = (given - expected).abs() <= 5e-3 * size + 1e-6 || (!given.is_finite() && !expected.is_finite());
            assert!(
                agree || (row_idx == strange_row && !size.is_finite()),
                "{tensor_type:?} {kernels:?}: {given} {expected}"
            );
            assert!(given.is_finite() || row_idx == strange_row, "{tensor_type:?} {kernels:?}: row {row_idx}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn extreme_quants_do_not_saturate() {
    // All quants at one end of their range, all activations at ±127: the largest sums that can occur.
    for tensor_type in TensorType::ALL.into_iter().filter(|tensor_type| !tensor_type.is_float()) {
        let ends = [(0xff, 1.0), (0x00, -1.0), (0x00, 1.0), (0xff, -1.0), (0x80, 1.0), (0x80, -1.0)];
        for (pattern, sign) in ends {
            let shape = Shape { n_rows: 16, n_columns: 256, n_tokens: 2 };
            let mut bytes = random_tensor(tensor_type, shape, &mut Random(4));
            fill_quants(tensor_type, &mut bytes, pattern);
            let weights = decode_tensor(tensor_type, shape, &bytes);
            let matrix = Matrix::pack(tensor_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
            let rows = vec![vec![sign; shape.n_columns]; shape.n_tokens];
            for kernels in available() {
                let product = product_on(kernels, &matrix, &rows);
                for (idx, given) in product.iter().enumerate() {
                    let weights = &weights[idx % shape.n_rows * shape.n_columns..][..shape.n_columns];
                    let (exact, size) = exact_product(weights, &rows[0]);
                    assert!(
                        (given - exact).abs() <= 1e-4 * size,
                        "{tensor_type:?} {kernels:?} {pattern}: {given} {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn strange_activations_do_not_crash() {
    for &tensor_type in cases(&TensorType::ALL, 4) {
        let shape =
            Shape { n_rows: sized(20, 1), n_columns: sized(512, tensor_type.block_elements().max(64)), n_tokens: 2 };
        let bytes = random_tensor(tensor_type, shape, &mut Random(3));
        let matrix = Matrix::pack(tensor_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
        let all = [f32::INFINITY, f32::NAN, f32::MAX, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-45, 0.0, -0.0];
        for &strange in cases(&all, 1) {
            let mut rows = vec![vec![0.0; shape.n_columns]; 2];
            rows[0][33] = strange;
            rows[1].fill(0.5);
            for kernels in available() {
                let product = product_on(kernels, &matrix, &rows);
                assert!(
                    product[shape.n_rows..].iter().all(|element| element.is_finite()),
                    "{tensor_type:?} {kernels:?}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one instruction set alone")]
fn quantized_activations_are_the_same_everywhere() {
    // One Q8_0 row per column with a single quant of one reads the activations back.
    let mut bytes = Vec::new();
    for row in 0..64 {
        for block in 0..2 {
            bytes.extend(f16::ONE.to_le_bytes());
            bytes.extend((0..32).map(|column| u8::from(block * 32 + column == row)));
        }
    }
    let matrix = Matrix::pack(TensorType::Q8_0, 64, 64, &bytes).unwrap();
    let mut random = Random(21);
    let rows: Vec<Vec<f32>> = (0..70).map(|_| random.activations(64)).collect();
    let portable = product_on(Kernels::of(InstructionSet::Portable).unwrap(), &matrix, &rows);
    for (row, products) in rows.iter().zip(portable.chunks_exact(64)) {
        for (block, products) in row.chunks_exact(32).zip(products.chunks_exact(32)) {
            let largest = block.iter().fold(0.0f32, |largest, element| largest.max(element.abs()));
            for (element, product) in block.iter().zip(products) {
                assert!((element - product).abs() <= largest / 127.0 * 0.5001, "{element} {product}");
            }
        }
    }
    for kernels in available() {
        assert_eq!(product_on(kernels, &matrix, &rows), portable, "{kernels:?}");
    }
}

#[test]
fn a_token_has_the_same_bits_alone_and_in_any_tile() {
    for &tensor_type in cases(&TensorType::ALL, 4) {
        let n_columns = tensor_type.block_elements().max(64);
        let shape = Shape { n_rows: sized(21, 2), n_columns, n_tokens: sized(67, 5) };
        let bytes = random_tensor(tensor_type, shape, &mut Random(13));
        let matrix = Matrix::pack(tensor_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
        let mut random = Random(14);
        let rows: Vec<Vec<f32>> = (0..shape.n_tokens).map(|_| random.activations(shape.n_columns)).collect();
        for kernels in available() {
            let together = product_on(kernels, &matrix, &rows);
            for n_tokens in sized(1, 1)..=sized(9, 2) {
                let some = product_on(kernels, &matrix, &rows[..n_tokens]);
                assert_eq!(some, together[..some.len()], "{tensor_type:?} {kernels:?}: {n_tokens} tokens");
            }
            let last = product_on(kernels, &matrix, &rows[rows.len() - 1..]);
            assert_eq!(last, together[together.len() - last.len()..], "{tensor_type:?} {kernels:?}: the last token");
        }
    }
}

/// Scripts that emulate a processor name the instruction set that it has to choose.
#[test]
fn the_chosen_kernels_are_the_widest() {
    assert_eq!(platform::kernels().instruction_set(), available().last().unwrap().instruction_set());
    if let Ok(expected) = std::env::var("HONE_EXPECTED_INSTRUCTION_SET") {
        assert_eq!(platform::kernels().instruction_set(), expected.parse().unwrap());
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let partial = Matrix::pack(TensorType::Q4_K, 1, 300, &[0; 144]).unwrap_err();
    assert_eq!(partial.to_string(), "rows of 300 columns are not whole blocks of Q4_K, which hold 256 columns each");
    let short = Matrix::pack(TensorType::Q8_0, 2, 32, &[0; 67]).unwrap_err();
    assert_eq!(short.to_string(), "a Q8_0 tensor of 2 × 32 takes 68 bytes and not 67");
    let huge = Matrix::pack(TensorType::F32, usize::MAX, usize::MAX, &[]).unwrap_err();
    assert!(matches!(huge, PackError::WrongLength { expected: usize::MAX, .. }));
    let empty = Matrix::pack(TensorType::Q4_0, 0, 32, &[]).unwrap();
    assert_eq!((empty.n_rows(), empty.n_bytes()), (0, 0));
}

/// Splitmix64: enough randomness for tests, the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between −1 and 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Elements of very different sizes, including blocks of zeros.
    fn activations(&mut self, n_columns: usize) -> Vec<f32> {
        let mut row = Vec::with_capacity(n_columns);
        while row.len() < n_columns {
            let size = [0.0, 1e-3, 1.0, 1.0, 30.0][(self.next() % 5) as usize];
            row.extend((0..32).map(|_| size * self.unit()));
        }
        row.truncate(n_columns);
        row
    }
}

/// Random bytes, with scales and minimums that are reasonable numbers of either sign, some of them zero.
fn random_tensor(tensor_type: TensorType, shape: Shape, random: &mut Random) -> Vec<u8> {
    let n_elements = shape.n_rows * shape.n_columns;
    match tensor_type {
        TensorType::F32 => return (0..n_elements).flat_map(|_| random.unit().to_le_bytes()).collect(),
        TensorType::F16 => return (0..n_elements).flat_map(|_| f16::from_f32(random.unit()).to_le_bytes()).collect(),
        TensorType::BF16 => return (0..n_elements).flat_map(|_| bf16::from_f32(random.unit()).to_le_bytes()).collect(),
        _ => {}
    }
    let mut bytes = vec![0; n_elements / tensor_type.block_elements() * tensor_type.block_bytes()];
    for block in bytes.chunks_exact_mut(tensor_type.block_bytes()) {
        block.iter_mut().for_each(|byte| *byte = random.next() as u8);
        if tensor_type == TensorType::MXFP4 {
            block[0] = [0, 119, 121, 122][(random.next() % 4) as usize];
        }
        for &at in halves(tensor_type) {
            let size = [0.0, 0.01, 0.02, 0.05][(random.next() % 4) as usize];
            block[at..at + 2].copy_from_slice(&f16::from_f32(size * random.unit()).to_le_bytes());
        }
    }
    bytes
}

/// The offsets of the f16 numbers in a block.
fn halves(tensor_type: TensorType) -> &'static [usize] {
    match tensor_type {
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
        TensorType::Q2_K => &[80, 82],
        TensorType::Q3_K => &[108],
        TensorType::Q6_K => &[208],
        TensorType::TQ1_0 => &[52],
        TensorType::TQ2_0 => &[64],
        TensorType::MXFP4 => &[],
        _ => &[0],
    }
}

/// Overwrites everything in the blocks except the f16 numbers and the exponents.
fn fill_quants(tensor_type: TensorType, bytes: &mut [u8], pattern: u8) {
    for block in bytes.chunks_exact_mut(tensor_type.block_bytes()) {
        for (at, byte) in block.iter_mut().enumerate() {
            let is_scale = halves(tensor_type).iter().any(|&half| at == half || at == half + 1);
            if !(is_scale || tensor_type == TensorType::MXFP4 && at == 0) {
                *byte = pattern;
            }
        }
    }
}

fn decode_tensor(tensor_type: TensorType, shape: Shape, bytes: &[u8]) -> Vec<f32> {
    let mut weights = vec![0.0; shape.n_rows * shape.n_columns];
    dequantize(tensor_type, bytes, &mut weights);
    weights
}
