//! The matrices of experts: all of them packed, or packed when they are chosen and kept while there is room.
//!
//! The least recently chosen matrix is evicted when another needs its place. One task of a separate phase decides which
//! matrices are kept ([`ExpertCache::reserve`]); later phases pack the missing ones, a task for each matrix, and then
//! only read. All matrices of one product are in memory at the same time, even if that exceeds the budget.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;

use super::description::WeightMatrix;
use super::operation::ExpertsId;
use crate::matrix::formats::group_bytes;
use crate::{Matrix, ROW_GROUP, TensorType};

/// Packs the matrices of a layer's experts on demand.
pub trait ExpertSource: Send + Sync {
    /// The matrix of an expert, of the shape and type that the source was added with.
    fn pack(&self, expert: usize) -> Matrix;

    /// Announces that the matrix of an expert will be packed soon.
    fn prefetch(&self, expert: usize);
}

/// The common properties of the matrices of a layer's experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    /// Number of matrices.
    pub n_experts: usize,
    /// Rows of each.
    pub n_rows: usize,
    /// Columns of each.
    pub n_columns: usize,
    /// How their weights are stored.
    pub tensor_type: TensorType,
}

impl ExpertShape {
    /// Bytes of a packed matrix.
    fn matrix_bytes(&self) -> usize {
        group_bytes(self.tensor_type, self.n_columns) * self.n_rows.div_ceil(ROW_GROUP)
    }
}

/// The experts of a layer.
pub(super) enum ExpertSet<M = Matrix> {
    Packed(Vec<M>),
    Cached { shape: ExpertShape, source: Box<dyn ExpertSource>, slots: Vec<Slot> },
}

/// Holds the packed matrix of an expert while it is in memory.
pub(super) struct Slot(UnsafeCell<Option<Matrix>>);

// SAFETY: a matrix is put in by the one task that packs it, and taken out by the one task of a reserving phase; other
// phases only read.
unsafe impl Sync for Slot {}

impl<M: WeightMatrix> ExpertSet<M> {
    pub(super) fn shape(&self) -> ExpertShape {
        match self {
            ExpertSet::Cached { shape, .. } => *shape,
            ExpertSet::Packed(matrices) => ExpertShape {
                n_experts: matrices.len(),
                n_rows: matrices[0].n_rows(),
                n_columns: matrices[0].n_columns(),
                tensor_type: matrices[0].tensor_type(),
            },
        }
    }

    pub(super) fn is_cached(&self) -> bool {
        matches!(self, ExpertSet::Cached { .. })
    }

    pub(super) fn into_matrices(self) -> Vec<M> {
        match self {
            ExpertSet::Packed(matrices) => matrices,
            ExpertSet::Cached { .. } => panic!("only the processor packs experts on demand"),
        }
    }
}

impl ExpertSet {
    pub(super) fn cached(shape: ExpertShape, source: Box<dyn ExpertSource>) -> Self {
        let slots = (0..shape.n_experts).map(|_| Slot(UnsafeCell::new(None))).collect();
        ExpertSet::Cached { shape, source, slots }
    }

    /// The matrix of an expert.
    ///
    /// # Safety
    /// An earlier phase has packed it, and no reserving phase runs.
    pub(super) unsafe fn matrix(&self, expert: usize) -> &Matrix {
        match self {
            ExpertSet::Packed(matrices) => &matrices[expert],
            ExpertSet::Cached { slots, .. } => {
                // SAFETY: the caller's promise.
                let matrix = unsafe { &*slots[expert].0.get() };
                matrix.as_ref().expect("the matrix of a chosen expert was packed")
            }
        }
    }

    /// Packs a missing matrix.
    ///
    /// # Safety
    /// No one else uses the expert's matrix meanwhile.
    pub(super) unsafe fn pack(&self, expert: usize) {
        if let ExpertSet::Cached { shape, source, slots } = self {
            let matrix = source.pack(expert);
            debug_assert_eq!(matrix.n_bytes(), shape.matrix_bytes());
            // SAFETY: the caller's promise.
            unsafe { *slots[expert].0.get() = Some(matrix) }
        }
    }

    fn matrix_bytes(&self) -> usize {
        self.shape().matrix_bytes()
    }

    /// # Safety
    /// No one uses the expert's matrix.
    unsafe fn drop_matrix(&self, expert: usize) {
        if let ExpertSet::Cached { slots, .. } = self {
            // SAFETY: the caller's promise.
            unsafe { *slots[expert].0.get() = None }
        }
    }

    /// # Safety
    /// No one puts the expert's matrix in or takes it out.
    unsafe fn is_missing(&self, expert: usize) -> bool {
        match self {
            // SAFETY: the caller's promise.
            ExpertSet::Cached { slots, .. } => unsafe { (*slots[expert].0.get()).is_none() },
            ExpertSet::Packed(_) => false,
        }
    }
}

/// Which cached matrices are in memory.
#[derive(Default)]
pub(super) struct ExpertCache(UnsafeCell<Kept>);

// SAFETY: only the one task of a reserving phase changes it, and only later phases read it.
unsafe impl Sync for ExpertCache {}

#[derive(Default)]
struct Kept {
    /// Bytes that packed matrices may take.
    budget: usize,
    n_bytes: usize,
    /// Counts reservations.
    now: u64,
    /// When each matrix was last reserved, by set and expert.
    last_used: Vec<Vec<Option<u64>>>,
    /// The reservations by time: time, set, expert.
    by_use: BTreeSet<(u64, usize, usize)>,
    /// The matrices for the next phase to pack.
    missing: Vec<(ExpertsId, usize)>,
}

impl ExpertCache {
    /// A cache of `budget` bytes for the sets of a program.
    pub(super) fn new(sets: &[ExpertSet], budget: usize) -> Self {
        let last_used = sets.iter().map(|set| vec![None; set.shape().n_experts]).collect();
        ExpertCache(UnsafeCell::new(Kept { budget, last_used, ..Kept::default() }))
    }

    /// Keeps the matrices of these experts in all of these sets, lists those that have to be packed, and drops others
    /// to make room.
    ///
    /// # Safety
    /// No one else uses the cache or a cached matrix meanwhile.
    pub(super) unsafe fn reserve(
        &self,
        sets: &[ExpertSet],
        wanted: &[ExpertsId],
        experts: impl Iterator<Item = usize> + Clone,
    ) {
        // SAFETY: the caller's promise.
        let kept = unsafe { &mut *self.0.get() };
        kept.now += 1;
        kept.missing.clear();
        for &id in wanted {
            for expert in experts.clone() {
                kept.touch(&sets[id.0], id.0, expert);
                // SAFETY: the caller's promise.
                if unsafe { sets[id.0].is_missing(expert) } {
                    kept.missing.push((id, expert));
                    if let ExpertSet::Cached { source, .. } = &sets[id.0] {
                        source.prefetch(expert);
                    }
                }
            }
        }
        while kept.n_bytes > kept.budget
            && let Some((set, expert)) = kept.pop_oldest()
        {
            kept.n_bytes -= sets[set].matrix_bytes();
            // SAFETY: the caller's promise.
            unsafe { sets[set].drop_matrix(expert) }
        }
    }

    /// The matrices that [`ExpertCache::reserve`] listed as missing.
    ///
    /// # Safety
    /// No reserving phase runs.
    pub(super) unsafe fn missing(&self) -> &[(ExpertsId, usize)] {
        // SAFETY: the caller's promise.
        unsafe { &(*self.0.get()).missing }
    }

    /// Bytes of the matrices that are kept.
    #[cfg(test)]
    pub(super) fn n_bytes(&mut self) -> usize {
        self.0.get_mut().n_bytes
    }
}

impl Kept {
    /// Notes that an expert was chosen.
    fn touch(&mut self, experts: &ExpertSet, set: usize, expert: usize) {
        match self.last_used[set][expert].replace(self.now) {
            Some(before) => {
                self.by_use.remove(&(before, set, expert));
            }
            None => self.n_bytes += experts.matrix_bytes(),
        }
        self.by_use.insert((self.now, set, expert));
    }

    /// Removes the least recently chosen matrix from the order of use, unless it was chosen just now.
    fn pop_oldest(&mut self) -> Option<(usize, usize)> {
        let oldest = self.by_use.first().copied().filter(|(time, _, _)| *time < self.now)?;
        self.by_use.remove(&oldest);
        let (_, set, expert) = oldest;
        self.last_used[set][expert] = None;
        Some((set, expert))
    }
}
