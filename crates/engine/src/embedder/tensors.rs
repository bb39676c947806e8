//! Tensors of a GGUF file as candle's, decoded to floats.

use candle_core::{Device, Tensor};
use hone_kernels::dequantize;

use crate::gguf::Gguf;

/// A tensor of this name and shape, the rows first.
///
/// # Errors
/// When it is missing, or has another shape.
pub(super) fn take(gguf: &Gguf, name: &str, shape: &[usize]) -> Result<Tensor, String> {
    let tensor = gguf.tensor(name).ok_or_else(|| format!("the tensor {name} is missing"))?;
    let found: Vec<usize> = tensor.dimensions.iter().rev().copied().collect();
    if found != shape {
        return Err(format!("the tensor {name} has the shape {found:?}, not {shape:?}"));
    }
    let mut floats = vec![0.0; tensor.n_elements()];
    dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut floats);
    Tensor::from_vec(floats, shape, &Device::Cpu).map_err(|error| error.to_string())
}
