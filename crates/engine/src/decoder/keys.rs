//! The metadata keys of one architecture, with the checks of their values.

use std::ops::RangeInclusive;

use super::SpecError;
use crate::gguf::{Gguf, GgufError, Value};

/// The metadata keys of one architecture.
pub(crate) struct Keys<'a> {
    pub(crate) gguf: &'a Gguf,
    pub(crate) architecture: &'static str,
}

impl Keys<'_> {
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(crate) fn invalid(&self, key: &str, reason: impl Into<String>) -> SpecError {
        SpecError::Gguf(GgufError::invalid(self.name(key), reason))
    }

    pub(crate) fn missing(&self, key: &str) -> SpecError {
        SpecError::Missing(self.name(key))
    }

    pub(crate) fn optional_size(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, SpecError> {
        let Some(number) = self.gguf.unsigned(&self.name(key))? else { return Ok(None) };
        match usize::try_from(number) {
            Ok(size) if range.contains(&size) => Ok(Some(size)),
            _ => Err(self.out_of_range(key, number, &range)),
        }
    }

    pub(crate) fn size(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, SpecError> {
        self.optional_size(key, range)?.ok_or_else(|| self.missing(key))
    }

    fn out_of_range(&self, key: &str, number: impl std::fmt::Display, range: &RangeInclusive<usize>) -> SpecError {
        self.invalid(key, format!("is {number}: it must be {} to {}", range.start(), range.end()))
    }

    /// A size for every layer: the key holds one number for all of them, or an array.
    pub(crate) fn sizes(
        &self,
        key: &str,
        n_layers: usize,
        range: RangeInclusive<usize>,
    ) -> Result<Option<Vec<usize>>, SpecError> {
        if !self.is_array(key) {
            return Ok(self.optional_size(key, range)?.map(|size| vec![size; n_layers]));
        }
        let Some(numbers) = self.gguf.integers(&self.name(key))? else { return Ok(None) };
        let sizes = numbers.iter().map(|number| match usize::try_from(*number) {
            Ok(size) if range.contains(&size) => Ok(size),
            _ => Err(self.out_of_range(key, number, &range)),
        });
        self.for_layers(key, sizes.collect::<Result<_, _>>()?, n_layers).map(Some)
    }

    /// A boolean for every layer, if the key holds an array.
    pub(crate) fn truths(&self, key: &str, n_layers: usize) -> Result<Option<Vec<bool>>, SpecError> {
        if !self.is_array(key) {
            return Ok(None);
        }
        let Some(truths) = self.gguf.booleans(&self.name(key))? else { return Ok(None) };
        self.for_layers(key, truths, n_layers).map(Some)
    }

    fn is_array(&self, key: &str) -> bool {
        matches!(self.gguf.value(&self.name(key)), Some(Value::Array(_)))
    }

    /// Arrays may also name layers at the end that predict further tokens.
    fn for_layers<T>(&self, key: &str, mut values: Vec<T>, n_layers: usize) -> Result<Vec<T>, SpecError> {
        let n_predicting = self.optional_size("nextn_predict_layers", 0..=1024)?.unwrap_or(0);
        if values.len() != n_layers && values.len() != n_layers + n_predicting {
            return Err(self.invalid(key, format!("has {} entries for {n_layers} layers", values.len())));
        }
        values.truncate(n_layers);
        Ok(values)
    }

    pub(crate) fn float(&self, key: &str) -> Result<Option<f32>, SpecError> {
        Ok(self.gguf.float(&self.name(key))?)
    }

    pub(crate) fn positive_float(&self, key: &str) -> Result<Option<f32>, SpecError> {
        match self.float(key)? {
            Some(number) if number <= 0.0 => Err(self.invalid(key, format!("is {number}: it must be positive"))),
            other => Ok(other),
        }
    }

    pub(crate) fn required_positive_float(&self, key: &str) -> Result<f32, SpecError> {
        self.positive_float(key)?.ok_or_else(|| self.missing(key))
    }

    /// A factor, where 0 means no factor.
    pub(crate) fn multiplier(&self, key: &str) -> Result<Option<f32>, SpecError> {
        match self.float(key)? {
            Some(number) if number < 0.0 => Err(self.invalid(key, format!("is {number}: it must be positive"))),
            number => Ok(number.filter(|number| *number != 0.0)),
        }
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<&str>, SpecError> {
        Ok(self.gguf.string(&self.name(key))?)
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, SpecError> {
        Ok(self.gguf.boolean(&self.name(key))?)
    }

    /// Whether a layer has a tensor.
    pub(crate) fn has_tensor(&self, layer: usize, part: &str) -> bool {
        self.gguf.tensor(&format!("blk.{layer}.{part}")).is_some()
    }
}
