//! Templates for files that have none.

use crate::tokenizer::Tokenizer;

const CHATML: &str = "\
{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}
{{ '<|im_start|>assistant\\n' }}";

const LLAMA3: &str = "\
{{ bos_token }}{% for message in messages %}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content.strip() + '<|eot_id|>' }}
{%- endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}";

const GEMMA: &str = "\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('there is no system role') }}{% endif %}
{%- set role = 'model' if message.role == 'assistant' else 'user' %}
{{- '<start_of_turn>' + role + '\\n' + message.content.strip() + '<end_of_turn>\\n' }}
{%- endfor %}{{ '<start_of_turn>model\\n' }}";

const PHI3: &str = "\
{% for message in messages %}{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}{% endfor %}
{{ '<|assistant|>\\n' }}";

const LLAMA2: &str = "\
{% set ns = namespace(system='') %}{% for message in messages %}
{%- if message.role == 'system' %}{% set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' %}
{%- elif message.role == 'user' %}
{{- bos_token + '[INST] ' + ns.system + message.content.strip() + ' [/INST]' }}{% set ns.system = '' %}
{%- else %}{{ ' ' + message.content.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}";

const MISTRAL: &str = "\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('there is no system role') }}
{%- elif message.role == 'user' %}{{ '[INST] ' + message.content.strip() + ' [/INST]' }}
{%- else %}{{ ' ' + message.content.strip() + eos_token }}{% endif %}
{%- endfor %}";

/// The control token that identifies a format, and its template.
const BY_CONTROL_TOKEN: [(&str, &str); 4] =
    [("<|im_start|>", CHATML), ("<|start_header_id|>", LLAMA3), ("<start_of_turn>", GEMMA), ("<|assistant|>", PHI3)];

/// Parts of the names of models that use Mistral's variant of `[INST]`.
const MISTRAL_NAMES: [&str; 3] = ["mistral", "mixtral", "prometheus"];

/// The template that the vocabulary suggests. SentencePiece vocabularies without chat tokens are Llama 2's, or
/// Mistral's if the model's name says so.
pub(super) fn template(tokenizer: &Tokenizer, model_name: &str) -> Option<&'static str> {
    let is_there = |name: &str| tokenizer.token_with_text(name).is_some_and(|id| tokenizer.is_control(id));
    if let Some((_, template)) = BY_CONTROL_TOKEN.iter().find(|(name, _)| is_there(name)) {
        return Some(template);
    }
    let model_name = model_name.to_lowercase();
    match MISTRAL_NAMES.iter().any(|part| model_name.contains(part)) {
        _ if !tokenizer.is_sentence_piece() => None,
        true => Some(MISTRAL),
        false => Some(LLAMA2),
    }
}
