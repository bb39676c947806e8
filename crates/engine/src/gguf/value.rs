//! Metadata values.

use std::fmt;
use std::ops::Range;

use super::GgufError;

/// The type of a metadata value, with its id in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    pub(super) fn from_id(id: u32, key: &str) -> Result<Self, GgufError> {
        let found = Self::ALL.into_iter().find(|value_type| *value_type as u32 == id);
        found.ok_or_else(|| GgufError::invalid(key, format!("has the value type {id}, which does not exist")))
    }

    /// Bytes of a value in the file; `None` if the length varies.
    pub(super) fn fixed_bytes(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }
}

/// A metadata value. Integers of every width are widened; strings and arrays stay in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'g> {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A 32-bit or 64-bit float.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    String(&'g str),
    /// A sequence of values of one type.
    Array(&'g Array),
}

impl<'g> Value<'g> {
    /// Decodes a value of fixed length from exactly its bytes.
    pub(super) fn from_fixed(value_type: ValueType, bytes: &[u8]) -> Option<Self> {
        Some(match value_type {
            ValueType::U8 => Value::Unsigned(u64::from(*bytes.first()?)),
            ValueType::I8 => Value::Signed(i64::from(i8::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::U16 => Value::Unsigned(u64::from(u16::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::I16 => Value::Signed(i64::from(i16::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::U32 => Value::Unsigned(u64::from(u32::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::I32 => Value::Signed(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::U64 => Value::Unsigned(u64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I64 => Value::Signed(i64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F32 => Value::Float(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::F64 => Value::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Bool => Value::Bool(*bytes.first()? != 0),
            ValueType::String | ValueType::Array => return None,
        })
    }

    pub(super) fn as_str(self) -> Option<&'g str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_u64(self) -> Option<u64> {
        match self {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    pub(super) fn as_f32(self) -> Option<f32> {
        let number = match self {
            Value::Unsigned(number) => number as f32,
            Value::Signed(number) => number as f32,
            Value::Float(number) => number as f32,
            _ => return None,
        };
        number.is_finite().then_some(number)
    }

    pub(super) fn as_bool(self) -> Option<bool> {
        if let Value::Bool(truth) = self { Some(truth) } else { None }
    }

    pub(super) fn as_array(self) -> Option<&'g Array> {
        if let Value::Array(array) = self { Some(array) } else { None }
    }

    fn as_i64(self) -> Option<i64> {
        match self {
            Value::Unsigned(number) => i64::try_from(number).ok(),
            Value::Signed(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => write!(f, "{number}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::String(text) if text.chars().count() > 60 => {
                write!(f, "{:?}…", text.chars().take(60).collect::<String>())
            }
            Value::String(text) => write!(f, "{text:?}"),
            Value::Array(array) => write!(f, "an array of {} {:?}", array.len, array.element_type),
        }
    }
}

/// Maximum number of entries of an array that is read. The largest vocabularies have about 600 000.
const MAX_ENTRIES: usize = 1 << 20;

/// An array in the file, whose extent has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    pub(super) element_type: ValueType,
    pub(super) len: usize,
    pub(super) range: Range<usize>,
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.element_type
    }

    pub(super) fn each_string<'g>(&self, key: &str, file: &'g [u8]) -> Result<Strings<'g>, GgufError> {
        if self.element_type != ValueType::String {
            return Err(self.mismatch(key, "strings"));
        }
        self.check_length(key)?;
        Ok(Strings { key: key.to_owned(), rest: &file[self.range.clone()], next: 0, len: self.len })
    }

    pub(super) fn floats(&self, key: &str, file: &[u8]) -> Result<Vec<f32>, GgufError> {
        self.decode(key, "finite numbers", file, Value::as_f32)
    }

    pub(super) fn integers(&self, key: &str, file: &[u8]) -> Result<Vec<i64>, GgufError> {
        self.decode(key, "integers", file, Value::as_i64)
    }

    pub(super) fn booleans(&self, key: &str, file: &[u8]) -> Result<Vec<bool>, GgufError> {
        self.decode(key, "booleans", file, Value::as_bool)
    }

    fn decode<T>(
        &self,
        key: &str,
        expected: &str,
        file: &[u8],
        convert: impl Fn(Value<'static>) -> Option<T>,
    ) -> Result<Vec<T>, GgufError> {
        let n_bytes = self.element_type.fixed_bytes().ok_or_else(|| self.mismatch(key, expected))?;
        self.check_length(key)?;
        let mut values = Vec::with_capacity(self.len);
        for bytes in file[self.range.clone()].chunks_exact(n_bytes) {
            let value = Value::from_fixed(self.element_type, bytes).and_then(&convert);
            values.push(value.ok_or_else(|| self.mismatch(key, expected))?);
        }
        Ok(values)
    }

    fn check_length(&self, key: &str) -> Result<(), GgufError> {
        if self.len <= MAX_ENTRIES {
            return Ok(());
        }
        Err(GgufError::invalid(key, format!("has {} entries: the limit is {MAX_ENTRIES}", self.len)))
    }

    fn mismatch(&self, key: &str, expected: &str) -> GgufError {
        GgufError::invalid(key, format!("is an array of {:?} where {expected} are expected", self.element_type))
    }
}

/// Iterates over the strings of an array.
#[derive(Clone, Debug)]
pub struct Strings<'g> {
    key: String,
    rest: &'g [u8],
    next: usize,
    len: usize,
}

impl Strings<'_> {
    /// Total bytes of the remaining strings.
    pub fn n_bytes(&self) -> usize {
        self.rest.len() - 8 * self.len()
    }
}

impl<'g> Iterator for Strings<'g> {
    type Item = Result<&'g str, GgufError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The header's check has validated these lengths.
        let (length, tail) = self.rest.split_first_chunk::<8>()?;
        let (bytes, tail) = tail.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        let index = self.next;
        (self.rest, self.next) = (tail, index + 1);
        Some(
            std::str::from_utf8(bytes)
                .map_err(|error| GgufError::invalid(format!("{}[{index}]", self.key), format!("is not text: {error}"))),
        )
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len - self.next, Some(self.len - self.next))
    }
}

impl ExactSizeIterator for Strings<'_> {}
