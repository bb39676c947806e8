//! How the elements of a tensor are stored.

use std::fmt;

use super::GgufError;

/// A storage format of tensor elements. Quantized formats store a fixed number of elements (a block) in a fixed number
/// of bytes; rows are whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "the field writes them so")]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// 4 bits and a scale for 32 elements.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 elements.
    Q4_1,
    /// 5 bits and a scale for 32 elements.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 elements.
    Q5_1,
    /// 8 bits and a scale for 32 elements.
    Q8_0,
    /// 2 bits; superblocks of 256 with 4-bit scales and minimums.
    Q2_K,
    /// 3 bits; superblocks of 256 with 6-bit scales.
    Q3_K,
    /// 4 bits; superblocks of 256 with 6-bit scales and minimums.
    Q4_K,
    /// 5 bits; superblocks of 256 with 6-bit scales and minimums.
    Q5_K,
    /// 6 bits; superblocks of 256 with 8-bit scales.
    Q6_K,
    /// 4 bits that index a fixed table of 16 values, and a scale for 32 elements.
    IQ4_NL,
}

/// Type, name, id in the file, elements of a block, bytes of a block.
const TABLE: [(TensorType, &str, u32, usize, usize); 14] = [
    (TensorType::F32, "F32", 0, 1, 4),
    (TensorType::F16, "F16", 1, 1, 2),
    (TensorType::BF16, "BF16", 30, 1, 2),
    (TensorType::Q4_0, "Q4_0", 2, 32, 18),
    (TensorType::Q4_1, "Q4_1", 3, 32, 20),
    (TensorType::Q5_0, "Q5_0", 6, 32, 22),
    (TensorType::Q5_1, "Q5_1", 7, 32, 24),
    (TensorType::Q8_0, "Q8_0", 8, 32, 34),
    (TensorType::Q2_K, "Q2_K", 10, 256, 84),
    (TensorType::Q3_K, "Q3_K", 11, 256, 110),
    (TensorType::Q4_K, "Q4_K", 12, 256, 144),
    (TensorType::Q5_K, "Q5_K", 13, 256, 176),
    (TensorType::Q6_K, "Q6_K", 14, 256, 210),
    (TensorType::IQ4_NL, "IQ4_NL", 20, 32, 18),
];

/// Ids that the format knows and hone does not run, so that an error can name them.
const UNSUPPORTED: [(u32, &str); 22] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

impl TensorType {
    /// Every type that hone runs.
    pub fn all() -> impl Iterator<Item = TensorType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this id in a file.
    ///
    /// # Errors
    /// When hone does not run it; the error names it and lists what there is.
    pub fn from_id(id: u32, tensor: &str) -> Result<Self, GgufError> {
        if let Some(row) = TABLE.iter().find(|row| row.2 == id) {
            return Ok(row.0);
        }
        let name = UNSUPPORTED.iter().find(|row| row.0 == id).map_or("unknown", |row| row.1);
        Err(GgufError::Unsupported {
            what: format!("type {name} (id {id}) of tensor {tensor:?}"),
            supported: TABLE.map(|row| row.1).join(", "),
        })
    }

    /// The id in a file.
    pub fn id(self) -> u32 {
        self.row().2
    }

    /// The name that the field knows it by.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements of a block.
    pub fn block_elements(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of `n_elements` elements, a whole number of blocks; `None` where the product overflows.
    pub fn n_bytes(self, n_elements: usize) -> Option<usize> {
        (n_elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    fn row(self) -> &'static (TensorType, &'static str, u32, usize, usize) {
        TABLE.iter().find(|row| row.0 == self).expect("every type has a row in the table")
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
