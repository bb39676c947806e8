//! Passes any texts to a conversation whose template rewrites them: the prompt has the control tokens of a harmless
//! one, or the conversation is refused. `cargo +nightly fuzz run conversation`.
#![no_main]

use std::sync::LazyLock;

use hone_engine::gguf::{Gguf, WriteValue, Writer};
use hone_engine::{Chat, ChatTemplate, TemplateHost, Tokenizer};
use hone_protocol::{Message, Role};
use libfuzzer_sys::fuzz_target;

/// Filters that the templates apply to a text.
const FILTERS: [&str; 7] = [
    "m.content",
    "m.content | lower",
    "m.content | upper",
    "m.content | reverse",
    "m.content | replace('x', '')",
    "m.content[::2]",
    "m.content | tojson",
];

static MODELS: LazyLock<Vec<(Tokenizer, ChatTemplate)>> =
    LazyLock::new(|| FILTERS.iter().map(|filter| model(filter)).collect());

fn model(filter: &str) -> (Tokenizer, ChatTemplate) {
    let bytes: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec!["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[EOT]"];
    tokens.extend(bytes.iter().map(String::as_str));
    let types: Vec<i32> = (0..tokens.len())
        .map(|id| {
            if id == 0 {
                2
            } else if id < 6 {
                3
            } else {
                6
            }
        })
        .collect();
    let template = format!("{{% for m in messages %}}<|im_start|>{{{{ {filter} }}}}<|im_end|>{{% endfor %}}");
    let mut writer = Writer::new();
    let entries = [
        ("tokenizer.ggml.model", WriteValue::String("llama")),
        ("tokenizer.ggml.tokens", WriteValue::Strings(&tokens)),
        ("tokenizer.ggml.token_type", WriteValue::I32s(&types)),
        ("tokenizer.ggml.scores", WriteValue::F32s(&vec![0.0; tokens.len()])),
        ("tokenizer.chat_template", WriteValue::String(&template)),
    ];
    for (key, value) in entries {
        writer.metadata(key, value).expect("the keys differ");
    }
    let file = writer.begin(Vec::new()).and_then(|file| file.finish()).expect("memory takes every byte");
    let gguf = Gguf::from_bytes(file).expect("what the writer writes can be read");
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("the vocabulary is sound");
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer, &TemplateHost::InProcess).expect("the template is short");
    (tokenizer, template)
}

fuzz_target!(|texts: (&str, &str)| {
    let conversation =
        |first: &str, second: &str| [Message::new(Role::User, first), Message::new(Role::Assistant, second)];
    for (tokenizer, template) in MODELS.iter() {
        let control = |messages: &[Message]| {
            let ids = template.encode_chat(tokenizer, Chat::of(messages)).ok()?;
            Some(ids.into_iter().filter(|id| tokenizer.is_control(*id)).collect::<Vec<u32>>())
        };
        let harmless = control(&conversation("a", "b"));
        let found = control(&conversation(texts.0, texts.1));
        assert!(found.is_none() || found == harmless, "{found:?} of {texts:?}");
    }
});
