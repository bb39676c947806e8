//! Writes a model in several files, as llama.cpp's `gguf-split` does: the first part has the metadata, every part has
//! its share of the tensors, and all of them say which part they are.

use std::io::Write;
use std::ops::Range;

use hone_engine::gguf::{Gguf, TensorInfo, WriteError, WriteValue, Writer};

/// Writes the tensors of `source`, in the order of their bytes, to `outputs`: one part each, with as many tensors as
/// the others or one less. There may be more parts than tensors.
///
/// # Errors
/// When writing fails, or `source` is itself split or sets `general.alignment`.
pub(crate) fn write_parts<W: Write>(source: &Gguf, outputs: impl IntoIterator<Item = W>) -> Result<Vec<W>, WriteError> {
    let mut tensors: Vec<&TensorInfo> = source.tensors().collect();
    tensors.sort_by_key(|tensor| tensor.offset);
    let outputs: Vec<W> = outputs.into_iter().collect();
    let count = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
    let n_tensors = u32::try_from(tensors.len()).unwrap_or(u32::MAX);
    let write = |(number, output): (u32, W)| {
        let mut writer = Writer::new();
        if number == 0 {
            writer.copy_metadata(source, "")?;
        }
        writer.metadata("split.no", WriteValue::U32(number))?;
        writer.metadata("split.count", WriteValue::U32(count))?;
        writer.metadata("split.tensors.count", WriteValue::U32(n_tensors))?;
        let share = &tensors[share(number, count, tensors.len())];
        for tensor in share {
            writer.tensor(&tensor.name, &tensor.dimensions, tensor.tensor_type)?;
        }
        let mut bytes = writer.begin(output)?;
        share.iter().try_for_each(|tensor| bytes.write(&tensor.name, source.tensor_bytes(tensor)))?;
        bytes.finish()
    };
    (0..count).zip(outputs).map(write).collect()
}

/// The tensors of part `number` of `count`.
fn share(number: u32, count: u32, n_tensors: usize) -> Range<usize> {
    let start = |number: u32| (number as usize * n_tensors).div_ceil(count.max(1) as usize);
    start(number)..start(number + 1)
}

#[test]
fn every_tensor_is_in_one_part() {
    for (count, n_tensors) in [(1, 0), (1, 7), (3, 7), (3, 2), (7, 7)] {
        let shares: Vec<usize> = (0..count).flat_map(|number| share(number, count, n_tensors)).collect();
        assert_eq!(shares, (0..n_tensors).collect::<Vec<_>>(), "{count} {n_tensors}");
    }
}
