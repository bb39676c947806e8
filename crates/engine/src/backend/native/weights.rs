//! A model's tensors, packed for the kernels.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hone_kernels::pool::Pool;
use hone_kernels::step::{MatrixId, ProgramBuilder, VectorId};
use hone_kernels::{Matrix, PackError, WeightType};

use crate::backend::BackendError;
use crate::backend::tensors::{LinearTensors, MatrixTensor, ModelParts, ModelTensors, Place};
use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, TensorType};

/// A linear layer, by the names that the program knows its parts by.
#[derive(Clone, Copy)]
pub(super) struct Linear {
    pub(super) matrix: MatrixId,
    pub(super) bias: Option<VectorId>,
}

/// A model's weights, and the program that holds them.
pub(super) struct Weights {
    pub(super) builder: ProgramBuilder,
    pub(super) parts: ModelParts<MatrixId, Linear, VectorId>,
}

/// Finds and packs all of a model's tensors, on all threads of the pool.
pub(super) fn load(gguf: &Gguf, spec: &DecoderSpec, pool: &mut Pool) -> Result<Weights, BackendError> {
    let tensors = ModelTensors::find(gguf, spec)?;
    let mut program = InProgram { builder: ProgramBuilder::new(), packed: pack(&tensors, pool)? };
    let parts = tensors.place(&mut program)?;
    Ok(Weights { builder: program.builder, parts })
}

/// Packs every matrix; the largest come first, so that no thread begins one when the others are done.
fn pack(tensors: &ModelTensors<'_>, pool: &mut Pool) -> Result<BTreeMap<String, Matrix>, BackendError> {
    let mut matrices: Vec<&MatrixTensor<'_>> = tensors.matrices().collect();
    matrices.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes.len()));
    let packed: Vec<OnceLock<Result<Matrix, PackError>>> = matrices.iter().map(|_| OnceLock::new()).collect();
    pool.for_each(matrices.len(), |task, _thread| {
        let MatrixTensor { tensor_type, n_rows, n_columns, bytes, .. } = matrices[task];
        packed[task].get_or_init(|| Matrix::pack(weight_type(*tensor_type), *n_rows, *n_columns, bytes));
    });
    let named = matrices.iter().zip(packed).map(|(tensor, cell)| {
        let name = tensor.name.clone();
        match cell.into_inner().expect("every matrix was packed") {
            Ok(matrix) => Ok((name, matrix)),
            Err(error) => Err(BackendError::Tensor { name, reason: format!("cannot be used: {error}") }),
        }
    });
    named.collect()
}

/// Puts matrices that are packed already, and vectors, into a program.
struct InProgram {
    builder: ProgramBuilder,
    packed: BTreeMap<String, Matrix>,
}

impl Place for InProgram {
    type Matrix = MatrixId;
    type Linear = Linear;
    type Vector = VectorId;

    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<MatrixId, BackendError> {
        Ok(self
            .builder
            .matrix(self.packed.remove(&tensor.name).expect("every matrix was packed, and has its own name")))
    }

    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Linear, BackendError> {
        let bias = tensors.bias.map(|bias| self.builder.vector(bias));
        Ok(Linear { matrix: self.matrix(tensors.weight)?, bias })
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, BackendError> {
        Ok(self.builder.vector(values))
    }
}

/// The name that the kernels have for a type.
fn weight_type(tensor_type: TensorType) -> WeightType {
    match tensor_type {
        TensorType::F32 => WeightType::F32,
        TensorType::F16 => WeightType::F16,
        TensorType::BF16 => WeightType::BF16,
        TensorType::Q4_0 => WeightType::Q4_0,
        TensorType::Q4_1 => WeightType::Q4_1,
        TensorType::Q5_0 => WeightType::Q5_0,
        TensorType::Q5_1 => WeightType::Q5_1,
        TensorType::Q8_0 => WeightType::Q8_0,
        TensorType::Q2_K => WeightType::Q2_K,
        TensorType::Q3_K => WeightType::Q3_K,
        TensorType::Q4_K => WeightType::Q4_K,
        TensorType::Q5_K => WeightType::Q5_K,
        TensorType::Q6_K => WeightType::Q6_K,
        TensorType::IQ4_NL => WeightType::IQ4_NL,
    }
}
