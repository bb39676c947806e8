//! A linear layer, its weights as the file stores them.

use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};

use crate::backend::BackendError;

/// From this many rows on, weights that candle multiplies without vector instructions are dequantized for the product:
/// the matrix product saves more than the dequantization costs.
const DEQUANTIZE_FROM_ROWS: usize = 16;

/// Computes x · Wᵀ (+ b).
pub(super) struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

enum Weight {
    /// Blocks, multiplied by candle's quantized kernels.
    Quantized { matmul: QMatMul, tensor: Arc<QTensor>, has_slow_kernel: bool },
    /// `[out, in]`, f32 on the processor and as stored elsewhere.
    Dense(Tensor),
}

impl Linear {
    pub(super) fn new(tensor: Arc<QTensor>, bias: Option<Tensor>) -> Result<Self, BackendError> {
        let weight = match tensor.dtype() {
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => Weight::Dense(dense(&tensor)?),
            stored => {
                let has_slow_kernel =
                    matches!(tensor.device(), Device::Cpu) && matches!(stored, GgmlDType::Q4_1 | GgmlDType::Q5_1);
                Weight::Quantized { matmul: QMatMul::from_arc(tensor.clone())?, tensor, has_slow_kernel }
            }
        };
        Ok(Linear { weight, bias })
    }

    /// `[n_tokens, in]` to `[n_tokens, out]`.
    pub(super) fn forward(&self, rows: &Tensor) -> Result<Tensor, BackendError> {
        let rows = rows.contiguous()?;
        let product = match &self.weight {
            Weight::Dense(weight) => rows.to_dtype(weight.dtype())?.matmul(&weight.t()?)?.to_dtype(DType::F32)?,
            Weight::Quantized { tensor, has_slow_kernel: true, .. } if rows.dim(0)? >= DEQUANTIZE_FROM_ROWS => {
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
