//! A model's tensors, packed for the kernels.

use std::collections::BTreeMap;

use hone_kernels::Matrix;
use hone_kernels::pool::Pool;
use hone_kernels::step::{ExpertsId, MatrixId, ProgramBuilder, VectorId};

use crate::backend::BackendError;
use crate::backend::tensors::{
    ExpertTensors, LinearTensors, MatrixTensor, ModelParts, ModelTensors, Place, Storage, find,
};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;

/// A linear layer, as the program's names for its parts.
#[derive(Clone, Copy)]
pub(super) struct Linear {
    pub(super) matrix: MatrixId,
    pub(super) bias: Option<VectorId>,
}

/// A linear layer of every expert.
#[derive(Clone, Copy)]
pub(super) struct Experts {
    pub(super) matrices: ExpertsId,
    pub(super) biases: Option<VectorId>,
}

/// A model's weights, and the program that holds them.
pub(super) struct Weights {
    pub(super) builder: ProgramBuilder,
    pub(super) parts: ModelParts<InProgram>,
}

/// Finds and packs all of a model's tensors, on all threads of the pool.
pub(super) fn load(gguf: &Gguf, spec: &DecoderSpec, pool: &mut Pool) -> Result<Weights, BackendError> {
    let tensors = find(gguf, spec)?;
    let mut program = InProgram { builder: ProgramBuilder::new(), packed: pack(gguf, &tensors, pool)? };
    let parts = tensors.place(&mut program)?;
    Ok(Weights { builder: program.builder, parts })
}

/// Packs every matrix, in the order of the file. The file's memory is released right after packing, so that at no time
/// is more than a few pieces of it resident alongside the packed weights.
fn pack(gguf: &Gguf, tensors: &ModelTensors<'_>, pool: &mut Pool) -> Result<BTreeMap<String, Matrix>, BackendError> {
    let mut matrices: Vec<MatrixTensor<'_>> = tensors.matrices().collect();
    matrices.sort_by_key(|tensor| tensor.bytes.as_ptr().addr());
    let mut packed = BTreeMap::new();
    for MatrixTensor { name, n_rows, n_columns, tensor_type, bytes } in matrices {
        gguf.prefetch_behind(bytes);
        let release = |part: &[u8]| gguf.release(part);
        let matrix = Matrix::pack_on(pool, tensor_type, n_rows, n_columns, bytes, &release);
        let matrix = matrix.map_err(|error| {
            let reason = format!("cannot be used: {error}");
            BackendError::Tensor { name: name.to_string(), reason }
        })?;
        // Threads working on neighbouring pieces may have mapped some of it again.
        gguf.release(bytes);
        packed.insert(name.into_owned(), matrix);
    }
    Ok(packed)
}

/// Puts already packed matrices, and vectors, into a program.
pub(super) struct InProgram {
    builder: ProgramBuilder,
    packed: BTreeMap<String, Matrix>,
}

impl InProgram {
    fn take(&mut self, tensor: &MatrixTensor<'_>) -> Matrix {
        self.packed.remove(&*tensor.name).expect("every matrix was packed, and has its own name")
    }
}

impl Storage for InProgram {
    type Matrix = MatrixId;
    type Linear = Linear;
    type Experts = Experts;
    type Vector = VectorId;
}

impl Place for InProgram {
    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<MatrixId, BackendError> {
        let matrix = self.take(&tensor);
        Ok(self.builder.matrix(matrix))
    }

    fn experts(&mut self, tensors: ExpertTensors<'_>) -> Result<Experts, BackendError> {
        let matrices = tensors.matrices().map(|tensor| self.take(&tensor)).collect();
        let biases = tensors.bias.map(|biases| self.builder.vector(biases));
        Ok(Experts { matrices: self.builder.experts(matrices), biases })
    }

    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Linear, BackendError> {
        let bias = tensors.bias.map(|bias| self.builder.vector(bias));
        Ok(Linear { matrix: self.matrix(tensors.weight)?, bias })
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, BackendError> {
        Ok(self.builder.vector(values))
    }
}
