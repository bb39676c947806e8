//! Products of every weight type on every instruction set, against numbers computed in the plainest way.
//!
//! Two references: the weights decoded straight from the GGUF blocks (a second, independent reading of the formats),
//! and the portable kernels, which see the same quantized activations as the others and so must agree closely.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use hone_kernels::platform::{self, InstructionSet, Kernels};
use hone_kernels::pool::Pool;
use hone_kernels::{ActivationBits, Activations, Matrix, PackError, WeightType, matmul, matmul_with};

/// The shape of the weights and the number of tokens to multiply it with.
#[derive(Clone, Copy, Debug)]
struct Shape {
    n_rows: usize,
    n_columns: usize,
    n_tokens: usize,
}

/// Multiplies random weights with random activations on every instruction set, in every precision, and compares.
fn check(weight_type: WeightType, shape: Shape, seed: u64) {
    check_in(ActivationBits::Eight, weight_type, shape, seed);
    if !weight_type.is_float() {
        check_in(ActivationBits::Sixteen, weight_type, shape, seed);
    }
}

fn check_in(bits: ActivationBits, weight_type: WeightType, shape: Shape, seed: u64) {
    let mut random = Random(seed);
    let bytes = random_tensor(weight_type, shape, &mut random);
    let rows: Vec<Vec<f32>> = (0..shape.n_tokens).map(|_| random.activations(shape.n_columns)).collect();
    let matrix = Matrix::pack(weight_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
    let portable = product_in(bits, Kernels::of(InstructionSet::Portable).unwrap(), &matrix, &rows);
    let weights = decode_tensor(weight_type, shape, &bytes);
    // Half a step of the activations' quantization, and the rounding of the sums.
    let tolerance = match bits {
        _ if weight_type.is_float() => 1e-5,
        ActivationBits::Eight => 6e-3,
        ActivationBits::Sixteen => 6e-5,
    };
    for (token, row) in rows.iter().enumerate() {
        for (row_idx, weights) in weights.chunks_exact(shape.n_columns).enumerate() {
            let (exact, size) = exact_product(weights, row);
            let given = portable[token * shape.n_rows + row_idx];
            assert!(
                (given - exact).abs() <= tolerance * size + 1e-6,
                "{weight_type:?} {bits:?} {shape:?} at {token}, {row_idx}: {given} {exact}"
            );
        }
    }
    for kernels in available().filter(|kernels| kernels.instruction_set() != InstructionSet::Portable) {
        let product = product_in(bits, kernels, &matrix, &rows);
        for (idx, (given, expected)) in product.iter().zip(&portable).enumerate() {
            let (token, row_idx) = (idx / shape.n_rows, idx % shape.n_rows);
            let (_, size) = exact_product(&weights[row_idx * shape.n_columns..][..shape.n_columns], &rows[token]);
            let rounding = if weight_type == WeightType::BF16 { 4e-3 } else { 1e-5 };
            assert!(
                (given - expected).abs() <= rounding * size + 1e-6,
                "{weight_type:?} {bits:?} {shape:?} on {kernels:?} at {token}, {row_idx}: {given} and not {expected}"
            );
        }
    }
}

/// A size; under Miri, which takes some thousand times as long, the smaller one.
const fn sized(size: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { size }
}

/// The cases; under Miri the first of them.
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
    let mut activations = Activations::new(matrix.n_columns(), rows.len(), &[matrix.weight_type()], bits);
    activations.set_n_tokens(rows.len());
    for (token, row) in rows.iter().enumerate() {
        activations.quantize_row_with(kernels, token, row);
    }
    let mut out = vec![f32::NAN; rows.len() * matrix.n_rows()];
    matmul_with(kernels, matrix, &activations, &mut out);
    out
}

/// The product in double precision, and the sum of its terms' sizes, which errors are measured by.
fn exact_product(weights: &[f32], row: &[f32]) -> (f32, f32) {
    let terms = weights.iter().zip(row).map(|(&weight, &element)| f64::from(weight) * f64::from(element));
    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
    (sum as f32, size as f32)
}

#[test]
fn products_of_every_shape() {
    for weight_type in WeightType::ALL {
        let block_columns = weight_type.block_columns();
        let n_columns = sized(3, 1) * if weight_type.is_float() { 32 } else { block_columns };
        let shapes = [(3, 2), (1, 1), (16, 1), (17, 2), (31, 3), (32, 4), (48, 5), (50, 8), (65, 13), (16, 40)];
        for &(n_rows, n_tokens) in cases(&shapes, 1) {
            check(weight_type, Shape { n_rows, n_columns, n_tokens }, 7 * n_rows as u64 + n_tokens as u64);
        }
        check(weight_type, Shape { n_rows: sized(33, 1), n_columns: block_columns, n_tokens: 2 }, 1);
    }
}

#[test]
fn more_tokens_than_a_tile_has() {
    for &weight_type in cases(&WeightType::ALL, 4) {
        let n_columns = sized(3, 1) * weight_type.block_columns().max(32);
        check(weight_type, Shape { n_rows: sized(33, 1), n_columns, n_tokens: sized(150, 65) }, 2);
    }
}

#[test]
fn every_number_of_tokens() {
    for weight_type in WeightType::ALL {
        let n_columns = weight_type.block_columns().max(32);
        for n_tokens in sized(1, 3)..=sized(40, 3) {
            check(weight_type, Shape { n_rows: sized(40, 1), n_columns, n_tokens }, n_tokens as u64);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "wide rows take Miri hours and reach no other memory")]
fn rows_wider_than_a_panel() {
    for weight_type in WeightType::ALL {
        for n_tokens in [1, 7, 66] {
            check(weight_type, Shape { n_rows: 35, n_columns: 9 * 1024 + 256, n_tokens }, 3);
        }
    }
}

#[test]
fn columns_of_floats_that_fill_no_block() {
    for weight_type in [WeightType::F32, WeightType::F16, WeightType::BF16] {
        for &n_columns in cases(&[33, 1, 2, 31, 45], 2) {
            check(weight_type, Shape { n_rows: sized(19, 3), n_columns, n_tokens: sized(3, 2) }, n_columns as u64);
        }
    }
}

#[test]
fn rows_come_back_as_the_file_has_them() {
    for weight_type in WeightType::ALL {
        let shape =
            Shape { n_rows: sized(37, 2), n_columns: sized(512, weight_type.block_columns().max(64)), n_tokens: 0 };
        let bytes = random_tensor(weight_type, shape, &mut Random(11));
        let matrix = Matrix::pack(weight_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
        let mut row = vec![0.0; shape.n_columns];
        for (row_idx, expected) in decode_tensor(weight_type, shape, &bytes).chunks_exact(shape.n_columns).enumerate() {
            matrix.dequantize_row(row_idx, &mut row);
            for (given, expected) in row.iter().zip(expected) {
                assert!(
                    (given - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
                    "{weight_type:?}: {given} {expected}"
                );
            }
        }
    }
}

#[test]
fn threads_pack_what_one_packs_and_name_every_byte_once() {
    let shape = Shape { n_rows: sized(1099, 35), n_columns: sized(4096, 64), n_tokens: 0 };
    let bytes = random_tensor(WeightType::Q4_1, shape, &mut Random(5));
    let n_packed = AtomicUsize::new(0);
    let mut pool = Pool::new(NonZeroUsize::new(3).unwrap());
    let count = |part: &[u8]| {
        n_packed.fetch_add(part.len(), Ordering::Relaxed);
    };
    let matrix = Matrix::pack_on(&mut pool, WeightType::Q4_1, shape.n_rows, shape.n_columns, &bytes, &count).unwrap();
    assert_eq!(n_packed.into_inner(), bytes.len());
    let by_one = Matrix::pack(WeightType::Q4_1, shape.n_rows, shape.n_columns, &bytes).unwrap();
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
    for weight_type in WeightType::ALL {
        for pattern in [0x00, 0xff, 0x7f, 0x80, 0x88, 0x7c, 0xfc] {
            let shape = Shape { n_rows: 20, n_columns: 512, n_tokens: 5 };
            let mut bytes = random_tensor(weight_type, shape, &mut Random(3));
            let row_bytes = bytes.len() / shape.n_rows;
            bytes[4 * row_bytes..5 * row_bytes].fill(pattern);
            check_only_one_row_differs(weight_type, shape, &bytes, 4);
        }
    }
}

/// A row of strange bytes (among them infinite scales and scales that are no number) may give a strange element, and
/// leaves those of the other rows as they are; on finite weights all instruction sets agree.
fn check_only_one_row_differs(weight_type: WeightType, shape: Shape, bytes: &[u8], strange_row: usize) {
    let matrix = Matrix::pack(weight_type, shape.n_rows, shape.n_columns, bytes).unwrap();
    let mut random = Random(9);
    let rows: Vec<Vec<f32>> = (0..shape.n_tokens).map(|_| random.activations(shape.n_columns)).collect();
    let portable = product_on(Kernels::of(InstructionSet::Portable).unwrap(), &matrix, &rows);
    let weights = decode_tensor(weight_type, shape, bytes);
    for kernels in available() {
        for (idx, (given, expected)) in product_on(kernels, &matrix, &rows).iter().zip(&portable).enumerate() {
            let (token, row_idx) = (idx / shape.n_rows, idx % shape.n_rows);
            let (_, size) = exact_product(&weights[row_idx * shape.n_columns..][..shape.n_columns], &rows[token]);
            let agree = (given - expected).abs() <= 5e-3 * size + 1e-6 || (!given.is_finite() && !expected.is_finite());
            assert!(
                agree || (row_idx == strange_row && !size.is_finite()),
                "{weight_type:?} {kernels:?}: {given} {expected}"
            );
            assert!(given.is_finite() || row_idx == strange_row, "{weight_type:?} {kernels:?}: row {row_idx}");
        }
    }
}

#[test]
fn extreme_quants_do_not_saturate() {
    // All quants at an end of their range, all activations at ±127: the largest sums that can occur.
    for weight_type in WeightType::ALL.into_iter().filter(|weight_type| !weight_type.is_float()) {
        let ends = [(0xff, 1.0), (0x00, -1.0), (0x00, 1.0), (0xff, -1.0), (0x80, 1.0), (0x80, -1.0)];
        for &(pattern, sign) in cases(&ends, 1) {
            let shape = Shape { n_rows: sized(16, 1), n_columns: 256, n_tokens: 2 };
            let mut bytes = random_tensor(weight_type, shape, &mut Random(4));
            fill_quants(weight_type, &mut bytes, pattern);
            let weights = decode_tensor(weight_type, shape, &bytes);
            let matrix = Matrix::pack(weight_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
            let rows = vec![vec![sign; shape.n_columns]; shape.n_tokens];
            for kernels in available() {
                let product = product_on(kernels, &matrix, &rows);
                for (idx, given) in product.iter().enumerate() {
                    let weights = &weights[idx % shape.n_rows * shape.n_columns..][..shape.n_columns];
                    let (exact, size) = exact_product(weights, &rows[0]);
                    assert!(
                        (given - exact).abs() <= 1e-4 * size,
                        "{weight_type:?} {kernels:?} {pattern}: {given} {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn strange_activations_do_not_crash() {
    for weight_type in WeightType::ALL {
        let shape =
            Shape { n_rows: sized(20, 1), n_columns: sized(512, weight_type.block_columns().max(64)), n_tokens: 2 };
        let bytes = random_tensor(weight_type, shape, &mut Random(3));
        let matrix = Matrix::pack(weight_type, shape.n_rows, shape.n_columns, &bytes).unwrap();
        let all = [f32::INFINITY, f32::NAN, f32::MAX, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-45, 0.0, -0.0];
        for &strange in cases(&all, 1) {
            let mut rows = vec![vec![0.0; shape.n_columns]; 2];
            rows[0][33] = strange;
            rows[1].fill(0.5);
            for kernels in available() {
                let product = product_on(kernels, &matrix, &rows);
                assert!(
                    product[shape.n_rows..].iter().all(|element| element.is_finite()),
                    "{weight_type:?} {kernels:?}"
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
    let matrix = Matrix::pack(WeightType::Q8_0, 64, 64, &bytes).unwrap();
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
fn the_chosen_kernels_are_the_widest() {
    assert_eq!(platform::kernels().instruction_set(), available().last().unwrap().instruction_set());
    let bytes = random_tensor(WeightType::Q8_0, Shape { n_rows: 16, n_columns: 32, n_tokens: 1 }, &mut Random(1));
    let matrix = Matrix::pack(WeightType::Q8_0, 16, 32, &bytes).unwrap();
    let rows = vec![vec![1.0; 32]];
    let mut activations = Activations::new(32, 1, &[WeightType::Q8_0], ActivationBits::Eight);
    activations.set_n_tokens(1);
    activations.quantize_row(0, &rows[0]);
    let mut out = vec![0.0; 16];
    matmul(&matrix, &activations, &mut out);
    assert_eq!(out, product_on(platform::kernels(), &matrix, &rows));
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let partial = Matrix::pack(WeightType::Q4_K, 1, 300, &[0; 144]).unwrap_err();
    assert_eq!(partial.to_string(), "rows of 300 columns are not whole blocks of Q4_K, which hold 256 columns each");
    let short = Matrix::pack(WeightType::Q8_0, 2, 32, &[0; 67]).unwrap_err();
    assert_eq!(short.to_string(), "a Q8_0 tensor of 2 × 32 takes 68 bytes and not 67");
    let huge = Matrix::pack(WeightType::F32, usize::MAX, usize::MAX, &[]).unwrap_err();
    assert!(matches!(huge, PackError::WrongLength { expected: usize::MAX, .. }));
    let empty = Matrix::pack(WeightType::Q4_0, 0, 32, &[]).unwrap();
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

    /// Elements of very different sizes, blocks of zeros among them.
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

/// Random bytes, with scales and minimums that are sane numbers of either sign, some of them zero.
fn random_tensor(weight_type: WeightType, shape: Shape, random: &mut Random) -> Vec<u8> {
    let n_elements = shape.n_rows * shape.n_columns;
    match weight_type {
        WeightType::F32 => return (0..n_elements).flat_map(|_| random.unit().to_le_bytes()).collect(),
        WeightType::F16 => return (0..n_elements).flat_map(|_| f16::from_f32(random.unit()).to_le_bytes()).collect(),
        WeightType::BF16 => return (0..n_elements).flat_map(|_| bf16::from_f32(random.unit()).to_le_bytes()).collect(),
        _ => {}
    }
    let mut bytes = vec![0; n_elements / weight_type.block_columns() * weight_type.block_bytes()];
    for block in bytes.chunks_exact_mut(weight_type.block_bytes()) {
        block.iter_mut().for_each(|byte| *byte = random.next() as u8);
        for &at in halves(weight_type) {
            let size = [0.0, 0.01, 0.02, 0.05][(random.next() % 4) as usize];
            block[at..at + 2].copy_from_slice(&f16::from_f32(size * random.unit()).to_le_bytes());
        }
    }
    bytes
}

/// Where the f16 numbers of a block stand.
fn halves(weight_type: WeightType) -> &'static [usize] {
    match weight_type {
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => &[0, 2],
        WeightType::Q2_K => &[80, 82],
        WeightType::Q3_K => &[108],
        WeightType::Q6_K => &[208],
        _ => &[0],
    }
}

/// Overwrites everything in the blocks but the f16 numbers.
fn fill_quants(weight_type: WeightType, bytes: &mut [u8], pattern: u8) {
    for block in bytes.chunks_exact_mut(weight_type.block_bytes()) {
        for (at, byte) in block.iter_mut().enumerate() {
            if !halves(weight_type).iter().any(|&half| at == half || at == half + 1) {
                *byte = pattern;
            }
        }
    }
}

fn decode_tensor(weight_type: WeightType, shape: Shape, bytes: &[u8]) -> Vec<f32> {
    let blocks = bytes.chunks_exact(weight_type.block_bytes());
    let weights: Vec<f32> = blocks.flat_map(|block| decode_block(weight_type, block)).collect();
    assert_eq!(weights.len(), shape.n_rows * shape.n_columns);
    weights
}

/// The weights of one block, element by element as the formats are described.
fn decode_block(weight_type: WeightType, block: &[u8]) -> Vec<f32> {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let element = |column: usize| -> f32 {
        let nibble = |quants: usize| f32::from((block[quants + column % 16] >> (column / 16 * 4)) & 15);
        let fifth = |at: usize| f32::from((block[at + column / 8] >> (column % 8)) & 1) * 16.0;
        let (group, within) = (column / 32, column % 32);
        let wide_nibble = |quants: usize| f32::from((block[quants + group / 2 * 32 + within] >> (group % 2 * 4)) & 15);
        let two_bits = |quants: usize| f32::from((block[quants + group / 4 * 32 + within] >> (group % 4 * 2)) & 3);
        match weight_type {
            WeightType::Q4_0 => half(0) * (nibble(2) - 8.0),
            WeightType::Q4_1 => half(0) * nibble(4) + half(2),
            WeightType::Q5_0 => half(0) * (nibble(6) + fifth(2) - 16.0),
            WeightType::Q5_1 => half(0) * (nibble(8) + fifth(4)) + half(2),
            WeightType::Q8_0 => half(0) * f32::from(block[2 + column] as i8),
            WeightType::IQ4_NL => {
                let values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113i8];
                half(0) * f32::from(values[nibble(2) as usize])
            }
            WeightType::Q2_K => {
                let scale = block[column / 16];
                half(80) * f32::from(scale & 15) * two_bits(16) - half(82) * f32::from(scale >> 4)
            }
            WeightType::Q3_K => {
                let high = if block[within] >> group & 1 == 1 { 0.0 } else { 4.0 };
                half(108) * q3_scale(&block[96..108], column / 16) * (two_bits(32) - high)
            }
            WeightType::Q4_K => {
                let (scale, minimum) = q4_scales(&block[4..16], group);
                half(0) * scale * wide_nibble(16) - half(2) * minimum
            }
            WeightType::Q5_K => {
                let (scale, minimum) = q4_scales(&block[4..16], group);
                let high = f32::from(block[16 + within] >> group & 1) * 16.0;
                half(0) * scale * (wide_nibble(48) + high) - half(2) * minimum
            }
            WeightType::Q6_K => {
                let (part, quarter) = (column / 128, column % 128 / 32);
                let low = block[64 * part + 32 * (quarter % 2) + within] >> (quarter / 2 * 4) & 15;
                let high = block[128 + 32 * part + within] >> (2 * quarter) & 3;
                half(208) * f32::from(block[192 + column / 16] as i8) * (f32::from(low | high << 4) - 32.0)
            }
            WeightType::F32 => f32::from_le_bytes(block.try_into().unwrap()),
            WeightType::F16 => half(0),
            WeightType::BF16 => bf16::from_le_bytes([block[0], block[1]]).to_f32(),
        }
    };
    (0..weight_type.block_columns()).map(element).collect()
}

/// Q3_K: sixteen scales of six bits, the low four of them first, offset by 32.
fn q3_scale(packed: &[u8], idx: usize) -> f32 {
    let low = if idx < 8 { packed[idx] & 15 } else { packed[idx - 8] >> 4 };
    let high = packed[8 + idx % 4] >> (idx / 4 * 2) & 3;
    f32::from(low | high << 4) - 32.0
}

/// Q4_K and Q5_K: eight scales and eight minimums of six bits.
fn q4_scales(packed: &[u8], idx: usize) -> (f32, f32) {
    let (scale, minimum) = if idx < 4 {
        (packed[idx] & 63, packed[idx + 4] & 63)
    } else {
        let shared = packed[idx + 4];
        (shared & 15 | packed[idx - 4] >> 6 << 4, shared >> 4 | packed[idx] >> 6 << 4)
    };
    (f32::from(scale), f32::from(minimum))
}
