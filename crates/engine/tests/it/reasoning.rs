//! Reasoning of the built-in model, whose template is replaced by one that knows reasoning.

use std::fs;
use std::path::PathBuf;

use hone_engine::gguf::Gguf;
use hone_engine::{Chat, ChatTemplate, EngineHandle, TemplateHost, Tokenizer};
use hone_protocol::{
    Constraint, Effort, Generate, GenerateRequest, GenerationEvent, Message, Prompt, ReasoningTags, Role,
    SamplingOptions, ThinkingOptions,
};

use crate::support;

const TEMPLATE: &str = "{% for turn in messages %}{{ '<|im_start|>' + turn.role + '\n' + turn.content + '<|im_end|>\n' }}\
                        {% endfor %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}\
                        {{ '<think>\n\n</think>\n\n' }}{% endif %}";

/// The built-in model with another template in the place of its own.
struct Reasoner {
    path: PathBuf,
    engine: EngineHandle,
    _scratch: tempfile::TempDir,
}

/// The outcome of a question.
struct Told {
    text: String,
    reasoning: Option<ReasoningTags>,
    n_tokens: usize,
}

impl Reasoner {
    fn new(template: &str) -> Reasoner {
        let mut bytes = fs::read(support::smollm2()).unwrap();
        let own = Gguf::open(&support::smollm2()).unwrap();
        let own = own.string("tokenizer.chat_template").unwrap().unwrap().as_bytes();
        let place = bytes.windows(own.len()).position(|window| window == own).unwrap();
        let comment = format!("{{#{}#}}", " ".repeat(own.len() - template.len() - 4));
        bytes[place..place + own.len()].copy_from_slice(format!("{comment}{template}").as_bytes());
        let scratch = support::scratch();
        let path = scratch.path().join("reasoner.gguf");
        fs::write(&path, bytes).unwrap();
        Reasoner { path, engine: support::engine(support::options()), _scratch: scratch }
    }

    fn ask(&self, thinking: ThinkingOptions, constraint: Option<Constraint>) -> Told {
        let request = GenerateRequest {
            sampling: SamplingOptions { temperature: 0.0, ..SamplingOptions::default() },
            max_tokens: Some(60),
            thinking,
            constraint,
            ..GenerateRequest::new(self.path.to_str().unwrap(), Prompt::Chat(question()))
        };
        let generation = self.engine.generate(request).unwrap();
        let mut told = Told { text: String::new(), reasoning: None, n_tokens: 0 };
        for event in generation.events() {
            match event {
                GenerationEvent::Started { reasoning, .. } => told.reasoning = reasoning,
                GenerationEvent::Loading { .. }
                | GenerationEvent::Prefill { .. }
                | GenerationEvent::OfPrompt(_)
                | GenerationEvent::Reward(_)
                | GenerationEvent::StoppedBy(_) => {}
                GenerationEvent::Token { text, .. } => {
                    told.n_tokens += 1;
                    told.text.push_str(&text);
                }
                GenerationEvent::Finished { text, .. } => {
                    told.text.push_str(&text);
                    return told;
                }
                GenerationEvent::Failed(error) => panic!("{error}"),
            }
        }
        panic!("the engine is gone");
    }
}

fn question() -> Vec<Message> {
    vec![Message::new(Role::User, "What is the capital of France?")]
}

fn city() -> Constraint {
    let city = serde_json::json!({"enum": ["Paris", "Rome"]});
    Constraint::JsonSchema(serde_json::json!({
        "type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": false,
    }))
}

fn on(budget: Option<usize>) -> ThinkingOptions {
    ThinkingOptions { is_on: Some(true), budget, ..ThinkingOptions::default() }
}

#[test]
fn reasoning_ends_after_its_budget_and_the_form_begins_after_it() {
    let reasoner = Reasoner::new(TEMPLATE);
    for budget in [0, 1, 9] {
        let told = reasoner.ask(on(Some(budget)), Some(city()));
        assert_eq!(told.reasoning.map(|tags| tags.open), Some("<think>"));
        let (reasoning, answer) = told.text.split_once("</think>").unwrap_or_else(|| panic!("{:?}", told.text));
        let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{:?}", told.text));
        assert!(answer["city"] == "Paris" || answer["city"] == "Rome", "{answer}");
        assert_eq!(reasoning.is_empty(), budget == 0, "{reasoning:?}");
    }
}

#[test]
fn after_a_budget_alone_the_answer_is_free() {
    let told = Reasoner::new(TEMPLATE).ask(on(Some(4)), None);
    let (reasoning, answer) = told.text.split_once("</think>").unwrap_or_else(|| panic!("{:?}", told.text));
    assert!(!reasoning.is_empty() && !answer.trim().is_empty(), "{:?}", told.text);
    assert!(told.n_tokens > 10, "it goes on: {:?}", told.text);
}

#[test]
fn without_reasoning_the_answer_begins_at_once() {
    let reasoner = Reasoner::new(TEMPLATE);
    let off = ThinkingOptions { is_on: Some(false), ..ThinkingOptions::default() };
    for thinking in [off, ThinkingOptions::default()] {
        let told = reasoner.ask(thinking, Some(city()));
        assert_eq!(told.reasoning, None);
        assert!(serde_json::from_str::<serde_json::Value>(&told.text).is_ok(), "{:?}", told.text);
    }
}

/// Some models always reason; where it is not wanted, their reasoning is ended before it begins.
#[test]
fn reasoning_that_the_template_opens_is_ended_if_it_is_not_wanted() {
    let always = format!("{}{{{{ '<think>\n' }}}}{{# </think> #}}", &TEMPLATE[..TEMPLATE.find("{% if").unwrap()]);
    let reasoner = Reasoner::new(&always);
    let told = reasoner.ask(ThinkingOptions { is_on: Some(false), ..ThinkingOptions::default() }, None);
    assert!(told.reasoning.is_some() && told.text.starts_with("</think>"), "{:?}", told.text);
    let told = reasoner.ask(ThinkingOptions::default(), Some(city()));
    assert!(told.reasoning.is_some() && !told.text.starts_with('{'), "the form waits: {:?}", told.text);
}

#[test]
fn a_template_is_told_what_was_asked_for() {
    let reasoner = Reasoner::new("{{ enable_thinking }}|{{ thinking }}|{{ reasoning_effort }}");
    let gguf = Gguf::open(&reasoner.path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer, &TemplateHost::InProcess).unwrap();
    let messages = question();
    let render = |thinking| template.render(Chat { thinking, ..Chat::of(&messages) }).unwrap();
    assert_eq!(render(ThinkingOptions::default()), "||");
    assert_eq!(render(on(None)), "True|True|");
    assert_eq!(render(ThinkingOptions { effort: Some(Effort::High), ..on(None) }), "True|True|high");
}

/// gpt-oss writes reasoning and answer as messages of one turn.
#[test]
fn an_answer_that_is_a_message_of_its_own_is_begun_with_its_header() {
    let harmony = "{% for turn in messages %}{{ '<|im_start|>' + turn.role + '\n' + turn.content + '<|im_end|>\n' }}\
                   {% endfor %}<|start|>assistant{# <|channel|>analysis<|message|> #}";
    let reasoner = Reasoner::new(harmony);
    let told = reasoner.ask(on(Some(5)), Some(city()));
    assert_eq!(told.reasoning.map(|tags| tags.close), Some("<|end|>"));
    let header = "<|end|><|start|>assistant<|channel|>final<|message|>";
    let (reasoning, answer) = told.text.split_once(header).unwrap_or_else(|| panic!("{:?}", told.text));
    assert!(!reasoning.is_empty() && serde_json::from_str::<serde_json::Value>(answer).is_ok(), "{:?}", told.text);
    let told = reasoner.ask(on(Some(5)), None);
    assert!(told.text.contains("<|end|>") && !told.text.contains(header), "a call may follow: {:?}", told.text);
    let off = ThinkingOptions { is_on: Some(false), ..ThinkingOptions::default() };
    for thinking in [off, ThinkingOptions::default()] {
        let told = reasoner.ask(thinking, Some(city()));
        assert_eq!(told.reasoning, None);
        assert!(serde_json::from_str::<serde_json::Value>(&told.text).is_ok(), "{:?}", told.text);
    }
}
