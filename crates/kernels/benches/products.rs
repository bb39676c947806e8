//! Speed of the products: GB/s of weights and GMAC/s by type, instruction set, shape and number of tokens, compared
//! with the best that this machine's memory and multipliers can reach.
//!
//! ```text
//! cargo bench -p hone-kernels --bench products -- [--types Q4_1,Q4_K] [--sets AVX2] [--shapes 4096x4096] [--tokens 1,8]
//!     [--repeats 3]
//! ```
//!
//! With `--repeats`, every product is computed that many times without measuring, quantizing the activations each time,
//! for external tools that count instructions.
//!
//! Runs on one thread. Every figure is the best of many runs, because other processes only ever slow a run down. The
//! weights of products with few tokens exceed the caches, as they do in a model.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use hone_kernels::platform::{InstructionSet, Kernels};
use hone_kernels::{ActivationBits, Activations, Matrix, TensorType, matmul};

/// More weights than any cache holds.
const UNCACHED_BYTES: usize = 160 << 20;

/// Measurement time per figure.
const TIME_PER_FIGURE: Duration = Duration::from_millis(400);

struct Settings {
    types: Vec<TensorType>,
    sets: Vec<InstructionSet>,
    shapes: Vec<(usize, usize)>,
    tokens: Vec<usize>,
    /// How many times to compute every product without measuring it.
    repeats: Option<usize>,
}

fn main() {
    let settings = read_settings();
    if let Some(repeats) = settings.repeats {
        return repeat_all(&settings, repeats);
    }
    println!("memory, one thread reading: {:.1} GB/s", memory_bandwidth());
    #[cfg(target_arch = "x86_64")]
    if Kernels::of(InstructionSet::Avx512).is_some() {
        println!("AVX-512 VNNI, one thread, registers only: {:.0} GMAC/s", vnni_peak());
    }
    for &tensor_type in &settings.types {
        println!("packing {tensor_type:?}, one thread: {:.2} GB/s", packing_rate(tensor_type));
    }
    println!("{:<8} {:<14} {:>12} {:>6} {:>8} {:>8}", "type", "set", "shape", "tokens", "GB/s", "GMAC/s");
    for &tensor_type in &settings.types {
        for &(n_rows, n_columns) in &settings.shapes {
            if n_columns % tensor_type.block_elements() == 0 {
                measure_shape(&settings, tensor_type, n_rows, n_columns);
            }
        }
    }
}

fn read_settings() -> Settings {
    let arguments: Vec<String> = std::env::args().collect();
    let list = |name: &str, default: &str| -> Vec<String> {
        let given = arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
        given.map_or(default, String::as_str).split(',').filter(|item| !item.is_empty()).map(String::from).collect()
    };
    let types = list("--types", "");
    let sets = list("--sets", "");
    Settings {
        types: select(&TensorType::ALL, &types, |tensor_type| format!("{tensor_type:?}")),
        sets: select(&InstructionSet::ALL, &sets, |set| set.name().to_string()),
        shapes: list("--shapes", "576x576,1536x576,576x1536,49152x576,4096x4096,14336x4096")
            .iter()
            .map(|shape| {
                shape.split_once('x').map(|(rows, columns)| (rows.parse().unwrap(), columns.parse().unwrap())).unwrap()
            })
            .collect(),
        tokens: list("--tokens", "1,8,512").iter().map(|tokens| tokens.parse().unwrap()).collect(),
        repeats: list("--repeats", "").first().map(|repeats| repeats.parse().unwrap()),
    }
}

fn select<T: Copy>(all: &[T], wanted: &[String], name: impl Fn(&T) -> String) -> Vec<T> {
    all.iter().copied().filter(|item| wanted.is_empty() || wanted.contains(&name(item))).collect()
}

fn measure_shape(settings: &Settings, tensor_type: TensorType, n_rows: usize, n_columns: usize) {
    let matrices = matrices(tensor_type, n_rows, n_columns);
    for kernels in settings.sets.iter().filter_map(|&set| Kernels::of(set)) {
        for &n_tokens in &settings.tokens {
            let seconds = best_time(kernels, &matrices, n_tokens);
            println!(
                "{:<8} {:<14} {:>12} {:>6} {:>8.1} {:>8.1}",
                format!("{tensor_type:?}"),
                kernels.instruction_set().name(),
                format!("{n_rows}x{n_columns}"),
                n_tokens,
                matrices[0].n_bytes() as f64 / seconds / 1e9,
                (n_rows * n_columns * n_tokens) as f64 / seconds / 1e9,
            );
        }
    }
}

/// Computes every product `repeats` times.
fn repeat_all(settings: &Settings, repeats: usize) {
    for &tensor_type in &settings.types {
        for &(n_rows, n_columns) in &settings.shapes {
            let matrix = matrix(tensor_type, n_rows, n_columns);
            let row = activation_row(n_columns);
            for kernels in settings.sets.iter().filter_map(|&set| Kernels::of(set)) {
                for &n_tokens in &settings.tokens {
                    let mut activations = activations(&matrix, n_tokens);
                    let mut out = vec![0.0; n_rows * n_tokens];
                    for _ in 0..repeats {
                        quantize(kernels, &mut activations, &row);
                        matmul(kernels, &matrix, &activations, black_box(&mut out));
                    }
                }
            }
        }
    }
}

fn matrix(tensor_type: TensorType, n_rows: usize, n_columns: usize) -> Matrix {
    let n_bytes = n_rows * n_columns / tensor_type.block_elements() * tensor_type.block_bytes();
    // Small bytes everywhere yield small scales, whatever the type.
    let bytes: Vec<u8> = (0..n_bytes).map(|idx| (idx * 7 % 31) as u8).collect();
    Matrix::pack(tensor_type, n_rows, n_columns, &bytes).unwrap()
}

/// Enough copies of one matrix to exceed the caches.
fn matrices(tensor_type: TensorType, n_rows: usize, n_columns: usize) -> Vec<Matrix> {
    let n_bytes = n_rows * n_columns / tensor_type.block_elements() * tensor_type.block_bytes();
    (0..(UNCACHED_BYTES / n_bytes).max(2)).map(|_| matrix(tensor_type, n_rows, n_columns)).collect()
}

/// Room for tokens that the matrix is multiplied with.
fn activations(matrix: &Matrix, n_tokens: usize) -> Activations {
    let types = [matrix.tensor_type()];
    let mut activations = Activations::new(matrix.n_columns(), n_tokens, &types, ActivationBits::Eight);
    activations.set_n_tokens(n_tokens);
    activations
}

/// The row that every token uses.
fn activation_row(n_columns: usize) -> Vec<f32> {
    (0..n_columns).map(|idx| ((idx * 37 % 101) as f32 - 50.0) / 50.0).collect()
}

/// Fills the activations with the same row for every token.
fn quantize(kernels: &Kernels, activations: &mut Activations, row: &[f32]) {
    for token in 0..activations.n_tokens() {
        activations.quantize_row(kernels, token, row);
    }
}

/// The best rate at which one thread packs weights.
fn packing_rate(tensor_type: TensorType) -> f64 {
    let (n_rows, n_columns) = (256, 4096);
    let bytes = vec![1; n_rows * n_columns / tensor_type.block_elements() * tensor_type.block_bytes()];
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while best.is_infinite() || start.elapsed() < TIME_PER_FIGURE {
        let pass = Instant::now();
        black_box(Matrix::pack(tensor_type, n_rows, n_columns, &bytes).unwrap());
        best = best.min(pass.elapsed().as_secs_f64());
    }
    bytes.len() as f64 / best / 1e9
}

/// Seconds for one product: the best time for each matrix, averaged over the matrices.
fn best_time(kernels: &Kernels, matrices: &[Matrix], n_tokens: usize) -> f64 {
    let mut activations = activations(&matrices[0], n_tokens);
    quantize(kernels, &mut activations, &activation_row(matrices[0].n_columns()));
    let mut out = vec![0.0; matrices[0].n_rows() * n_tokens];
    // With many tokens the weights hardly matter, and a pass over all copies would take too long.
    let matrices = if n_tokens > 100 { &matrices[..1] } else { matrices };
    let mut best = vec![f64::INFINITY; matrices.len()];
    let start = Instant::now();
    while best[0].is_infinite() || start.elapsed() < TIME_PER_FIGURE {
        for (matrix, best) in matrices.iter().zip(&mut best) {
            let product = Instant::now();
            matmul(kernels, matrix, &activations, black_box(&mut out));
            *best = best.min(product.elapsed().as_secs_f64());
        }
    }
    best.iter().sum::<f64>() / best.len() as f64
}

/// The best rate at which one thread sums up uncached memory.
fn memory_bandwidth() -> f64 {
    let words = vec![1u64; UNCACHED_BYTES / 8];
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < TIME_PER_FIGURE {
        let pass = Instant::now();
        let sums = words.chunks_exact(64).fold([0u64; 64], |mut sums, chunk| {
            sums.iter_mut().zip(chunk).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            sums
        });
        black_box(sums);
        best = best.min(pass.elapsed().as_secs_f64());
    }
    UNCACHED_BYTES as f64 / best / 1e9
}

/// The best rate of byte products using registers only.
#[cfg(target_arch = "x86_64")]
fn vnni_peak() -> f64 {
    const N_LOOPS: usize = 100_000;
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < TIME_PER_FIGURE {
        let pass = Instant::now();
        // SAFETY: the caller has checked that the AVX-512 kernels are available.
        unsafe { multiply_registers(N_LOOPS) };
        best = best.min(pass.elapsed().as_secs_f64());
    }
    (N_LOOPS * 16 * 64) as f64 / best / 1e9
}

/// # Safety
/// AVX-512 with VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn multiply_registers(n_loops: usize) {
    use std::arch::x86_64::*;
    let quants = black_box(_mm512_set1_epi8(3));
    let mut sums = [_mm512_setzero_si512(); 16];
    for _ in 0..n_loops {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, quants, quants);
        }
        // Keeps the compiler from multiplying once and scaling the result.
        // SAFETY: an empty instruction that claims to change a register.
        unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) sums[0], options(pure, nomem, nostack)) };
    }
    black_box(sums);
}
