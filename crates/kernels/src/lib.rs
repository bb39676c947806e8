//! Quantized matrix products, attention and norms for the CPU: slices in, slices out, SIMD chosen at run time.
//!
//! The items at the root multiply quantized matrices; [`platform`] chooses the instructions, [`pool`] has the threads, and
//! [`step`] runs whole decoders, which is all that the engine needs besides [`Matrix`] and [`dequantize`].
//!
//! A [`Matrix`] is a weight tensor of a GGUF file, copied once into the layout that the products prefer: sixteen rows
//! side by side, so that one vector register holds the same columns of sixteen rows. [`Activations`] are the vectors
//! that it is multiplied with, quantized to 8 or 16 bits per block of 32 columns. [`matmul`] multiplies the two.
//! [`platform::kernels`] decides once per process which instructions are used; every instruction set reads the same
//! layout, and the portable one is the oracle that the others are tested against.
//!
//! A whole decoder is a [`step::Program`]: buffers, products, attention over a cache of keys and values, and the
//! operations on rows in between, with mixtures of experts and layers that keep a state. It runs on the threads of a
//! [`pool::Pool`], which receive a step once, with all of its phases.

#[macro_use]
mod tensor_type;

mod activations;
mod arch;
mod attention;
mod buffer;
mod elementwise;
mod matrix;
mod operands;
pub mod platform;
pub mod pool;
mod product;
mod quantized;
mod recurrence;
pub mod step;

pub use activations::Activations;
pub use attention::{BLOCK_TOKENS, KvFormat, Window};
pub use elementwise::Activation;
pub use matrix::{Matrix, PackError, ROW_GROUP};
pub use operands::ActivationBits;
pub use product::matmul;
pub use quantized::{IQ4_NL_VALUES, MXFP4_VALUES, dequantize, exponent_scale};
pub use tensor_type::{TensorType, UnknownTensorType};
