//! Weight matrices in the device's memory, in the file's format.

use std::borrow::Cow;
use std::sync::Arc;

use half::bf16;
use hone_kernels::step::WeightMatrix;
use hone_kernels::{TensorType, dequantize};

use crate::arguments::MatrixAt;
use crate::device::{Buffer, DeviceError, SharedDevice};

/// A matrix on a device.
#[derive(Clone)]
pub struct DeviceMatrix {
    buffer: Arc<Buffer>,
    offset: usize,
    tensor_type: TensorType,
    n_rows: usize,
    n_columns: usize,
}

/// Whether kernels read this type directly; the others are converted to bfloat16.
pub fn is_native(tensor_type: TensorType) -> bool {
    use TensorType::{
        BF16, F16, F32, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
    };
    matches!(
        tensor_type,
        F32 | F16
            | BF16
            | Q4_0
            | Q4_1
            | Q5_0
            | Q5_1
            | Q8_0
            | Q2_K
            | Q3_K
            | Q4_K
            | Q5_K
            | Q6_K
            | IQ4_NL
            | IQ4_XS
            | MXFP4
    )
}

impl DeviceMatrix {
    /// Copies rows of blocks in the format of a GGUF file.
    ///
    /// # Errors
    /// When the device does not have enough memory, or fails.
    ///
    /// # Panics
    /// When the bytes do not match the shape.
    pub fn upload(
        device: &SharedDevice,
        tensor_type: TensorType,
        n_rows: usize,
        n_columns: usize,
        bytes: &[u8],
    ) -> Result<Self, DeviceError> {
        let expected = n_rows * n_columns / tensor_type.block_elements() * tensor_type.block_bytes();
        assert_eq!(bytes.len(), expected, "the bytes are those of {n_rows} rows of {n_columns}");
        let (stored, bytes) = match is_native(tensor_type) {
            true => (tensor_type, Cow::Borrowed(bytes)),
            false => (TensorType::BF16, Cow::Owned(to_bf16(tensor_type, bytes, n_rows * n_columns))),
        };
        let buffer = Arc::new(Buffer::from_bytes(device, &bytes)?);
        Ok(DeviceMatrix { buffer, offset: 0, tensor_type: stored, n_rows, n_columns })
    }

    /// The matrices stored one after the other in this one.
    ///
    /// # Panics
    /// When the rows cannot be divided.
    pub fn split(&self, n_parts: usize) -> Vec<DeviceMatrix> {
        assert!(n_parts > 0 && self.n_rows.is_multiple_of(n_parts), "rows of {n_parts} matrices");
        let n_rows = self.n_rows / n_parts;
        let part = |index: usize| DeviceMatrix {
            offset: self.offset + index * n_rows * self.row_bytes(),
            n_rows,
            ..self.clone()
        };
        (0..n_parts).map(part).collect()
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.n_columns / self.tensor_type.block_elements() * self.tensor_type.block_bytes()
    }

    /// Bytes of the whole matrix.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_rows * self.row_bytes()
    }

    pub(crate) fn at(&self) -> MatrixAt {
        MatrixAt {
            data: self.buffer.address() + self.offset as u64,
            row_bytes: self.row_bytes() as u64,
            tensor_type: self.tensor_type.id(),
            n_rows: self.n_rows as u32,
            n_columns: self.n_columns as u32,
            reserved: 0,
        }
    }
}

impl WeightMatrix for DeviceMatrix {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn n_columns(&self) -> usize {
        self.n_columns
    }

    fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }
}

fn to_bf16(tensor_type: TensorType, bytes: &[u8], n_elements: usize) -> Vec<u8> {
    let mut values = vec![0.0; n_elements];
    dequantize(tensor_type, bytes, &mut values);
    values.iter().flat_map(|value| bf16::from_f32(*value).to_bits().to_ne_bytes()).collect()
}
