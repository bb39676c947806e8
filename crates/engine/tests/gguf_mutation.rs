//! Broken GGUF files: whatever is wrong with one, opening it gives an error that names the field, never a panic and
//! never an allocation beyond the file's size.
#![allow(clippy::unwrap_used)]

#[path = "support/allocations.rs"]
mod allocations;

use allocations::peak_of;
use hone_engine::decoder::DecoderSpec;
use hone_engine::gguf::{Gguf, GgufError, TensorType, WriteValue, Writer};
use hone_engine::synth::{self, Quantization, Shape};
use hone_engine::template::{Chat, ChatTemplate, TemplateHost};
use hone_engine::tokenizer::{EncodeOptions, Tokenizer};
use hone_protocol::{Message, ModelFile, Role};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What opening may allocate beyond the file's own size: the directory and the metadata take more room as tables than
/// as bytes, and the files here have about fifty entries.
const ALLOWANCE: usize = 32 << 10;
/// The same for opening and reading everything: decoder, tokenizer, template.
const ALLOWANCE_OF_ALL: usize = 64 << 20;

/// Opens `bytes`, reads everything that a valid file gives access to, and checks what both allocated.
fn open(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
    let n_bytes = bytes.len();
    let (result, allocated) = peak_of(|| Gguf::from_bytes(bytes));
    assert!(allocated <= (n_bytes + ALLOWANCE) as isize, "{allocated} bytes allocated to open {n_bytes}");
    if let Ok(gguf) = &result {
        let ((), allocated) = peak_of(|| read_everything(gguf));
        assert!(allocated <= (n_bytes + ALLOWANCE_OF_ALL) as isize, "{allocated} bytes allocated to read {n_bytes}");
    }
    result
}

fn read_everything(gguf: &Gguf) {
    for (key, value) in gguf.metadata() {
        assert!(value.to_string().len() < 1000, "{key} is shown at length");
        // The file decides which type a value has; asking for it as any type must not fail badly.
        let _ = (gguf.string(key), gguf.unsigned(key), gguf.float(key), gguf.boolean(key));
        let _ = (gguf.strings(key), gguf.floats(key), gguf.integers(key));
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor_bytes(tensor).len(), tensor.n_bytes);
    }
    let _ = DecoderSpec::from_gguf(gguf, None);
    if let Ok(tokenizer) = Tokenizer::from_gguf(gguf) {
        let _ = tokenizer.encode("a b", EncodeOptions { parse_special: true, add_special: true });
        let question = [Message::new(Role::User, "a b")];
        let _ = ChatTemplate::from_gguf(gguf, &tokenizer, &TemplateHost::InProcess)
            .map(|template| template.encode_chat(&tokenizer, Chat::of(&question)));
    }
}

/// A model of a few kilobytes with everything in it that a header can have.
fn small_model() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", WriteValue::String("llama")).unwrap();
    writer.metadata("tokenizer.ggml.tokens", WriteValue::Strings(&["<s>", "a", "b", "höne"])).unwrap();
    writer.metadata("tokenizer.ggml.scores", WriteValue::F32s(&[0.0, -1.0, -2.0, -3.0])).unwrap();
    writer.metadata("tokenizer.ggml.token_type", WriteValue::I32s(&[3, 1, 1, 1])).unwrap();
    writer.metadata("tokenizer.ggml.add_bos_token", WriteValue::Bool(true)).unwrap();
    writer.metadata("tokenizer.chat_template", WriteValue::String("{{ messages }}")).unwrap();
    let vocabulary = Gguf::from_bytes(writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let shape = Shape {
        n_layers: 2,
        hidden_size: 32,
        n_heads: 2,
        n_kv_heads: 1,
        head_dim: 16,
        ffn_size: 32,
        ..Shape::named("tiny-llama3").unwrap()
    };
    let mut bytes = Vec::new();
    synth::write_to(&shape, Quantization::Q4_K_M, &vocabulary, 1, &mut bytes, &mut |_| {}).unwrap();
    bytes
}

fn header_bytes(model: &[u8]) -> usize {
    let gguf = Gguf::from_bytes(model.to_vec()).unwrap();
    gguf.tensors().map(|tensor| tensor.offset).min().unwrap()
}

#[test]
fn a_model_that_is_cut_off_anywhere_is_an_error() {
    let model = small_model();
    let header_bytes = header_bytes(&model);
    open(model.clone()).unwrap();
    for length in (0..header_bytes).chain((header_bytes..model.len()).step_by(61)).chain([model.len() - 1]) {
        assert!(open(model[..length].to_vec()).is_err(), "the first {length} of {} bytes open", model.len());
    }
}

#[test]
fn extreme_numbers_anywhere_in_the_header_do_no_harm() {
    let model = small_model();
    for offset in 0..header_bytes(&model) - 8 {
        for number in [0, 1, u64::from(u32::MAX), 1 << 31, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX] {
            let mut long = model.clone();
            long[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
            let _ = open(long);
            let mut short = model.clone();
            short[offset..offset + 4].copy_from_slice(&(number as u32).to_le_bytes());
            let _ = open(short);
        }
    }
}

#[test]
fn ten_thousand_mutations_do_no_harm() {
    let model = small_model();
    let header_bytes = header_bytes(&model);
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut n_errors = 0;
    for _ in 0..10_000 {
        let mut mutated = model.clone();
        for _ in 0..=below(3, &mut rng) {
            mutate(&mut mutated, header_bytes, &mut rng);
        }
        n_errors += usize::from(open(mutated).is_err());
    }
    assert!((1000..10_000).contains(&n_errors), "{n_errors} of 10000 are errors: the mutations miss their mark");
}

fn mutate(model: &mut Vec<u8>, header_bytes: usize, rng: &mut ChaCha8Rng) {
    let header_bytes = header_bytes.min(model.len() - 16);
    let offset = below(header_bytes, rng);
    let length = (1 + below(63, rng)).min(header_bytes - offset);
    match below(7, rng) {
        0 => model[offset] ^= 1 << below(8, rng),
        1 => rng.fill_bytes(&mut model[offset..offset + 1]),
        2 => rng.fill_bytes(&mut model[offset..offset + length]),
        3 => model[offset..offset + 8].copy_from_slice(&(u64::MAX >> below(64, rng)).to_le_bytes()),
        4 => model.extend_from_within(offset..offset + length),
        5 => {
            let range = model[offset..offset + length].to_vec();
            model.splice(offset..offset, range);
        }
        _ => drop(model.drain(offset..offset + length)),
    }
}

fn below(end: usize, rng: &mut ChaCha8Rng) -> usize {
    (rng.next_u64() % end as u64) as usize
}

/// Builds headers that no writer would write.
struct Raw(Vec<u8>);

impl Raw {
    fn header(version: u32, n_tensors: u64, n_entries: u64) -> Self {
        Raw(b"GGUF".to_vec()).u32(version).u64(n_tensors).u64(n_entries)
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn string(mut self, text: &[u8]) -> Self {
        self = self.u64(text.len() as u64);
        self.0.extend_from_slice(text);
        self
    }

    /// One entry, of type u32.
    fn entry(self, key: &str, number: u32) -> Self {
        self.string(key.as_bytes()).u32(4).u32(number)
    }

    /// A directory entry.
    fn tensor(self, name: &str, dimensions: &[u64], tensor_type: u32, offset: u64) -> Self {
        let start = self.string(name.as_bytes()).u32(dimensions.len() as u32);
        dimensions.iter().fold(start, |raw, dimension| raw.u64(*dimension)).u32(tensor_type).u64(offset)
    }

    /// Zeros up to a multiple of 32, and then `n_bytes` more.
    fn data(mut self, n_bytes: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n_bytes, 0);
        self
    }

    fn check(self, expected: &[&str]) {
        let message = open(self.0).unwrap_err().to_string();
        for part in expected {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    }

    fn check_opens(self) -> Gguf {
        open(self.0).unwrap()
    }
}

/// Metadata that consists of one array with this element type and length.
fn array(element_type: u32, len: u64) -> Raw {
    Raw::header(3, 0, 1).string(b"some.list").u32(9).u32(element_type).u64(len)
}

#[test]
fn what_is_no_gguf_file_is_said() {
    Raw(Vec::new()).check(&["not a GGUF file", "starts with the bytes []"]);
    Raw(b"GGU".to_vec()).check(&["not a GGUF file", "[47, 47, 55]"]);
    Raw(b"PK\x03\x04 and more".to_vec()).check(&["not a GGUF file", "[50, 4b, 03, 04]"]);
    Raw(b"GGUF".to_vec()).check(&["version needs 4 bytes at offset 4 and the file has 0 left"]);
}

#[test]
fn versions_two_and_three_are_read() {
    for version in [2, 3] {
        Raw::header(version, 0, 0).check_opens();
    }
    for version in [0, 1, 4, 99] {
        Raw::header(version, 0, 0).check(&[&format!("GGUF version {version} is not supported"), "2 and 3"]);
    }
    Raw::header(3u32.swap_bytes(), 0, 0).check(&["a big-endian file is not supported", "little-endian"]);
}

#[test]
fn counts_that_cannot_be_are_named() {
    Raw::header(3, u64::MAX, 0).check(&["tensor count (18446744073709551615)"]);
    Raw::header(3, 1 << 40, 0).check(&["tensor count (1099511627776)"]);
    Raw::header(3, 0, u64::MAX).check(&["metadata count (18446744073709551615)"]);
    Raw::header(3, 0, 1).check(&["metadata count (1)"]);
    Raw::header(3, 0, 2).entry("some.key", 1).u64(7).check(&["key of metadata entry 1 needs 7 bytes"]);
    Raw::header(3, 1, 0).u64(200).data(32).check(&["name of tensor 0 needs 200 bytes"]);
}

#[test]
fn keys_that_cannot_be_are_named() {
    let after_key = |raw: Raw| raw.data(64);
    after_key(Raw::header(3, 0, 1).u64(u64::MAX)).check(&["key of metadata entry 0 has 18446744073709551615 bytes"]);
    after_key(Raw::header(3, 0, 1).u64(1000)).check(&["key of metadata entry 0 needs 1000 bytes"]);
    after_key(Raw::header(3, 0, 1).string(b"\xff\xfe")).check(&["key of metadata entry 0 is not text"]);
    let twice = Raw::header(3, 0, 2).entry("some.key", 1).entry("some.key", 2);
    after_key(twice).check(&["metadata key \"some.key\" appears twice"]);
}

#[test]
fn values_that_cannot_be_are_named_by_their_key() {
    let value = |value_type: u32| Raw::header(3, 0, 1).string(b"some.key").u32(value_type);
    value(13).data(32).check(&["some.key has the value type 13, which does not exist"]);
    value(u32::MAX).data(32).check(&["some.key has the value type 4294967295"]);
    value(8).u64(u64::MAX).data(32).check(&["some.key needs 18446744073709551615 bytes"]);
    value(8).string(b"\xc3\x28").check(&["some.key is not text"]);
    value(10).u32(1).check(&["some.key needs 8 bytes", "has 4 left"]);
}

#[test]
fn arrays_that_cannot_be_are_named_by_their_key() {
    array(13, 1).data(32).check(&["some.list has the value type 13"]);
    array(4, u64::MAX).data(32).check(&["some.list (18446744073709551615)"]);
    array(4, 1 << 20).data(32).check(&["some.list (1048576)"]);
    array(8, 1 << 20).data(32).check(&["some.list (1048576)"]);
    array(8, 2).string(b"first").u64(1 << 50).data(32).check(&["some.list needs 1125899906842624 bytes"]);
    let gguf = array(8, 2).string(b"first").string(b"\xff").check_opens();
    let message = gguf.strings("some.list").unwrap_err().to_string();
    assert!(message.contains("some.list[1] is not text"), "{message}");
}

#[test]
fn arrays_may_nest_but_not_without_end() {
    let nested = |depth: usize| (1..depth).fold(array(9, 1), |raw, _| raw.u32(9).u64(1)).u32(4).u64(0);
    nested(3).check_opens();
    nested(100).data(32).check(&["some.list nests arrays more than 4 deep"]);
    nested(100_000).data(32).check(&["some.list nests arrays more than 4 deep"]);
}

#[test]
fn alignments_that_cannot_be_are_named() {
    for alignment in [0, 1, 3, 4, 12, 31, 1 << 31, u32::MAX] {
        let expected = format!("general.alignment is {alignment}: it must be a power of two");
        Raw::header(3, 0, 1).entry("general.alignment", alignment).check(&[&expected]);
    }
    Raw::header(3, 0, 1).string(b"general.alignment").u32(8).string(b"32").check(&["general.alignment is \"32\""]);
    let gguf = Raw::header(3, 1, 1).entry("general.alignment", 8).tensor("t", &[2], 0, 8).data(64).check_opens();
    assert_eq!(gguf.tensor("t").unwrap().n_bytes, 8);
}

/// One tensor, with 256 bytes of data in the file.
fn tensor(dimensions: &[u64], tensor_type: u32, offset: u64) -> Raw {
    Raw::header(3, 1, 0).tensor("some.weight", dimensions, tensor_type, offset).data(256)
}

#[test]
fn shapes_that_cannot_be_are_named_by_their_tensor() {
    tensor(&[8, 8], 0, 0).check_opens();
    tensor(&[], 0, 0).check(&["number of dimensions of tensor \"some.weight\" is 0"]);
    tensor(&[1; 5], 0, 0).check(&["number of dimensions of tensor \"some.weight\" is 5"]);
    tensor(&[8, 0], 0, 0).check(&["tensor \"some.weight\" has a dimension of 0"]);
    for dimensions in [[1 << 32, 1 << 32], [u64::MAX, 2], [u64::MAX, u64::MAX], [1 << 62, 1]] {
        tensor(&dimensions, 0, 0).check(&["tensor \"some.weight\" has more elements than can be counted"]);
    }
    tensor(&[16, 2], 8, 0).check(&["tensor \"some.weight\" has rows that are not whole blocks of 32 (Q8_0)"]);
    tensor(&[128], 12, 0).check(&["tensor \"some.weight\" has rows that are not whole blocks of 256 (Q4_K)"]);
    let name_bytes = Raw::header(3, 1, 0).string(&[b'n'; 300]).data(64);
    name_bytes.check(&["name of tensor 0 has 300 bytes"]);
    Raw::header(3, 1, 0).string(b"\xff").data(64).check(&["name of tensor 0 is not text"]);
}

#[test]
fn types_that_are_not_supported_are_named_and_those_that_are_listed() {
    let supported = TensorType::ALL.into_iter().map(TensorType::name).collect::<Vec<_>>().join(", ");
    tensor(&[8], 19, 0).check(&["type IQ1_S (id 19) of tensor \"some.weight\" is not supported", &supported]);
    tensor(&[8], 28, 0).check(&["type F64 (id 28) of tensor \"some.weight\" is not supported", &supported]);
    tensor(&[8], 77, 0).check(&["type unknown (id 77) of tensor \"some.weight\" is not supported", &supported]);
}

#[test]
fn tensors_that_lie_nowhere_or_on_each_other_are_named() {
    tensor(&[8], 0, 4).check(&["offset of tensor \"some.weight\" is 4: it must be a multiple of 32"]);
    tensor(&[8], 0, 256).check(&["tensor \"some.weight\" needs 32 bytes", "has 0 left"]);
    tensor(&[8, 8, 2], 0, 0).check(&["tensor \"some.weight\" needs 512 bytes", "has 256 left"]);
    tensor(&[8], 0, u64::MAX - 31).check(&["tensor \"some.weight\" needs 32 bytes", "has 0 left"]);
    tensor(&[1 << 60], 0, 0).check(&["tensor \"some.weight\" needs 4611686018427387904 bytes"]);
    let two = |name: &str, offset: u64| {
        Raw::header(3, 2, 0).tensor("first", &[16], 0, 0).tensor(name, &[16], 0, offset).data(256)
    };
    two("second", 64).check_opens();
    two("second", 32).check(&["tensor \"second\" overlaps another tensor"]);
    two("first", 64).check(&["tensor \"first\" appears twice"]);
}

#[test]
fn files_and_regions_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let message = Gguf::open(&path).unwrap_err().to_string();
    assert!(message.contains("cannot read") && message.contains("model.gguf"), "{message}");
    let message = Gguf::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("is not a regular file"), "{message}");

    let model = small_model();
    let start = 1 << 16;
    let mut bundle = vec![0; start];
    bundle.extend_from_slice(&model);
    std::fs::write(&path, bundle).unwrap();
    let region = |offset: usize, length: usize| {
        Gguf::open_region(&ModelFile { path: path.clone(), offset: offset as u64, length: length as u64 })
    };
    let gguf = region(start, model.len()).unwrap();
    read_everything(&gguf);
    assert_eq!(gguf.n_bytes(), model.len());
    let message = region(start, model.len() + 1).unwrap_err().to_string();
    assert!(message.contains("model.gguf") && message.contains("should be at 65536"), "{message}");
    let message = region(usize::MAX, 2).unwrap_err().to_string();
    assert!(message.contains("should be at 18446744073709551615 +2"), "{message}");
    assert!(Gguf::open(&path).unwrap_err().to_string().contains("not a GGUF file"));
}
