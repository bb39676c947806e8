//! Opens any bytes as a GGUF file and reads everything in it: `cargo +nightly fuzz run gguf`.
#![no_main]

use hone_engine::gguf::Gguf;
use hone_engine::{ChatTemplate, DecoderSpec, EncodeOptions, TemplateHost, Tokenizer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::from_bytes(bytes.to_vec()) else { return };
    for (key, value) in gguf.metadata() {
        let _ = (value.to_string(), gguf.string(key), gguf.unsigned(key), gguf.float(key), gguf.boolean(key));
        let _ = (gguf.strings(key), gguf.floats(key), gguf.integers(key));
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor_bytes(tensor).len(), tensor.n_bytes);
    }
    let _ = DecoderSpec::from_gguf(&gguf, None);
    if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
        let _ = tokenizer.encode("a b", EncodeOptions { parse_special: true, add_special: true });
        let _ = ChatTemplate::from_gguf(&gguf, &tokenizer, &TemplateHost::InProcess);
    }
});
