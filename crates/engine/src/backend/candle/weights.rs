//! A model's tensors, put on the device.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};

use super::linear::Linear;
use super::transcode::{substitute, transcode};
use crate::backend::progress::LoadedBytes;
use crate::backend::tensors::{
    ExpertTensors, LayerInputs, LayerParts, LinearTensors, MatrixTensor, Placing, Storage, find,
};
use crate::backend::{BackendError, LoadProgress};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorType};

pub(super) type LayerWeights = LayerParts<OnDevice>;

/// A linear layer of every expert.
pub(super) struct Experts(pub(super) Vec<Linear>);

pub(super) struct ModelWeights {
    embeddings: Arc<QTensor>,
    pub(super) layer_inputs: Option<LayerInputs<OnDevice>>,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) output_norm: Tensor,
    pub(super) output: Linear,
}

impl ModelWeights {
    pub(super) fn load(
        gguf: &Gguf,
        spec: &DecoderSpec,
        device: &Device,
        progress: &LoadProgress,
    ) -> Result<Self, BackendError> {
        let tensors = find(gguf, spec)?;
        let sizes = tensors.matrices().chain(tensors.expert_matrices()).map(|tensor| tensor.bytes.len());
        let loaded = progress.begin(sizes);
        let parts = tensors.place(&mut OnDevice { device: device.clone(), substituted: BTreeSet::new(), loaded })?;
        let embeddings = parts.embeddings.expect("a whole model has them");
        let output = match parts.output {
            Some(output) => output,
            None => Linear::new(embeddings.clone(), None, false)?,
        };
        Ok(ModelWeights {
            embeddings,
            layer_inputs: parts.layer_inputs,
            layers: parts.layers,
            output_norm: parts.output_norm,
            output,
        })
    }

    /// `[n_tokens, hidden_size]`, f32.
    pub(super) fn embed(&self, tokens: &[u32], device: &Device) -> Result<Tensor, BackendError> {
        rows_of(&self.embeddings, tokens, device)
    }
}

/// The rows of a table that belong to tokens, f32.
pub(super) fn rows_of(table: &QTensor, tokens: &[u32], device: &Device) -> Result<Tensor, BackendError> {
    let ids = Tensor::new(tokens, device)?;
    Ok(table.embedding(&ids)?.to_dtype(candle_core::DType::F32)?)
}

/// Parts on a device.
pub(super) struct OnDevice {
    device: Device,
    /// Types that candle lacks, and that have been logged.
    substituted: BTreeSet<TensorType>,
    loaded: LoadedBytes,
}

impl OnDevice {
    /// Warns once for each type that the weights are stored differently from the file.
    fn announce(&mut self, tensor_type: TensorType) {
        if self.substituted.insert(tensor_type) {
            let (form, n_bits) = match substitute(tensor_type, &self.device) {
                GgmlDType::Q8_0 => ("Q8_0", 8.5),
                GgmlDType::F16 => ("F16", 16.0),
                _ => ("F32", 32.0),
            };
            tracing::warn!(
                "the candle backend lacks {tensor_type}: it holds such weights as {form}, {n_bits} bits each"
            );
        }
    }
}

impl Storage for OnDevice {
    type Matrix = Arc<QTensor>;
    type Linear = Linear;
    type Experts = Experts;
    type Vector = Tensor;
}

impl Placing for OnDevice {
    fn experts(&mut self, tensors: ExpertTensors<'_>) -> Result<Experts, BackendError> {
        let matrices: Vec<MatrixTensor<'_>> = tensors.matrices().collect();
        let width = matrices.first().map_or(1, |matrix| matrix.n_rows);
        let mut biases = tensors.bias.iter().flat_map(|bias| bias.chunks_exact(width));
        let linear = |weight| self.linear(LinearTensors { weight, bias: biases.next().map(<[f32]>::to_vec) });
        matrices.into_iter().map(linear).collect::<Result<_, _>>().map(Experts)
    }

    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<Arc<QTensor>, BackendError> {
        let (stored, data) = match candle_type(tensor.tensor_type) {
            Some(stored) => (stored, Cow::Borrowed(tensor.bytes)),
            None => {
                self.announce(tensor.tensor_type);
                (substitute(tensor.tensor_type, &self.device), Cow::Owned(transcode(&tensor, &self.device)?))
            }
        };
        let storage = QStorage::from_data(data, &self.device, stored)?;
        self.loaded.add(tensor.bytes.len());
        Ok(Arc::new(QTensor::new(storage, (tensor.n_rows, tensor.n_columns))?))
    }

    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Linear, BackendError> {
        let bias = tensors.bias.map(|bias| self.vector(bias)).transpose()?;
        let is_substitute = candle_type(tensors.weight.tensor_type).is_none();
        Linear::new(self.matrix(tensors.weight)?, bias, is_substitute)
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<Tensor, BackendError> {
        let width = values.len();
        Ok(Tensor::from_vec(values, width, &self.device)?)
    }
}

/// candle's name for a type, if it has one.
pub(super) fn candle_type(tensor_type: TensorType) -> Option<GgmlDType> {
    Some(match tensor_type {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use hone_kernels::dequantize;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;

    /// Arbitrary bytes, so that every bit of a block counts, including scales that are not numbers.
    #[test]
    fn every_type_that_candle_knows_decodes_to_the_same_bits() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (tensor_type, candle) in TensorType::ALL.into_iter().filter_map(|each| Some((each, candle_type(each)?))) {
            let n_blocks = 300;
            let mut bytes = vec![0; n_blocks * tensor_type.block_bytes()];
            rng.fill_bytes(&mut bytes);
            let mut ours = vec![0.0; n_blocks * tensor_type.block_elements()];
            dequantize(tensor_type, &bytes, &mut ours);
            let storage = QStorage::from_data(bytes.into(), &Device::Cpu, candle).unwrap();
            let tensor = QTensor::new(storage, ours.len()).unwrap().dequantize(&Device::Cpu).unwrap();
            for (index, (ours, theirs)) in ours.iter().zip(tensor.to_vec1::<f32>().unwrap()).enumerate() {
                let same = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan() || *ours == theirs;
                assert!(same, "{tensor_type} element {index}: {ours} where candle has {theirs}");
            }
        }
    }
}
