//! Converts types that candle lacks: to Q8_0 where it represents the same numbers, and otherwise to floats.
//!
//! The weights of some types are a scale times integers of at most 8 bits, with one scale for 32 columns or more, so
//! Q8_0 blocks represent them exactly. MXFP4's scales are powers of two and reach further than those of Q8_0: weights
//! smaller than `2^-24` are rounded to multiples of it, as F16 would round them, and weights that are too large are
//! refused.
//!
//! Other types have more precise scales than the 11 bits of a half-precision number, or one for 16 columns. Their
//! weights are rounded to F16; on the processor, where candle computes with F16 as F32 anyway, they stay exact.

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use half::f16;
use hone_kernels::dequantize;

use crate::backend::BackendError;
use crate::backend::tensors::MatrixTensor;
use crate::gguf::TensorType;

/// Columns that share a scale in Q8_0.
const Q8_0_BLOCK: usize = 32;

/// The type that replaces one that candle lacks.
pub(super) fn substitute(tensor_type: TensorType, device: &Device) -> GgmlDType {
    match (scale_of(tensor_type), device) {
        (Some(_), _) => GgmlDType::Q8_0,
        (None, Device::Cpu) => GgmlDType::F32,
        (None, _) => GgmlDType::F16,
    }
}

/// Converts the blocks of a matrix to those of its [`substitute`].
///
/// # Errors
/// When a weight is too large for it.
pub(super) fn transcode(tensor: &MatrixTensor<'_>, device: &Device) -> Result<Vec<u8>, BackendError> {
    match (scale_of(tensor.tensor_type), device) {
        (Some(scale), _) => to_q8_0(tensor, scale),
        (None, Device::Cpu) => Ok(decode(tensor, f32::to_le_bytes)),
        (None, _) => Ok(decode(tensor, |weight| f16::from_f32(weight).to_le_bytes())),
    }
}

/// The place of a block's scale, for types whose weights are integers times a scale.
#[derive(Clone, Copy)]
enum ScaleAt {
    /// A half-precision number at this offset.
    Half(usize),
    /// The exponent at offset 0: the scale is `2^(exponent - 128)`.
    Exponent,
}

fn scale_of(tensor_type: TensorType) -> Option<ScaleAt> {
    match tensor_type {
        TensorType::IQ4_NL => Some(ScaleAt::Half(0)),
        TensorType::MXFP4 => Some(ScaleAt::Exponent),
        TensorType::TQ1_0 => Some(ScaleAt::Half(52)),
        TensorType::TQ2_0 => Some(ScaleAt::Half(64)),
        _ => None,
    }
}

/// Blocks are decoded with a scale of one, which leaves the integers.
fn to_q8_0(tensor: &MatrixTensor<'_>, scale: ScaleAt) -> Result<Vec<u8>, BackendError> {
    let tensor_type = tensor.tensor_type;
    let mut transcoded = Vec::with_capacity(tensor.n_rows * tensor.n_columns / Q8_0_BLOCK * (2 + Q8_0_BLOCK));
    let mut integers = vec![0.0; tensor_type.block_elements()];
    let mut unscaled = vec![0; tensor_type.block_bytes()];
    for block in tensor.bytes.chunks_exact(tensor_type.block_bytes()) {
        unscaled.copy_from_slice(block);
        let scale = match scale {
            ScaleAt::Half(at) => {
                unscaled[at..at + 2].copy_from_slice(&f16::ONE.to_le_bytes());
                [block[at], block[at + 1]]
            }
            ScaleAt::Exponent => {
                // The nearest power of two that a half-precision number represents; the integers take the rest.
                let power = i32::from(block[0]) - 128;
                let nearest = power.clamp(-24, 15);
                let rest = (128 + (power - nearest)).clamp(0, 255);
                unscaled[0] = rest as u8;
                f16::from_f32(2f32.powi(nearest)).to_le_bytes()
            }
        };
        dequantize(tensor_type, &unscaled, &mut integers);
        for integers in integers.chunks_exact(Q8_0_BLOCK) {
            if integers.iter().any(|integer| integer.abs() > 127.0) {
                return Err(BackendError::Tensor {
                    name: tensor.name.to_string(),
                    reason: format!(
                        "has weights of {tensor_type} that are too large for the candle backend: use --backend native"
                    ),
                });
            }
            transcoded.extend_from_slice(&scale);
            transcoded.extend(integers.iter().map(|integer| integer.round_ties_even() as i8 as u8));
        }
    }
    Ok(transcoded)
}

fn decode<const BYTES: usize>(tensor: &MatrixTensor<'_>, encode: impl Fn(f32) -> [u8; BYTES]) -> Vec<u8> {
    let mut transcoded = Vec::with_capacity(tensor.n_rows * tensor.n_columns * BYTES);
    let mut weights = vec![0.0; tensor.tensor_type.block_elements()];
    for block in tensor.bytes.chunks_exact(tensor.tensor_type.block_bytes()) {
        dequantize(tensor.tensor_type, block, &mut weights);
        transcoded.extend(weights.iter().flat_map(|weight| encode(*weight)));
    }
    transcoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights with this exponent as Q8_0 has them, compared with those of the format.
    fn mxfp4(exponent: u8) -> Result<Vec<f32>, BackendError> {
        let mut bytes = vec![exponent];
        bytes.extend((0..16).map(|code| code | (15 - code) << 4));
        let tensor_type = TensorType::MXFP4;
        let name = "some.weight".into();
        let tensor = MatrixTensor { name, n_rows: 1, n_columns: 32, tensor_type, bytes: &bytes };
        let mut weights = vec![0.0; 32];
        dequantize(TensorType::Q8_0, &transcode(&tensor, &Device::Cpu)?, &mut weights);
        let mut expected = vec![0.0; 32];
        dequantize(tensor_type, &bytes, &mut expected);
        for (weight, expected) in weights.iter().zip(&expected) {
            assert!((weight - expected).abs() <= 2f32.powi(-25), "{weight} and not {expected} at 2^{exponent} / 2^128");
        }
        Ok(weights)
    }

    #[test]
    fn the_powers_of_mxfp4_fit_into_q8_0_or_are_refused() {
        for exponent in 0..=146 {
            let weights = mxfp4(exponent).unwrap();
            let largest = 12.0 * 2f32.powi(i32::from(exponent) - 128);
            let is_exact = weights.contains(&largest);
            assert!(is_exact || exponent < 102, "2^{exponent} / 2^128");
        }
        let message = mxfp4(147).unwrap_err().to_string();
        let expected = "tensor \"some.weight\" has weights of MXFP4 that are too large for the candle backend: use \
                        --backend native";
        assert_eq!(message, expected);
        assert!(mxfp4(255).is_err());
    }
}
