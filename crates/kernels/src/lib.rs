//! Quantized matrix products, attention and norms for the CPU: slices in, slices out, SIMD chosen at run time.
//!
//! A [`Matrix`] is a weight tensor of a GGUF file, copied once into an order that the products like to read: sixteen
//! rows side by side, so that one vector register holds the same columns of sixteen rows. [`Activations`] are the
//! vectors that it is multiplied with, quantized to eight bits per block of 32 columns. [`matmul`] multiplies the two.
//! Which instructions do the work is decided once per process by [`platform::kernels`]; every instruction set reads
//! the same layout, and the portable one is the oracle that the others are tested against.

mod activations;
mod arch;
mod buffer;
mod matrix;
pub mod platform;
mod product;
mod weight_type;

pub use activations::Activations;
pub use matrix::{Matrix, PackError, ROW_GROUP};
pub use product::{matmul, matmul_with};
pub use weight_type::WeightType;
