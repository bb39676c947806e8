//! Tensors of a GGUF file as candle's, decoded to floats.

use candle_core::{Device, Result as CandleResult, Tensor};
use candle_nn::ops::{layer_norm, rms_norm};
use hone_kernels::dequantize;

pub(crate) use super::architecture::Norms;
use crate::gguf::Gguf;

/// A tensor of this name and shape, the rows first.
///
/// # Errors
/// When it is missing, or has another shape.
pub(super) fn take(gguf: &Gguf, name: &str, shape: &[usize]) -> Result<Tensor, String> {
    let floats = floats(gguf, name, shape)?;
    Tensor::from_vec(floats, shape, &Device::Cpu).map_err(|error| error.to_string())
}

/// The elements of a tensor of this name and shape, row after row. Some programs leave out the dimension of a single
/// row.
///
/// # Errors
/// When it is missing, or has another shape.
pub(crate) fn floats(gguf: &Gguf, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
    let tensor = gguf.tensor(name).ok_or_else(|| format!("the tensor {name} is missing"))?;
    let found: Vec<usize> = tensor.dimensions.iter().rev().copied().collect();
    if without_single_rows(&found) != without_single_rows(shape) {
        return Err(format!("the tensor {name} has the shape {found:?}, not {shape:?}"));
    }
    let mut floats = vec![0.0; tensor.n_elements()];
    dequantize(tensor.tensor_type, gguf.tensor_bytes(tensor), &mut floats);
    Ok(floats)
}

fn without_single_rows(shape: &[usize]) -> &[usize] {
    match shape {
        [1, rest @ ..] if !rest.is_empty() => without_single_rows(rest),
        shape => shape,
    }
}

/// Number of rows of a matrix, if the file has it.
pub(crate) fn n_rows(gguf: &Gguf, name: &str) -> Option<usize> {
    gguf.tensor(name).map(|tensor| tensor.dimensions.get(1).copied().unwrap_or(1))
}

/// A product with a matrix of `[outputs, inputs]`.
pub(crate) struct Linear {
    matrix: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// The matrix `NAME.weight`, and `NAME.bias` if the file has it or it is needed.
    pub(crate) fn read(gguf: &Gguf, name: &str, shape: [usize; 2], needs_bias: bool) -> Result<Linear, String> {
        let bias = format!("{name}.bias");
        let has_bias = needs_bias || gguf.tensor(&bias).is_some();
        Ok(Linear {
            matrix: take(gguf, &format!("{name}.weight"), &shape)?,
            bias: has_bias.then(|| take(gguf, &bias, &shape[..1])).transpose()?,
        })
    }

    /// A product that concatenates the outputs of these.
    pub(super) fn joined(parts: &[Linear]) -> CandleResult<Linear> {
        let matrices: Vec<&Tensor> = parts.iter().map(|part| &part.matrix).collect();
        let biases: Vec<&Tensor> = parts.iter().filter_map(|part| part.bias.as_ref()).collect();
        let bias = if biases.len() < parts.len() { None } else { Some(Tensor::cat(&biases, 0)?) };
        Ok(Linear { matrix: Tensor::cat(&matrices, 0)?, bias })
    }

    /// Maps rows of inputs to rows of outputs.
    pub(crate) fn apply(&self, rows: &Tensor) -> CandleResult<Tensor> {
        let product = rows.matmul(&self.matrix.t()?)?;
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

/// A norm of rows.
pub(crate) struct Norm {
    weight: Tensor,
    /// `None` in RMS norms.
    bias: Option<Tensor>,
    epsilon: f32,
}

impl Norm {
    /// The norm `NAME.weight`, with `NAME.bias` where it has one.
    pub(crate) fn read(gguf: &Gguf, name: &str, width: usize, norms: Norms, epsilon: f32) -> Result<Norm, String> {
        let part = |part: &str| take(gguf, &format!("{name}.{part}"), &[width]);
        let has_bias = gguf.tensor(&format!("{name}.bias")).is_some();
        let bias = match norms {
            Norms::Rms => None,
            Norms::Layer { has_bias: needs_one } if needs_one || has_bias => Some(part("bias")?),
            Norms::Layer { .. } => {
                Some(Tensor::from_vec(vec![0f32; width], width, &Device::Cpu).map_err(|error| error.to_string())?)
            }
        };
        Ok(Norm { weight: part("weight")?, bias, epsilon })
    }

    pub(crate) fn apply(&self, rows: &Tensor) -> CandleResult<Tensor> {
        match &self.bias {
            Some(bias) => layer_norm(rows, &self.weight, bias, self.epsilon),
            None => rms_norm(rows, &self.weight, self.epsilon),
        }
    }
}
