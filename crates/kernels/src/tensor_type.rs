//! How the elements of a tensor are stored: the types of GGUF files that hone supports, one row each.
//!
//! A quantized type stores a fixed number of elements (a block) in a fixed number of bytes; rows are whole blocks.

use std::fmt;

use thiserror::Error;

/// Calls a macro with all rows: documentation, type, whether its elements are `float`s or `quant`s, its id in a file,
/// the elements and bytes of a block, and the value of `general.file_type` in files of this type (`llama_ftype` in
/// `llama.h`).
macro_rules! for_each_tensor_type {
    ($callback:ident $($arguments:tt)*) => {
        $callback! { ($($arguments)*)
            // Documentation, type, kind, id, elements and bytes of a block, file type.
            "IEEE single precision." F32 float 0, 1, 4, 0;
            "IEEE half precision." F16 float 1, 1, 2, 1;
            "bfloat16." BF16 float 30, 1, 2, 32;
            "4 bits and a scale for 32 elements." Q4_0 quant 2, 32, 18, 2;
            "4 bits, a scale and a minimum for 32 elements." Q4_1 quant 3, 32, 20, 3;
            "5 bits and a scale for 32 elements." Q5_0 quant 6, 32, 22, 8;
            "5 bits, a scale and a minimum for 32 elements." Q5_1 quant 7, 32, 24, 9;
            "8 bits and a scale for 32 elements." Q8_0 quant 8, 32, 34, 7;
            "2 bits; superblocks of 256 with 4-bit scales and minimums." Q2_K quant 10, 256, 84, 10;
            "3 bits; superblocks of 256 with 6-bit scales." Q3_K quant 11, 256, 110, 11;
            "4 bits; superblocks of 256 with 6-bit scales and minimums." Q4_K quant 12, 256, 144, 14;
            "5 bits; superblocks of 256 with 6-bit scales and minimums." Q5_K quant 13, 256, 176, 16;
            "6 bits; superblocks of 256 with 8-bit scales." Q6_K quant 14, 256, 210, 18;
            "4 bits that index a fixed table of 16 values, and a scale for 32 elements." IQ4_NL quant 20, 32, 18, 25;
            "As IQ4_NL; superblocks of 256 with 6-bit scales." IQ4_XS quant 23, 256, 136, 30;
            "2.06 bits that index 256 combinations of 3 magnitudes; 3.31 bits in memory." IQ2_XXS quant 16, 256, 66, 19;
            "2.31 bits that index 512 combinations of 3 magnitudes; 3.31 bits in memory." IQ2_XS quant 17, 256, 74, 20;
            "2.56 bits that index 1024 combinations of 3 magnitudes; 3.31 bits in memory." IQ2_S quant 22, 256, 82, 28;
            "3.06 bits that index 256 combinations of 8 magnitudes; 4.31 bits in memory." IQ3_XXS quant 18, 256, 98, 23;
            "3.44 bits that index 512 combinations of 8 magnitudes; 4.31 bits in memory." IQ3_S quant 21, 256, 110, 26;
            "Five of -1, 0 and 1 in 8 bits, and a scale for 256; 2.06 bits in memory, not 1.69." TQ1_0 quant 34, 256, 54, 36;
            "-1, 0 and 1 in 2 bits, and a scale for 256." TQ2_0 quant 35, 256, 66, 37;
            "Floats of 4 bits, and a power of two for 32 elements." MXFP4 quant 39, 32, 17, 38;
        }
    };
}

/// The properties of a type.
struct TypeProperties {
    name: &'static str,
    id: u32,
    block_elements: usize,
    block_bytes: usize,
    is_float: bool,
    file_type: u32,
}

macro_rules! define {
    (() $($doc:literal $name:ident $kind:ident $id:literal, $elements:literal, $bytes:literal, $file_type:literal;)*) => {
        /// A storage format of tensor elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types, reason = "the names are the format's own")]
        pub enum TensorType {
            $(#[doc = $doc] $name,)*
        }

        impl TensorType {
            /// Every type that hone supports.
            pub const ALL: [TensorType; [$(TensorType::$name),*].len()] = [$(TensorType::$name),*];

            const ROWS: [TypeProperties; TensorType::ALL.len()] = [$(TypeProperties {
                name: stringify!($name),
                id: $id,
                block_elements: $elements,
                block_bytes: $bytes,
                is_float: is_float!($kind),
                file_type: $file_type,
            }),*];
        }
    };
}

macro_rules! is_float {
    (float) => {
        true
    };
    (quant) => {
        false
    };
}

for_each_tensor_type!(define);

/// The products of an instruction set, one for every type, in order. Of the two functions that have the type as a
/// parameter, the first multiplies floating-point weights and the second quantized ones.
macro_rules! products {
    ($float:ident, $quant:ident) => {
        for_each_tensor_type!(product_table $float, $quant)
    };
}

macro_rules! product_table {
    (($float:ident, $quant:ident) $($doc:literal $name:ident $kind:ident $($number:literal),*;)*) => {
        [$(product_of!($kind, $float, $quant, $name)),*]
    };
}

macro_rules! product_of {
    (float, $float:ident, $quant:ident, $name:ident) => {
        $float::<{ $crate::TensorType::$name as u8 }>
    };
    (quant, $float:ident, $quant:ident, $name:ident) => {
        $quant::<{ $crate::TensorType::$name as u8 }>
    };
}

impl TensorType {
    /// The type with this id in a file.
    ///
    /// # Errors
    /// When hone does not support it; the error names it.
    pub fn from_id(id: u32) -> Result<Self, UnknownTensorType> {
        Self::ALL.into_iter().find(|each| each.id() == id).ok_or(UnknownTensorType(id))
    }

    /// The id in a file.
    pub const fn id(self) -> u32 {
        self.row().id
    }

    /// The type's usual name.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements of a block.
    pub const fn block_elements(self) -> usize {
        self.row().block_elements
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.row().block_bytes
    }

    /// Whether the elements are floating-point numbers rather than quantized.
    pub const fn is_float(self) -> bool {
        self.row().is_float
    }

    /// The value of `general.file_type` in a file whose matrices are all of this type.
    pub const fn file_type(self) -> u32 {
        self.row().file_type
    }

    /// Bytes of `n_elements` elements, a whole number of blocks; `None` if that overflows.
    pub const fn n_bytes(self, n_elements: usize) -> Option<usize> {
        (n_elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    const fn row(self) -> &'static TypeProperties {
        &Self::ROWS[self as usize]
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type that hone does not support, by its id in a file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("type {} (id {})", self.name(), .0)]
pub struct UnknownTensorType(pub u32);

impl UnknownTensorType {
    fn name(self) -> &'static str {
        UNSUPPORTED.iter().find(|(id, _)| *id == self.0).map_or("unknown", |(_, name)| name)
    }
}

/// Ids that the format defines but hone does not support, so that an error can name them.
const UNSUPPORTED: [(u32, &str); 13] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (19, "IQ1_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (40, "NVFP4"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_lead_back_to_their_type() {
        for tensor_type in TensorType::ALL {
            assert_eq!(TensorType::from_id(tensor_type.id()), Ok(tensor_type));
            assert!(UNSUPPORTED.iter().all(|(id, _)| *id != tensor_type.id()), "{tensor_type} is run");
        }
        assert_eq!(UnknownTensorType(19).to_string(), "type IQ1_S (id 19)");
        assert_eq!(UnknownTensorType(1000).to_string(), "type unknown (id 1000)");
    }
}
