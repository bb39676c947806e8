//! Converts types that candle lacks to Q8_0.
//!
//! The 16 values of IQ4_NL are 8-bit integers, so a Q8_0 block represents the same numbers exactly: the scale stays,
//! and every index is replaced by the value it stands for.

use hone_kernels::IQ4_NL_VALUES;

use crate::backend::BackendError;
use crate::backend::tensors::MatrixTensor;
use crate::gguf::TensorType;

/// Converts the blocks of a matrix to the same number of Q8_0 blocks.
///
/// # Errors
/// When Q8_0 cannot represent the type's values.
pub(super) fn to_q8_0(tensor: &MatrixTensor<'_>) -> Result<Vec<u8>, BackendError> {
    match tensor.tensor_type {
        TensorType::IQ4_NL => Ok(iq4_nl_to_q8_0(tensor.bytes)),
        other => Err(BackendError::Tensor {
            name: tensor.name.to_string(),
            reason: format!("is {other}, which the candle backend cannot compute with: use --backend native"),
        }),
    }
}

/// Converts whole IQ4_NL blocks to the same number of Q8_0 blocks.
fn iq4_nl_to_q8_0(blocks: &[u8]) -> Vec<u8> {
    let mut transcoded = Vec::with_capacity(blocks.len() / 18 * 34);
    for block in blocks.chunks_exact(TensorType::IQ4_NL.block_bytes()) {
        let (scale, indices) = block.split_at(2);
        transcoded.extend_from_slice(scale);
        transcoded.extend(indices.iter().map(|pair| IQ4_NL_VALUES[usize::from(pair & 15)] as u8));
        transcoded.extend(indices.iter().map(|pair| IQ4_NL_VALUES[usize::from(pair >> 4)] as u8));
    }
    transcoded
}
