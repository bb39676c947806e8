//! GGUF files made up for tests: metadata without tensors.

use hone_engine::gguf::Gguf;

/// Writes the metadata of a GGUF file without tensors.
#[derive(Default)]
pub(crate) struct Metadata {
    bytes: Vec<u8>,
    n_entries: u64,
}

impl Metadata {
    fn key(mut self, key: &str, value_type: u32) -> Self {
        self.text(key);
        self.bytes.extend(value_type.to_le_bytes());
        self.n_entries += 1;
        self
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    pub(crate) fn string(self, key: &str, text: &str) -> Self {
        let mut metadata = self.key(key, 8);
        metadata.text(text);
        metadata
    }

    pub(crate) fn unsigned(self, key: &str, number: u32) -> Self {
        let mut metadata = self.key(key, 4);
        metadata.bytes.extend(number.to_le_bytes());
        metadata
    }

    pub(crate) fn boolean(self, key: &str, truth: bool) -> Self {
        let mut metadata = self.key(key, 7);
        metadata.bytes.push(u8::from(truth));
        metadata
    }

    pub(crate) fn strings(self, key: &str, texts: &[&str]) -> Self {
        let mut metadata = self.array(key, 8, texts.len());
        texts.iter().for_each(|text| metadata.text(text));
        metadata
    }

    pub(crate) fn floats(self, key: &str, numbers: &[f32]) -> Self {
        let mut metadata = self.array(key, 6, numbers.len());
        numbers.iter().for_each(|number| metadata.bytes.extend(number.to_le_bytes()));
        metadata
    }

    pub(crate) fn integers(self, key: &str, numbers: &[i32]) -> Self {
        let mut metadata = self.array(key, 5, numbers.len());
        numbers.iter().for_each(|number| metadata.bytes.extend(number.to_le_bytes()));
        metadata
    }

    fn array(self, key: &str, element_type: u32, length: usize) -> Self {
        let mut metadata = self.key(key, 9);
        metadata.bytes.extend(element_type.to_le_bytes());
        metadata.bytes.extend((length as u64).to_le_bytes());
        metadata
    }

    pub(crate) fn gguf(self) -> Gguf {
        Gguf::from_bytes(self.bytes()).unwrap()
    }

    /// The file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file.extend(self.n_entries.to_le_bytes());
        file.extend(self.bytes);
        file
    }
}

/// A SentencePiece vocabulary of single bytes, the space, and these control tokens. It begins texts with `<s>`.
pub(crate) fn vocabulary(control: &[&str]) -> Metadata {
    let bytes: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec!["<unk>", "<s>", "</s>"];
    tokens.extend(bytes.iter().map(String::as_str));
    tokens.push("▁");
    tokens.extend(control);
    let mut types = vec![2, 3, 3];
    types.extend([6; 256]);
    types.push(1);
    types.extend(control.iter().map(|_| 3));
    Metadata::default()
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &tokens)
        .floats("tokenizer.ggml.scores", &vec![0.0; tokens.len()])
        .integers("tokenizer.ggml.token_type", &types)
        .boolean("tokenizer.ggml.add_space_prefix", false)
}
