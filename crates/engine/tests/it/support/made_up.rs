//! Model files of arbitrary weights.

use hone_engine::gguf::{Gguf, WriteValue, Writer};
use hone_kernels::TensorType;

/// A tensor of a file: its name, its shape with the rows first, and its elements.
pub(crate) type Weights = (String, Vec<usize>, Vec<f32>);

/// A file of this architecture, whose sizes have keys of their own, perhaps with the tokenizer of another file.
pub(crate) fn file_of(
    architecture: &str,
    sizes: &[(&str, usize)],
    others: &[(&str, WriteValue<'_>)],
    vocabulary: Option<&Gguf>,
    weights: &[Weights],
) -> tempfile::NamedTempFile {
    let mut writer = Writer::new();
    vocabulary.map(|vocabulary| writer.copy_metadata(vocabulary, "tokenizer.").unwrap());
    writer.metadata("general.architecture", WriteValue::String(architecture)).unwrap();
    for (key, size) in sizes {
        writer.metadata(&format!("{architecture}.{key}"), WriteValue::U32(*size as u32)).unwrap();
    }
    for (key, value) in others {
        writer.metadata(key, *value).unwrap();
    }
    written(writer, weights)
}

/// A file with the metadata of another one of this architecture, except its chat template, and with these keys added.
pub(crate) fn file_like(
    source: &Gguf,
    architecture: &str,
    others: &[(&str, WriteValue<'_>)],
    weights: &[Weights],
) -> tempfile::NamedTempFile {
    let mut writer = Writer::new();
    for prefix in ["general.", &format!("{architecture}."), "tokenizer.ggml."] {
        writer.copy_metadata(source, prefix).unwrap();
    }
    for (key, value) in others {
        writer.metadata(key, *value).unwrap();
    }
    written(writer, weights)
}

fn written(mut writer: Writer, weights: &[Weights]) -> tempfile::NamedTempFile {
    for (name, shape, _) in weights {
        let dimensions: Vec<usize> = shape.iter().rev().copied().collect();
        writer.tensor(name, &dimensions, TensorType::F32).unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut output = writer.begin(std::fs::File::create(file.path()).unwrap()).unwrap();
    for (name, _, floats) in weights {
        output.write(name, &floats.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    }
    output.finish().unwrap();
    file
}

/// Arbitrary weights of these shapes, the same every time.
pub(crate) fn arbitrary(shapes: Vec<(String, Vec<usize>)>) -> Vec<Weights> {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let with_weights = |(name, shape): (String, Vec<usize>)| {
        let floats = std::iter::repeat_with(&mut next).take(shape.iter().product()).collect();
        (name, shape, floats)
    };
    shapes.into_iter().map(with_weights).collect()
}
