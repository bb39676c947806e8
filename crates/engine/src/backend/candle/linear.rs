//! A linear layer, with its weights as the file stores them.

use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};

use crate::backend::BackendError;

/// From this many rows on, weights that candle multiplies without vector instructions are dequantized before the
/// product on the processor: the faster matrix product saves more than the dequantization costs.
const DEQUANTIZE_SLOW_FROM_ROWS: usize = 16;

/// From this many rows on, all quantized weights are dequantized. Besides time, this saves rounding the activations to
/// 8 bits (for the K types, with one scale for 256 of them, which costs 1 to 2 % of perplexity): the backend that
/// others are compared with should be the exact one.
const DEQUANTIZE_FROM_ROWS: usize = 64;

/// Computes x · Wᵀ (+ b).
pub(super) struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

enum Weight {
    /// Quantized blocks, multiplied by candle's kernels.
    Quantized { matmul: QMatMul, tensor: Arc<QTensor>, dequantize_from_rows: usize },
    /// `[out, in]`, f32 on the processor and as stored elsewhere.
    Dense(Tensor),
}

impl Linear {
    /// `is_substitute` says that the file has the weights in a type that candle lacks. Then candle has no fast kernel
    /// for it, and on the processor products are exact instead.
    pub(super) fn new(tensor: Arc<QTensor>, bias: Option<Tensor>, is_substitute: bool) -> Result<Self, BackendError> {
        let weight = match tensor.dtype() {
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => Weight::Dense(dense(&tensor)?),
            stored => {
                let dequantize_from_rows = match (tensor.device(), stored) {
                    (Device::Cpu, _) if is_substitute => 1,
                    (Device::Cpu, GgmlDType::Q4_1 | GgmlDType::Q5_1) => DEQUANTIZE_SLOW_FROM_ROWS,
                    (Device::Cpu, _) => DEQUANTIZE_FROM_ROWS,
                    _ => usize::MAX,
                };
                Weight::Quantized { matmul: QMatMul::from_arc(tensor.clone())?, tensor, dequantize_from_rows }
            }
        };
        Ok(Linear { weight, bias })
    }

    /// `[n_tokens, in]` to `[n_tokens, out]`.
    pub(super) fn forward(&self, rows: &Tensor) -> Result<Tensor, BackendError> {
        let rows = rows.contiguous()?;
        let product = match &self.weight {
            Weight::Dense(weight) => rows.to_dtype(weight.dtype())?.matmul(&weight.t()?)?.to_dtype(DType::F32)?,
            Weight::Quantized { tensor, dequantize_from_rows, .. } if rows.dim(0)? >= *dequantize_from_rows => {
                rows.matmul(&tensor.dequantize(rows.device())?.t()?)?
            }
            Weight::Quantized { matmul, .. } => matmul.forward(&rows)?,
        };
        match &self.bias {
            Some(bias) => Ok(product.broadcast_add(bias)?),
            None => Ok(product),
        }
    }
}

fn dense(tensor: &QTensor) -> Result<Tensor, BackendError> {
    let device = tensor.device();
    let values = tensor.dequantize(&device)?;
    match (tensor.dtype(), &device) {
        (GgmlDType::F16, Device::Cuda(_) | Device::Metal(_)) => Ok(values.to_dtype(DType::F16)?),
        (GgmlDType::BF16, Device::Cuda(_) | Device::Metal(_)) => Ok(values.to_dtype(DType::BF16)?),
        _ => Ok(values),
    }
}
