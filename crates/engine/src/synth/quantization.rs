//! The storage format of each tensor.

use std::fmt;

use super::SynthError;
use crate::gguf::TensorType;

/// How the matrices of a model are stored. Norms, biases and factors are always F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the field writes them so")]
pub enum Quantization {
    /// All in one format.
    Uniform(TensorType),
    /// llama.cpp's mixture of 4-bit and 6-bit formats, the most common one among published files.
    Q4_K_M,
    /// Experts in MXFP4, all else in Q8_0, as gpt-oss is published.
    MXFP4_MOE,
}

/// The role of a matrix, where formats depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatrixRole {
    /// Computes the logits, and the embeddings too if they are the same matrix.
    Output,
    /// Values, or the feed-forward layer's down projection.
    Sensitive {
        /// Number of matrices of this kind before it.
        index: usize,
        /// Total number of matrices of this kind.
        count: usize,
    },
    /// The down projection of experts.
    SensitiveExpert {
        /// Number of matrices of this kind before it.
        index: usize,
        /// Total number of matrices of this kind.
        count: usize,
    },
    /// Any other matrix of experts.
    Expert,
    /// A matrix that is never quantized.
    Kept,
    /// Queries, keys and values in one matrix.
    FusedAttention,
    /// Any other matrix.
    Plain,
}

impl Quantization {
    /// Every quantization.
    pub fn all() -> impl Iterator<Item = Quantization> {
        TensorType::ALL.into_iter().map(Quantization::Uniform).chain([Quantization::Q4_K_M, Quantization::MXFP4_MOE])
    }

    /// The quantization with this name, in lower or upper case.
    ///
    /// # Errors
    /// When it does not exist; the error lists the known ones.
    pub fn named(name: &str) -> Result<Self, SynthError> {
        let found = Self::all().find(|quantization| quantization.to_string().eq_ignore_ascii_case(name));
        found.ok_or_else(|| SynthError::UnknownQuantization {
            name: name.to_owned(),
            known: Self::all().map(|each| each.to_string()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The format of a matrix with rows of `row_elements`.
    pub(super) fn tensor_type(self, role: MatrixRole, row_elements: usize) -> TensorType {
        let wanted = match (self, role) {
            (Quantization::Uniform(tensor_type), MatrixRole::Kept) if tensor_type.block_elements() == 1 => tensor_type,
            (_, MatrixRole::Kept) => TensorType::BF16,
            (Quantization::Uniform(tensor_type), _) => tensor_type,
            (Quantization::Q4_K_M, _) => q4_k_m(role),
            (Quantization::MXFP4_MOE, MatrixRole::Expert | MatrixRole::SensitiveExpert { .. }) => TensorType::MXFP4,
            (Quantization::MXFP4_MOE, _) => TensorType::Q8_0,
        };
        if row_elements.is_multiple_of(wanted.block_elements()) { wanted } else { fallback(wanted, row_elements) }
    }

    /// The value of `general.file_type` (`llama_ftype` in `llama.h`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            Quantization::Uniform(tensor_type) => tensor_type.file_type(),
            Quantization::Q4_K_M => 15,
            Quantization::MXFP4_MOE => 38,
        }
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantization::Uniform(tensor_type) => f.write_str(&tensor_type.name().to_lowercase()),
            Quantization::Q4_K_M => f.write_str("q4_k_m"),
            Quantization::MXFP4_MOE => f.write_str("mxfp4_moe"),
        }
    }
}

/// The rules of `llama-quant.cpp` (<https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp>): more bits
/// for the output matrix, and for the first and the last eighth of the sensitive matrices and every third one between.
/// Fused attention is Q5_K, as in published Phi-3 files.
fn q4_k_m(role: MatrixRole) -> TensorType {
    let more_bits =
        |index: usize, count: usize| index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
    match role {
        MatrixRole::Output => TensorType::Q6_K,
        MatrixRole::Sensitive { index, count } | MatrixRole::SensitiveExpert { index, count }
            if more_bits(index, count) =>
        {
            TensorType::Q6_K
        }
        MatrixRole::FusedAttention => TensorType::Q5_K,
        _ => TensorType::Q4_K,
    }
}

/// The format that llama.cpp uses instead if rows are not whole blocks.
fn fallback(wanted: TensorType, row_elements: usize) -> TensorType {
    let smaller = match wanted {
        TensorType::Q2_K | TensorType::Q3_K | TensorType::TQ1_0 | TensorType::TQ2_0 => TensorType::Q4_0,
        TensorType::IQ2_XXS
        | TensorType::IQ2_XS
        | TensorType::IQ2_S
        | TensorType::IQ3_XXS
        | TensorType::IQ3_S
        | TensorType::IQ4_XS => TensorType::IQ4_NL,
        TensorType::Q4_K => TensorType::Q5_0,
        TensorType::Q5_K => TensorType::Q5_1,
        TensorType::Q6_K => TensorType::Q8_0,
        _ => TensorType::F16,
    };
    if row_elements.is_multiple_of(smaller.block_elements()) { smaller } else { TensorType::F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_quantization() {
        for quantization in Quantization::all() {
            assert_eq!(Quantization::named(&quantization.to_string()).unwrap(), quantization);
        }
        assert_eq!(Quantization::named("Q4_K_M").unwrap(), Quantization::Q4_K_M);
        let message = Quantization::named("q9").unwrap_err().to_string();
        assert!(message.starts_with("there is no quantization \"q9\"; there are f32, f16, bf16, q4_0"), "{message}");
    }

    /// The layers for which a Mistral 7B in Q4_K_M uses Q6_K.
    #[test]
    fn the_mixture_gives_more_bits_to_half_of_the_layers() {
        let more_bits =
            (0..32).filter(|layer| q4_k_m(MatrixRole::Sensitive { index: *layer, count: 32 }) == TensorType::Q6_K);
        assert_eq!(more_bits.collect::<Vec<_>>(), [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
    }

    #[test]
    fn rows_that_are_no_whole_blocks_take_another_format() {
        let of = |quantization: Quantization, role, row| quantization.tensor_type(role, row);
        assert_eq!(of(Quantization::Q4_K_M, MatrixRole::Plain, 256), TensorType::Q4_K);
        assert_eq!(of(Quantization::Q4_K_M, MatrixRole::Plain, 96), TensorType::Q5_0);
        assert_eq!(of(Quantization::Q4_K_M, MatrixRole::FusedAttention, 96), TensorType::Q5_1);
        assert_eq!(of(Quantization::Q4_K_M, MatrixRole::Output, 96), TensorType::Q8_0);
        assert_eq!(of(Quantization::Q4_K_M, MatrixRole::Output, 40), TensorType::F16);
        assert_eq!(of(Quantization::Uniform(TensorType::Q3_K), MatrixRole::Plain, 96), TensorType::Q4_0);
        assert_eq!(of(Quantization::Uniform(TensorType::IQ4_NL), MatrixRole::Plain, 40), TensorType::F16);
        assert_eq!(of(Quantization::Uniform(TensorType::F32), MatrixRole::Plain, 41), TensorType::F32);
    }
}
