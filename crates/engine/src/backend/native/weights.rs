//! A model's tensors, packed for the kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use hone_kernels::pool::Pool;
use hone_kernels::step::{ExpertShape, ExpertSource, MatrixId, ProgramBuilder, VectorId};
use hone_kernels::{Matrix, PackError};

use crate::backend::program::{Experts, InProgram, Linear, Weights};
use crate::backend::tensors::{ExpertTensors, LinearTensors, MatrixTensor, ModelTensors, Placing, Storage};
use crate::backend::{BackendError, LoadProgress};
use crate::gguf::{Gguf, TensorInfo};

/// Packs a model's tensors, on all threads of the pool. With `expert_bytes`, experts stay in the file: they
/// are packed when they are chosen, and kept within that many bytes.
pub(super) fn load(
    gguf: &Gguf,
    tensors: ModelTensors<'_>,
    expert_bytes: Option<u64>,
    pool: &mut Pool,
    progress: &LoadProgress,
) -> Result<Weights<InMemory>, BackendError> {
    let mut builder = ProgramBuilder::new();
    let on_demand = expert_bytes.map(|n_bytes| {
        builder.keep_experts(usize::try_from(n_bytes).unwrap_or(usize::MAX));
        Arc::new(gguf.clone())
    });
    let packed = pack(gguf, &tensors, on_demand.is_none(), pool, progress)?;
    let mut placing = InMemory { builder, packed, on_demand };
    let parts = tensors.place(&mut placing)?;
    Ok(Weights { builder: placing.builder, parts })
}

/// Packs every matrix, in the order of the file. The file's memory is released right after packing, so that at no time
/// is more than a few pieces of it resident alongside the packed weights.
fn pack(
    gguf: &Gguf,
    tensors: &ModelTensors<'_>,
    with_experts: bool,
    pool: &mut Pool,
    progress: &LoadProgress,
) -> Result<BTreeMap<String, Matrix>, BackendError> {
    let experts = tensors.expert_matrices().filter(|_| with_experts);
    let mut matrices: Vec<MatrixTensor<'_>> = tensors.matrices().chain(experts).collect();
    matrices.sort_by_key(|tensor| tensor.bytes.as_ptr().addr());
    let mut loaded = progress.begin(matrices.iter().map(|tensor| tensor.bytes.len()));
    let mut packed = BTreeMap::new();
    for MatrixTensor { name, n_rows, n_columns, tensor_type, bytes } in matrices {
        gguf.prefetch_behind(bytes);
        let release = |part: &[u8]| gguf.release(part);
        let matrix = Matrix::pack_on(pool, tensor_type, n_rows, n_columns, bytes, &release);
        let matrix = matrix.map_err(|error| unusable(&name, &error))?;
        // Threads working on neighbouring pieces may have mapped some of it again.
        gguf.release(bytes);
        loaded.add(bytes.len());
        packed.insert(name.into_owned(), matrix);
    }
    Ok(packed)
}

fn unusable(name: &str, error: &PackError) -> BackendError {
    BackendError::Tensor { name: name.to_owned(), reason: format!("cannot be used: {error}") }
}

/// Experts that stay in the file.
struct InMapping {
    gguf: Arc<Gguf>,
    tensor: TensorInfo,
    shape: ExpertShape,
}

impl InMapping {
    /// # Errors
    /// When the matrices cannot be packed, which is determined by packing the first one.
    fn new(gguf: &Arc<Gguf>, tensors: &ExpertTensors<'_>) -> Result<Self, BackendError> {
        let MatrixTensor { ref name, n_rows, n_columns, tensor_type, .. } = tensors.weights;
        let n_experts = tensors.n_experts;
        let tensor = gguf.tensor(name).expect("the tensor was found in this file").clone();
        let shape = ExpertShape { n_experts, n_rows: n_rows / n_experts, n_columns, tensor_type };
        let experts = InMapping { gguf: Arc::clone(gguf), tensor, shape };
        experts.try_pack(0).map_err(|error| unusable(name, &error))?;
        Ok(experts)
    }

    fn bytes(&self, expert: usize) -> &[u8] {
        let n_bytes = self.tensor.n_bytes / self.shape.n_experts;
        &self.gguf.tensor_bytes(&self.tensor)[expert * n_bytes..(expert + 1) * n_bytes]
    }

    fn try_pack(&self, expert: usize) -> Result<Matrix, PackError> {
        let ExpertShape { n_rows, n_columns, tensor_type, .. } = self.shape;
        let matrix = Matrix::pack(tensor_type, n_rows, n_columns, self.bytes(expert));
        self.gguf.release(self.bytes(expert));
        matrix
    }
}

impl ExpertSource for InMapping {
    fn pack(&self, expert: usize) -> Matrix {
        self.try_pack(expert).expect("all experts have the shape of the first")
    }

    fn prefetch(&self, expert: usize) {
        self.gguf.prefetch(self.bytes(expert));
    }
}

/// Puts already packed matrices, and vectors, into a program.
pub(super) struct InMemory {
    builder: ProgramBuilder,
    packed: BTreeMap<String, Matrix>,
    /// The file, if experts stay there.
    on_demand: Option<Arc<Gguf>>,
}

impl InMemory {
    fn take(&mut self, tensor: &MatrixTensor<'_>) -> Matrix {
        self.packed.remove(&*tensor.name).expect("every matrix was packed, and has its own name")
    }
}

impl Storage for InMemory {
    type Matrix = MatrixId;
    type Linear = Linear;
    type Experts = Experts;
    type Vector = VectorId;
}

impl InProgram for InMemory {
    type Weights = Matrix;
}

impl Placing for InMemory {
    fn matrix(&mut self, tensor: MatrixTensor<'_>) -> Result<MatrixId, BackendError> {
        let matrix = self.take(&tensor);
        Ok(self.builder.matrix(matrix))
    }

    fn experts(&mut self, tensors: ExpertTensors<'_>) -> Result<Experts, BackendError> {
        let matrices = match &self.on_demand {
            Some(gguf) => {
                let experts = InMapping::new(gguf, &tensors)?;
                self.builder.experts_on_demand(experts.shape, Box::new(experts))
            }
            None => {
                let matrices = tensors.matrices().map(|tensor| self.take(&tensor)).collect();
                self.builder.experts(matrices)
            }
        };
        Ok(Experts { matrices, biases: tensors.bias.map(|biases| self.builder.vector(biases)) })
    }

    fn linear(&mut self, tensors: LinearTensors<'_>) -> Result<Linear, BackendError> {
        let bias = tensors.bias.map(|bias| self.builder.vector(bias));
        Ok(Linear { matrix: self.matrix(tensors.weight)?, bias })
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, BackendError> {
        Ok(self.builder.vector(values))
    }
}
