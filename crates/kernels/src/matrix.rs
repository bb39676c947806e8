//! A weight matrix in the order in which products read it.
//!
//! Packing copies a GGUF tensor once, when it is loaded; the file's own bytes are not needed afterwards. The packed
//! matrix takes the bytes of the tensor and a few percent more, because only the order of the bits changes
//! ([`layout`]). Only indices into a grid (IQ2, IQ3) and digits in base 3 (TQ1_0) are replaced by the values that they
//! encode.

pub(crate) mod formats;
pub(crate) mod layout;
mod pack;
pub(crate) mod unpack;

use std::num::NonZeroUsize;
use std::{fmt, slice};

use formats::quant_layout;
use layout::BLOCK;
pub use layout::ROW_GROUP;
use unpack::RowsBlock;

use crate::TensorType;
use crate::buffer::Buffer;
use crate::pool::Pool;

/// A matrix of `n_rows` × `n_columns` weights, packed in groups of [`ROW_GROUP`] rows.
pub struct Matrix {
    tensor_type: TensorType,
    n_rows: usize,
    n_columns: usize,
    buffer: Buffer,
}

/// Why a tensor cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Rows are not whole blocks of the type.
    #[error(
        "rows of {n_columns} columns are not whole blocks of {tensor_type:?}, which hold {block_elements} columns each"
    )]
    PartialBlock {
        /// The type of the tensor.
        tensor_type: TensorType,
        /// Columns of a row.
        n_columns: usize,
        /// Elements in a block of the type.
        block_elements: usize,
    },
    /// The number of bytes does not match the tensor's shape.
    #[error("a {tensor_type:?} tensor of {n_rows} × {n_columns} takes {expected} bytes and not {given}")]
    WrongLength {
        /// The type of the tensor.
        tensor_type: TensorType,
        /// Rows of the tensor.
        n_rows: usize,
        /// Columns of a row.
        n_columns: usize,
        /// Bytes that such a tensor takes; the largest number if that overflows.
        expected: usize,
        /// Bytes that were given.
        given: usize,
    },
}

impl Matrix {
    /// Copies a row-major GGUF tensor into the packed order.
    ///
    /// # Errors
    /// When `n_columns` is not a whole number of blocks, or `bytes` does not have the length of such a tensor.
    pub fn pack(tensor_type: TensorType, n_rows: usize, n_columns: usize, bytes: &[u8]) -> Result<Matrix, PackError> {
        Self::pack_on(&mut Pool::new(NonZeroUsize::MIN), tensor_type, n_rows, n_columns, bytes, &|_| {})
    }

    /// Like [`Matrix::pack`], on all threads of a pool. `packed` is called with each part of `bytes` that has been
    /// packed and will not be read again, so that a mapped file can be released piece by piece.
    ///
    /// # Errors
    /// As [`Matrix::pack`].
    pub fn pack_on(
        pool: &mut Pool,
        tensor_type: TensorType,
        n_rows: usize,
        n_columns: usize,
        bytes: &[u8],
        packed: &(dyn Fn(&[u8]) + Sync),
    ) -> Result<Matrix, PackError> {
        let block_elements = tensor_type.block_elements();
        if !n_columns.is_multiple_of(block_elements) {
            return Err(PackError::PartialBlock { tensor_type, n_columns, block_elements });
        }
        let row_bytes = (n_columns / block_elements).checked_mul(tensor_type.block_bytes());
        let expected = row_bytes.and_then(|row_bytes| row_bytes.checked_mul(n_rows)).unwrap_or(usize::MAX);
        if expected != bytes.len() {
            return Err(PackError::WrongLength { tensor_type, n_rows, n_columns, expected, given: bytes.len() });
        }
        let buffer = pack::pack(pool, tensor_type, n_rows, n_columns, bytes, packed);
        Ok(Matrix { tensor_type, n_rows, n_columns, buffer })
    }

    /// The encoding of its weights.
    pub fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }

    /// Rows: the length of a product.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Columns: the length of the vectors it is multiplied with.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Bytes that the packed weights take in memory.
    pub fn n_bytes(&self) -> usize {
        self.buffer.n_bytes()
    }

    /// Bytes of one group of rows: the weights that a product of [`ROW_GROUP`] rows with one vector reads.
    pub(crate) fn group_bytes(&self) -> usize {
        formats::group_bytes(self.tensor_type, self.n_columns)
    }

    /// The packed weights.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: packing initialized every byte of the buffer, and nothing writes to it afterwards.
        unsafe { slice::from_raw_parts(self.buffer.as_ptr(), self.buffer.n_bytes()) }
    }

    /// Writes the weights of one row to `out`, decoded: the embedding of a token.
    ///
    /// # Panics
    /// When the row does not exist, or `out` is not `n_columns` long.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n_rows, "row {row} of a matrix of {} rows", self.n_rows);
        assert_eq!(out.len(), self.n_columns, "a row has as many elements as the matrix has columns");
        let group_bytes = self.group_bytes();
        let group = &self.as_bytes()[row / ROW_GROUP * group_bytes..][..group_bytes];
        let row_idx = row % ROW_GROUP;
        if self.tensor_type.is_float() {
            for (column, weight) in out.iter_mut().enumerate() {
                *weight = unpack::read_float(self.tensor_type, group, column, row_idx);
            }
            return;
        }
        let layout = quant_layout(self.tensor_type);
        for (idx, weights) in out.chunks_exact_mut(BLOCK).enumerate() {
            let record = &group[idx / layout.record_blocks() * layout.record_bytes()..][..layout.record_bytes()];
            let block = RowsBlock::<1>::read(layout, record, idx % layout.record_blocks(), row_idx);
            for (column, weight) in weights.iter_mut().enumerate() {
                *weight = block.weight(column);
            }
        }
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Matrix({:?}, {} × {})", self.tensor_type, self.n_rows, self.n_columns)
    }
}
