//! A decoder's step on an NVIDIA GPU.
//!
//! The kernels are CUDA C++ (`cuda/`). They are compiled twice: by nvcc for cards, with the feature `cuda`, and as
//! plain C++ with the feature `host`, where every block runs on the processor, thread by thread, so that tests check
//! each of them without a card. A decoder is described by `hone-kernels`' program builder, and the processor's own
//! kernels run the same descriptions; [`Program`] turns every phase of it into launches.
//!
//! Weights keep the file's format. A product with few rows reads them in that form, and the activations in 8 bits; one
//! with many rows unpacks a matrix to bfloat16 and hands it to the tensor cores. The last bits of a row's results
//! therefore depend on the number of rows of the step.

mod arguments;
mod device;
#[cfg(feature = "host")]
mod host;
mod host_memory;
mod matrix;
#[cfg(feature = "cuda")]
mod nvidia;
#[cfg(any(feature = "cuda", feature = "host"))]
mod opening;
mod program;
mod shapes;

pub use device::{DeviceError, SharedDevice};
pub use matrix::{DeviceMatrix, is_native};
pub use program::{Program, ProgramError};
