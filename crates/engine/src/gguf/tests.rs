//! Broken GGUF files: opening one always gives an error that names the field, never a panic and never an allocation
//! beyond the file's size.

use crate::decoder::DecoderSpec;
use crate::gguf::{Gguf, GgufError, TensorType, WriteValue, Writer};
use crate::synth::{self, Quantization, Shape};
use crate::template::{Chat, ChatTemplate, TemplateHost};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use hone_protocol::{Message, ModelFile, Role, with_causes};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::counting::peak_of;
use crate::support::split;

/// Bytes that opening may allocate beyond the file's own size: the directory and the metadata take more room as tables
/// than as bytes, and the files here have about fifty entries.
const ALLOWANCE: usize = 32 << 10;
/// The allowance for opening and reading everything: decoder, tokenizer, template.
const ALLOWANCE_OF_ALL: usize = 64 << 20;

/// Opens `bytes`, reads everything that a valid file gives access to, and checks the allocations of both.
fn open(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
    let n_bytes = bytes.len();
    check_opening(n_bytes, || Gguf::from_bytes(bytes))
}

/// Like `open`, for a model in several parts.
fn open_parts(mut parts: Vec<Vec<u8>>) -> Result<Gguf, GgufError> {
    let n_bytes = parts.iter().map(Vec::len).sum();
    let first = parts.remove(0);
    check_opening(n_bytes, || Gguf::from_bytes_of_parts(first, parts))
}

fn check_opening(n_bytes: usize, open: impl FnOnce() -> Result<Gguf, GgufError>) -> Result<Gguf, GgufError> {
    let (result, allocated) = peak_of(open);
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

#[test]
fn ten_thousand_mutations_of_any_part_do_no_harm() {
    let parts = in_parts(&small_model(), 3);
    let header_bytes: Vec<usize> = parts.iter().map(|part| part_header_bytes(part)).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut n_errors = [0; 3];
    for _ in 0..10_000 {
        let mut mutated = parts.clone();
        let index = below(3, &mut rng);
        for _ in 0..=below(3, &mut rng) {
            mutate(&mut mutated[index], header_bytes[index], &mut rng);
        }
        n_errors[index] += usize::from(open_parts(mutated).is_err());
    }
    for n_errors in n_errors {
        assert!((300..3_300).contains(&n_errors), "{n_errors} of about 3333 are errors: the mutations miss their mark");
    }
}

#[test]
fn a_part_that_is_cut_off_anywhere_is_an_error() {
    let parts = in_parts(&small_model(), 3);
    for index in 0..3 {
        let length = parts[index].len();
        for length in (0..part_header_bytes(&parts[index])).step_by(3).chain([length - 1]) {
            let mut cut = parts.clone();
            cut[index].truncate(length);
            assert!(open_parts(cut).is_err(), "the first {length} bytes of part {} open", index + 1);
        }
    }
}

/// A model in this many parts.
fn in_parts(model: &[u8], count: usize) -> Vec<Vec<u8>> {
    split::write_parts(&Gguf::from_bytes(model.to_vec()).unwrap(), vec![Vec::new(); count]).unwrap()
}

/// The bytes before the first tensor of a part, which as a whole model would not open.
fn part_header_bytes(part: &[u8]) -> usize {
    let mut whole = part.to_vec();
    let count = find(&whole, b"split.count") + b"split.count".len() + 4;
    let number = find(&whole, b"split.no") + b"split.no".len() + 4;
    whole[count..count + 4].copy_from_slice(&1u32.to_le_bytes());
    whole[number..number + 4].copy_from_slice(&0u32.to_le_bytes());
    header_bytes(&whole)
}

fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

#[test]
fn parts_are_opened_as_one_model() {
    let model = small_model();
    let whole = open(model.clone()).unwrap();
    let facts = |gguf: &Gguf| -> Vec<(String, String)> {
        let entries = gguf.metadata().map(|(key, value)| (key.to_owned(), value.to_string()));
        entries.filter(|(key, _)| !key.starts_with("split.")).collect()
    };
    for count in [1, 2, 3, 7, 100] {
        let parts = in_parts(&model, count);
        let n_bytes: usize = parts.iter().map(Vec::len).sum();
        let joined = open_parts(parts).unwrap();
        assert_eq!(joined.n_bytes(), n_bytes);
        assert_eq!(facts(&joined), facts(&whole), "{count}");
        assert_eq!(joined.strings("tokenizer.ggml.tokens").unwrap(), whole.strings("tokenizer.ggml.tokens").unwrap());
        assert!(joined.tensors().map(|tensor| &tensor.name).eq(whole.tensors().map(|tensor| &tensor.name)));
        for tensor in whole.tensors() {
            let found = joined.tensor(&tensor.name).unwrap();
            assert_eq!((&found.dimensions, found.tensor_type), (&tensor.dimensions, tensor.tensor_type));
            assert!(joined.tensor_bytes(found) == whole.tensor_bytes(tensor), "{} of {count} parts", tensor.name);
        }
        DecoderSpec::from_gguf(&joined, None).unwrap();
    }
}

#[test]
fn parts_that_do_not_fit_together_are_named() {
    let parts = in_parts(&small_model(), 3);
    let check = |indices: &[usize], expected: &[&str]| {
        let chosen = indices.iter().map(|index| parts[*index].clone()).collect();
        check_message(&with_causes(&open_parts(chosen).unwrap_err()), expected);
    };
    check(&[0], &["split.count is 3", "only the first part", "NAME-00001-of-00003.gguf"]);
    check(&[1], &["split.no is 1", "the file is part 2 of 3", "give the first part, NAME-00001-of-00003.gguf"]);
    check(&[0, 1], &["split.count is 3 in part 1 of 2, but there are 2 parts"]);
    check(&[0, 1, 1], &["part 3 of 3 cannot be used: split.no is 1 and should be 2", "another model, or was renamed"]);
    check(&[0, 2, 1], &["part 2 of 3 cannot be used: split.no is 2 and should be 1"]);
    let with = |index: usize, part: Vec<u8>, expected: &[&str]| {
        let mut chosen = parts.clone();
        chosen[index] = part;
        check_message(&with_causes(&open_parts(chosen).unwrap_err()), expected);
    };
    with(1, small_model(), &["part 2 of 3 cannot be used: split.count is not in its metadata"]);
    with(1, in_parts(&small_model(), 4)[1].clone(), &["part 2 of 3", "split.count is 4 and should be 3"]);
    with(0, small_model(), &["split.count is not in the metadata of part 1 of 3", "whole model needs another name"]);
    let split =
        |raw: Raw, number: u32| raw.entry("split.no", number).entry("split.count", 3).entry("split.tensors.count", 21);
    let empty = split(Raw::header(3, 0, 3), 2).data(0).0;
    with(2, empty, &["split.tensors.count is", "they belong to different models"]);
    let first_again = Gguf::from_bytes(small_model()).unwrap();
    let name = &first_again.tensors().min_by_key(|tensor| tensor.offset).unwrap().name;
    let twice = split(Raw::header(3, 1, 3), 2).tensor(name, &[8], 0, 0).data(32).0;
    with(2, twice, &[&format!("tensor {name:?} is both in part 1 of 3 and in part 3 of 3"), "different models"]);
    let contrary = split(Raw::header(3, 0, 4), 2).string(b"general.architecture").u32(8).string(b"other").data(0).0;
    with(2, contrary, &["part 3 of 3 cannot be used: general.architecture is \"other\" and should be \"llama\""]);
    let broken = split(Raw::header(3, 1, 3), 2).tensor("t", &[64], 0, 0).data(32).0;
    with(2, broken, &["part 3 of 3 cannot be used: tensor \"t\" needs 256 bytes"]);
}

fn check_message(message: &str, expected: &[&str]) {
    for part in expected {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn numbers_of_parts_that_cannot_be_are_named() {
    let split = |number: u32, count: u32| Raw::header(3, 0, 2).entry("split.no", number).entry("split.count", count);
    split(0, 0).check_opens();
    split(0, 1).check_opens();
    split(5, 3).check(&["split.no is 5 of 3 parts"]);
    split(0, u32::MAX).check(&["split.count is 4294967295: the limit is 1024"]);
    Raw::header(3, 0, 1).string(b"split.count").u32(8).string(b"2").check(&["split.count is \"2\" where an integer"]);
}

#[test]
fn the_first_file_leads_to_the_other_parts() {
    let folder = tempfile::tempdir().unwrap();
    let at = |number: usize| folder.path().join(format!("m-0000{number}-of-00003.gguf"));
    let parts = in_parts(&small_model(), 3);
    parts.iter().zip(1..).for_each(|(part, number)| std::fs::write(at(number), part).unwrap());
    let gguf = Gguf::open(&at(1)).unwrap();
    read_everything(&gguf);
    assert_eq!(gguf.tensors().count(), Gguf::from_bytes(small_model()).unwrap().tensors().count());
    let error = |path: &std::path::Path| with_causes(&Gguf::open(path).unwrap_err());
    check_message(&error(&at(2)), &["m-00002-of-00003.gguf is part 2 of 3", "m-00001-of-00003.gguf"]);
    std::fs::write(at(3), &parts[1]).unwrap();
    check_message(&error(&at(1)), &["part 3 of 3 (", "m-00003-of-00003.gguf) cannot be used: split.no is 1"]);
    std::fs::write(at(3), &parts[2][..100]).unwrap();
    check_message(&error(&at(1)), &["m-00003-of-00003.gguf) cannot be used", "cut off or damaged"]);
    std::fs::remove_file(at(3)).unwrap();
    check_message(&error(&at(1)), &["part 3 of 3 of the model is missing", "m-00003-of-00003.gguf"]);
    let renamed = folder.path().join("renamed.gguf");
    std::fs::rename(at(1), &renamed).unwrap();
    check_message(&error(&renamed), &["only the first part", "named NAME-00001-of-00003.gguf and so on"]);
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
    Raw(Vec::new()).check(&["not a GGUF file: it is empty"]);
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
fn descriptions_that_are_no_text_do_not_matter() {
    let value = |key: &str, text: &[u8]| {
        let gguf = Raw::header(3, 0, 1).string(key.as_bytes()).u32(8).string(text).check_opens();
        gguf.string(key).unwrap().map(str::to_owned)
    };
    assert_eq!(value("general.description", b"caf\xe9 x").as_deref(), Some("caf"));
    assert_eq!(value("general.name", b"tiny\0").as_deref(), Some("tiny"));
    assert_eq!(value("some.key", b"gpt2\0\0").as_deref(), Some("gpt2"));
    assert_eq!(value("some.key", b"").as_deref(), Some(""));
    let broken = Raw::header(3, 0, 1).string(b"general.architecture").u32(8).string(b"llama\xff");
    broken.check(&["general.architecture is not text"]);
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
    let region =
        |offset: usize, length: usize| Gguf::open_region(&ModelFile::new(path.clone(), offset as u64, length as u64));
    let gguf = region(start, model.len()).unwrap();
    read_everything(&gguf);
    assert_eq!(gguf.n_bytes(), model.len());
    let message = region(start, model.len() + 1).unwrap_err().to_string();
    assert!(message.contains("model.gguf") && message.contains("should be at 65536"), "{message}");
    let message = region(usize::MAX, 2).unwrap_err().to_string();
    assert!(message.contains("should be at 18446744073709551615 +2"), "{message}");
    assert!(Gguf::open(&path).unwrap_err().to_string().contains("not a GGUF file"));
}
