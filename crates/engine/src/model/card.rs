//! The GPU that runs models.

use super::ModelOptions;
#[cfg(feature = "cuda")]
use super::loading::{Runner, runner};
#[cfg(feature = "cuda")]
use crate::backend::cuda;

/// A GPU that runs models with our own kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The product, such as "NVIDIA H200".
    pub product_name: String,
    /// All of its memory in bytes.
    pub memory_bytes: u64,
    /// The free part of it, now.
    pub free_bytes: u64,
    #[cfg(feature = "cuda")]
    ordinal: usize,
}

#[cfg(feature = "cuda")]
impl Card {
    /// The GPU that models run on with these options, if any.
    pub fn of(options: &ModelOptions) -> Option<Card> {
        let Runner::Cuda(ordinal) = runner(options).ok()? else { return None };
        let device = cuda::open(ordinal).ok()?;
        let (free, total) = device.memory().ok()?;
        let product_name = device.product_name();
        Some(Card { product_name, memory_bytes: total as u64, free_bytes: free as u64, ordinal })
    }

    /// The speed at which its memory is read, in bytes per second, measured now; `None` if its memory is full.
    pub fn measure_bandwidth(&self) -> Option<f64> {
        const COPIED_BYTES: usize = 256 << 20;
        cuda::open(self.ordinal).ok()?.measure_bandwidth(COPIED_BYTES).ok()
    }
}

#[cfg(not(feature = "cuda"))]
impl Card {
    /// The GPU that models run on with these options, if any: a binary without kernels for GPUs uses none.
    pub fn of(_: &ModelOptions) -> Option<Card> {
        None
    }

    /// The speed at which its memory is read, in bytes per second, measured now; `None` if its memory is full.
    pub fn measure_bandwidth(&self) -> Option<f64> {
        None
    }
}
