//! Requests to the engine thread: how they end, what they report, and that they do not disturb each other.

use std::path::{Path, PathBuf};

use hone_engine::gguf::Gguf;
use hone_engine::{EncodeOptions, EngineHandle, ModelOptions};
use hone_protocol::{
    Completion, Constraint, FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent,
    LogprobOptions, Message, Prompt, Role, SamplingOptions, Tool,
};
use serde_json::{Map, Value, json};

use crate::support;

/// An engine over a small model of random weights.
struct Fixture {
    engine: EngineHandle,
    model: PathBuf,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(support::options())
    }

    fn with(options: ModelOptions) -> Self {
        let folder = support::scratch();
        let model = folder.path().join("tiny.gguf");
        support::synthesize("tiny-llama", "q8_0", &model);
        Fixture { engine: support::engine(options), model, _folder: folder }
    }

    /// A request that generates 8 tokens after a short text.
    fn request(&self) -> GenerateRequest {
        GenerateRequest { max_tokens: Some(8), ..GenerateRequest::new(name(&self.model), text("The sea is")) }
    }

    fn complete(&self, request: GenerateRequest) -> Result<Completion, GenerateError> {
        self.engine.generate(request).unwrap().complete()
    }
}

fn name(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn text(text: &str) -> Prompt {
    Prompt::Text { text: text.into(), parse_special: false, add_special: true }
}

#[test]
fn an_answer_ends_at_its_limit_and_says_what_it_cost() {
    let fixture = Fixture::new();
    let completion = fixture.complete(fixture.request()).unwrap();
    assert_eq!(completion.finish_reason, Some(FinishReason::Length));
    assert_eq!(completion.token_ids.len(), 8);
    assert_eq!(completion.timings.generation_tokens, 8);
    assert_eq!(completion.timings.prompt_tokens, completion.prompt_token_ids.len());
    assert!(completion.timings.prompt_seconds > 0.0 && completion.timings.generation_tokens_per_second > 0.0);
    assert!(completion.logprobs.is_empty());
}

#[test]
fn no_tokens_at_all_may_be_asked_for() {
    let fixture = Fixture::new();
    let completion = fixture.complete(GenerateRequest { max_tokens: Some(0), ..fixture.request() }).unwrap();
    assert_eq!((completion.token_ids.len(), completion.finish_reason), (0, Some(FinishReason::Length)));
}

#[test]
fn a_full_context_is_told_apart_from_a_limit() {
    let fixture = Fixture::with(ModelOptions { context_length: Some(12), ..support::options() });
    let full = fixture.complete(GenerateRequest { max_tokens: None, ..fixture.request() }).unwrap();
    assert_eq!(full.finish_reason, Some(FinishReason::ContextFull));
    assert_eq!(full.prompt_token_ids.len() + full.token_ids.len(), 12);
}

#[test]
fn a_request_may_ask_for_less_context_than_there_is() {
    let fixture = Fixture::new();
    let ask = |context, max_tokens| {
        fixture.complete(GenerateRequest { context: Some(context), max_tokens, ..fixture.request() })
    };
    let full = ask(12, None).unwrap();
    assert_eq!(full.finish_reason, Some(FinishReason::ContextFull));
    assert_eq!(full.prompt_token_ids.len() + full.token_ids.len(), 12);
    assert_eq!(ask(1_000_000, Some(3)).unwrap().finish_reason, Some(FinishReason::Length));
    let prompt_tokens = full.prompt_token_ids.len();
    let error = ask(prompt_tokens, None).unwrap_err();
    assert_eq!(error, GenerateError::ContextOverflow { prompt_tokens, context_tokens: prompt_tokens });
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_both_figures() {
    let fixture = Fixture::with(ModelOptions { context_length: Some(12), ..support::options() });
    let prompt = Prompt::Tokens(vec![5; 12]);
    let error = fixture.complete(GenerateRequest { prompt, ..fixture.request() }).unwrap_err();
    assert_eq!(error, GenerateError::ContextOverflow { prompt_tokens: 12, context_tokens: 12 });
}

/// Such schemas come from clients of a server, which a stack overflow would end.
#[test]
fn a_schema_with_many_levels_is_used_or_refused() {
    let fixture = Fixture::new();
    let ask = |n_levels: usize| {
        let link = |next| json!({"type": "object", "properties": {"next": {"$ref": format!("#/$defs/{next}")}}});
        let mut definitions: Map<String, Value> = (0..n_levels).map(|at| (at.to_string(), link(at + 1))).collect();
        definitions.insert(n_levels.to_string(), json!({"type": "null"}));
        let schema = Constraint::JsonSchema(json!({"$defs": definitions, "$ref": "#/$defs/0"}));
        fixture.complete(GenerateRequest { constraint: Some(schema), max_tokens: Some(2), ..fixture.request() })
    };
    assert!(ask(400).is_ok());
    let refused = ask(3_500).unwrap_err();
    assert!(matches!(&refused, GenerateError::Request(reason) if reason.contains("levels")), "{refused}");
}

/// A reader who sees that an answer was cut may want the part that exists; a call or a review with half of its fields
/// has another meaning.
#[test]
fn json_that_reaches_its_limit_is_completed_if_that_is_asked_for() {
    let fixture = Fixture::new();
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let ask = |completes_json| {
        let constraint = Some(Constraint::JsonSchema(schema.clone()));
        let request = GenerateRequest { constraint, completes_json, max_tokens: Some(6), ..fixture.request() };
        fixture.complete(request)
    };
    let whole = ask(true).unwrap();
    assert_eq!((whole.token_ids.len(), whole.finish_reason), (6, Some(FinishReason::Length)));
    let value: Value = serde_json::from_str(&whole.text).unwrap_or_else(|error| panic!("{error}: {}", whole.text));
    assert!(value["a"].is_string(), "{value}");
    let cut = ask(false).unwrap();
    assert!(cut.finish_reason == Some(FinishReason::Length) && serde_json::from_str::<Value>(&cut.text).is_err());
}

#[test]
fn the_same_seed_gives_the_same_text_and_greedy_needs_none() {
    let fixture = Fixture::new();
    let sample = |temperature, seed| {
        let sampling = SamplingOptions { temperature, seed, ..SamplingOptions::default() };
        fixture.complete(GenerateRequest { sampling, max_tokens: Some(16), ..fixture.request() }).unwrap().token_ids
    };
    assert_eq!(sample(1.5, Some(1)), sample(1.5, Some(1)));
    assert_ne!(sample(1.5, Some(1)), sample(1.5, Some(2)));
    assert_eq!(sample(0.0, None), sample(0.0, Some(9)));
}

#[test]
fn greedy_takes_the_likeliest_token_at_every_step() {
    let fixture = Fixture::new();
    let logprobs =
        LogprobOptions { top: Some(3), named: vec![" the".into(), "!".into()], state: false, of_prompt: false };
    let completion = fixture.complete(GenerateRequest { logprobs, ..fixture.request() }).unwrap();
    assert_eq!(completion.logprobs.len(), completion.token_ids.len());
    for (row, token) in completion.logprobs.iter().zip(&completion.token_ids) {
        assert_eq!((row.id, row.top[0].id), (*token, *token));
        assert_eq!((row.top.len(), row.named.len()), (3, 2));
        assert!(row.top[0].logprob >= row.top[1].logprob && row.logprob < 0.0);
        assert_eq!((row.named[0].text.as_str(), row.named[1].text.as_str()), (" the", "!"));
    }
}

#[test]
fn a_name_that_is_no_single_token_is_left_out() {
    let fixture = Fixture::new();
    let logprobs =
        LogprobOptions { top: None, named: vec!["no such token".into(), "!".into()], state: false, of_prompt: false };
    let completion = fixture.complete(GenerateRequest { logprobs, ..fixture.request() }).unwrap();
    assert!(completion.logprobs.iter().all(|row| row.named.len() == 1 && row.named[0].text == "!"));
}

#[test]
fn a_stop_text_ends_the_answer_before_itself() {
    let fixture = Fixture::new();
    let free = fixture.complete(GenerateRequest { max_tokens: Some(24), ..fixture.request() }).unwrap();
    let stop: String = free.text.chars().skip(6).take(3).collect();
    let stopped =
        fixture.complete(GenerateRequest { max_tokens: Some(24), stop: vec![stop.clone()], ..fixture.request() });
    let stopped = stopped.unwrap();
    assert_eq!(stopped.finish_reason, Some(FinishReason::StopText));
    assert_eq!(stopped.text, free.text[..free.text.find(&stop).unwrap()]);
}

#[test]
fn control_tokens_are_reported_and_not_shown() {
    let fixture = Fixture::new();
    let sampling = SamplingOptions { logit_bias: vec![(1, 1e6)], ..SamplingOptions::default() };
    let completion = fixture.complete(GenerateRequest { sampling, ..fixture.request() }).unwrap();
    assert_eq!((completion.token_ids, completion.text.as_str()), (vec![1; 8], ""));
}

#[test]
fn penalties_may_look_as_far_back_as_they_like() {
    let fixture = Fixture::new();
    let sampling = SamplingOptions { repetition_penalty: 1.1, penalty_window: 1_000_000, ..SamplingOptions::default() };
    assert!(fixture.complete(GenerateRequest { sampling, ..fixture.request() }).is_ok());
}

#[test]
fn an_answer_that_repeats_itself_ends_unless_it_has_a_form() {
    let fixture = Fixture::new();
    let complete = |repetition_limit: usize, constraint: Option<Constraint>| {
        let sampling = SamplingOptions { repetition_limit, logit_bias: vec![(1, 1e6)], ..SamplingOptions::default() };
        let request = GenerateRequest { sampling, constraint, max_tokens: Some(48), ..fixture.request() };
        let completion = fixture.complete(request).unwrap();
        (completion.finish_reason.unwrap(), completion.token_ids.len())
    };
    assert_eq!(complete(32, None), (FinishReason::Repetition, 32));
    assert_eq!(complete(0, None), (FinishReason::Length, 48));
    let form = Constraint::Regex("(a|b){400}".to_owned());
    assert_eq!(complete(32, Some(form)), (FinishReason::Length, 48));
}

/// Rewrites the fixture's model with some of its bytes changed.
fn damage(fixture: &Fixture, change: impl FnOnce(&Gguf, &mut Vec<u8>)) {
    let mut bytes = std::fs::read(&fixture.model).unwrap();
    change(&Gguf::open(&fixture.model).unwrap(), &mut bytes);
    std::fs::write(&fixture.model, bytes).unwrap();
}

#[test]
fn logits_that_are_no_numbers_are_a_failure_and_no_answer() {
    let fixture = Fixture::new();
    support::synthesize("tiny-llama", "f32", &fixture.model);
    damage(&fixture, |gguf, bytes| {
        let norm = gguf.tensor("output_norm.weight").unwrap();
        bytes[norm.offset..norm.offset + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let error = fixture.complete(fixture.request()).unwrap_err().to_string();
    assert!(error.contains("logits are not numbers"), "{error}");
}

#[test]
fn a_model_with_a_broken_template_still_continues_text() {
    let fixture = Fixture::new();
    damage(&fixture, |_, bytes| {
        let start = bytes.windows(7).position(|window| window == b"{% for ").unwrap();
        bytes[start..start + 7].copy_from_slice(b"{% fur ");
    });
    assert!(fixture.complete(fixture.request()).is_ok());
    let prompt = Prompt::Chat(vec![Message::new(Role::User, "Hi")]);
    let error = fixture.complete(GenerateRequest { prompt, ..fixture.request() }).unwrap_err().to_string();
    assert!(error.contains("template"), "{error}");
}

#[track_caller]
fn check_refused(change: impl FnOnce(GenerateRequest) -> GenerateRequest, expected: &str) {
    let fixture = Fixture::new();
    let error = fixture.complete(change(fixture.request())).unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    assert!(fixture.complete(fixture.request()).is_ok(), "the engine goes on after {error:?}");
}

#[test]
fn impossible_requests_are_refused_and_the_engine_goes_on() {
    let sampling = |temperature| SamplingOptions { temperature, ..SamplingOptions::default() };
    check_refused(|request| GenerateRequest { model: "nowhere.gguf".into(), ..request }, "no model \"nowhere.gguf\"");
    check_refused(|request| GenerateRequest { prompt: text(""), ..request }, "the prompt is empty");
    check_refused(|request| GenerateRequest { prompt: Prompt::Tokens(vec![99_999]), ..request }, "token id 99999");
    check_refused(|request| GenerateRequest { sampling: sampling(-1.0), ..request }, "temperature is -1");
    let constraint = Some(Constraint::Regex("[".into()));
    check_refused(|request| GenerateRequest { constraint, ..request }, "regular expression");
    let forced = |text: &str| Some(text.to_owned());
    check_refused(|request| GenerateRequest { forced_answer: forced(""), ..request }, "the forced answer is empty");
    let constraint = Some(Constraint::Choice(vec!["yes".into()]));
    check_refused(|request| GenerateRequest { forced_answer: forced("yes"), constraint, ..request }, "constraint");
    let long = forced(&"sea ".repeat(3000));
    check_refused(|request| GenerateRequest { forced_answer: long, ..request }, "holds 512");
}

#[test]
fn tools_need_a_template_that_knows_them() {
    let fixture = Fixture::new();
    let tool = Tool { name: "recall".into(), description: "Looks up.".into(), parameters: serde_json::json!({}) };
    let ask = |prompt| fixture.complete(GenerateRequest { prompt, tools: vec![tool.clone()], ..fixture.request() });
    let chat = ask(Prompt::Chat(vec![Message::new(Role::User, "Hi")])).unwrap_err();
    assert_eq!(chat, GenerateError::NoTools { model: name(&fixture.model) });
    assert!(ask(text("Hi")).unwrap_err().to_string().contains("give the prompt as a conversation"));
    let taught = GenerateRequest {
        prompt: Prompt::Chat(vec![Message::new(Role::User, "Hi")]),
        tools: vec![tool],
        teaches_tools: true,
        ..fixture.request()
    };
    let taught = fixture.complete(taught).unwrap();
    assert!(taught.prompt_token_ids.len() > 100 && !taught.token_ids.is_empty());
}

#[test]
fn requests_that_run_together_answer_as_they_do_alone() {
    let fixture = Fixture::new();
    let prompts = ["The sea is", "A", "Once upon a time there was a small boat that sailed far away", "One two three"];
    let request = |prompt: &str| GenerateRequest { prompt: text(prompt), ..fixture.request() };
    let alone: Vec<Vec<u32>> =
        prompts.iter().map(|prompt| fixture.complete(request(prompt)).unwrap().token_ids).collect();
    let running: Vec<_> = prompts.iter().map(|prompt| fixture.engine.generate(request(prompt)).unwrap()).collect();
    let together: Vec<Vec<u32>> =
        running.into_iter().map(|generation| generation.complete().unwrap().token_ids).collect();
    assert_eq!(together, alone);
}

#[test]
fn more_requests_than_the_cache_holds_wait_for_their_turn() {
    let fixture = Fixture::with(ModelOptions { context_length: Some(64), n_sequences: 1, ..support::options() });
    let request = || GenerateRequest { max_tokens: Some(40), ..fixture.request() };
    let running: Vec<_> = (0..6).map(|_| fixture.engine.generate(request()).unwrap()).collect();
    for generation in running {
        assert_eq!(generation.complete().unwrap().token_ids.len(), 40);
    }
}

#[test]
fn a_dropped_request_makes_room_at_once() {
    let fixture = Fixture::with(ModelOptions { n_sequences: 1, ..support::options() });
    for _ in 0..20 {
        let endless = GenerateRequest { max_tokens: None, ..fixture.request() };
        let generation = fixture.engine.generate(endless).unwrap();
        let started = generation.events().iter().any(|event| matches!(event, GenerationEvent::Token { .. }));
        assert!(started);
        drop(generation);
    }
    assert!(fixture.complete(fixture.request()).is_ok());
}

#[test]
fn events_come_in_order_and_end_once() {
    let prompt = Prompt::Tokens(vec![7; 600]);
    let request = GenerateRequest { max_tokens: Some(2), ..GenerateRequest::new(name(&support::smollm2()), prompt) };
    let generation = support::engine(support::options()).generate(request).unwrap();
    let mut loaded = Vec::new();
    let kinds: Vec<String> = generation
        .events()
        .iter()
        .filter_map(|event| {
            Some(match event {
                GenerationEvent::Loading { done, total } => {
                    loaded.push(100 * done / total);
                    return None;
                }
                GenerationEvent::Started { .. } => "started".into(),
                GenerationEvent::Prefill { done, total } => format!("{done}/{total}"),
                GenerationEvent::OfPrompt(_) => "of the prompt".into(),
                GenerationEvent::Reward(_) => "reward".into(),
                GenerationEvent::StoppedBy(text) => text,
                GenerationEvent::Token { .. } => "token".into(),
                GenerationEvent::Finished { .. } => "finished".into(),
                GenerationEvent::Failed(error) => error.to_string(),
            })
        })
        .collect();
    assert!(loaded.is_sorted() && loaded.len() > 10 && loaded.ends_with(&[100]), "{loaded:?}");
    assert_eq!(kinds[..4], ["started", "0/600", "512/600", "600/600"]);
    assert_eq!(kinds[4..], ["token", "token", "finished"]);
}

#[test]
fn the_built_in_model_keeps_to_a_form() {
    let engine = support::engine(support::options());
    let ask = |question: &str, constraint: Constraint| {
        let request = GenerateRequest {
            constraint: Some(constraint),
            max_tokens: Some(60),
            ..GenerateRequest::new(name(&support::smollm2()), Prompt::Chat(vec![Message::new(Role::User, question)]))
        };
        engine.generate(request).unwrap().complete().unwrap()
    };
    let choice = ask("Is fire hot?", Constraint::Choice(vec!["yes".into(), "no".into()]));
    assert!(["yes", "no"].contains(&choice.text.as_str()), "{:?}", choice.text);
    let digits = ask("What is 12 times 12?", Constraint::Regex("[0-9]{3}".into()));
    assert!(digits.text.len() == 3 && digits.text.parse::<u32>().is_ok(), "{:?}", digits.text);
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "inhabitants": {"type": "integer", "maximum": 99_999_999}},
        "required": ["city", "inhabitants"],
        "additionalProperties": false,
    });
    let object = ask("Name a city and its number of inhabitants.", Constraint::JsonSchema(schema));
    let parsed: serde_json::Value = serde_json::from_str(&object.text).unwrap();
    assert!(parsed["city"].is_string() && parsed["inhabitants"].is_i64(), "{parsed}");
    assert_eq!(object.finish_reason, Some(FinishReason::Stop));
}

#[test]
fn the_built_in_model_gives_its_verdict_whatever_it_writes_before() {
    let engine = support::engine(support::options());
    let named: Vec<String> = ["1", "2", "3", "4", "5"].map(str::to_owned).to_vec();
    let ask = |free_tokens, max_tokens, temperature| {
        let prompt = Prompt::Chat(vec![Message::new(Role::User, "Is the answer \"Paris\" good? Say why.")]);
        let request = GenerateRequest {
            constraint: Some(Constraint::FreeThenRegex {
                free_tokens,
                marker: " [RESULT] ".to_owned(),
                regex: "[1-5]".to_owned(),
            }),
            sampling: SamplingOptions { temperature, seed: Some(5), ..SamplingOptions::default() },
            logprobs: LogprobOptions { top: None, named: named.clone(), state: false, of_prompt: false },
            max_tokens: Some(max_tokens),
            ..GenerateRequest::new(name(&support::smollm2()), prompt)
        };
        engine.generate(request).unwrap().complete().unwrap()
    };
    for (free_tokens, temperature) in [(0, 0.0), (4, 0.0), (24, 0.0), (300, 0.0), (40, 1.2), (300, 0.9)] {
        let completion = ask(free_tokens, 400, temperature);
        assert_eq!(completion.finish_reason, Some(FinishReason::Stop), "{:?}", completion.text);
        let (free, score) = completion.text.split_once(" [RESULT] ").unwrap();
        assert!(named.iter().any(|name| name == score), "{:?}", completion.text);
        assert_eq!(free.is_empty(), free_tokens == 0);
        assert!(completion.token_ids.len() <= free_tokens + 12, "{:?}", completion.text);
        let last = completion.logprobs.last().unwrap();
        let sum: f32 = last.named.iter().map(|row| row.logprob.exp()).sum();
        assert!(last.named.len() == 5 && sum > 0.0 && sum <= 1.0, "{last:?}");
        assert!(last.named.iter().any(|row| row.id == last.id && row.logprob == last.logprob));
    }
    let cut = ask(24, 26, 0.0);
    assert_eq!((cut.finish_reason, cut.token_ids.len()), (Some(FinishReason::Length), 26));
}

#[test]
fn a_prompt_has_the_log_probabilities_that_it_has_where_it_is_an_answer() {
    let engine = support::engine(support::options());
    let tokenizer = support::model_files::tokenizer(&support::model_files::smollm2());
    let ask = |tokens: &[u32], max_tokens: Option<usize>, of_prompt: bool, forced: Option<&str>| {
        let logprobs = LogprobOptions { top: Some(2), of_prompt, ..LogprobOptions::default() };
        let sampling = SamplingOptions { temperature: 0.0, ..SamplingOptions::default() };
        let forced_answer = forced.map(str::to_owned);
        engine
            .generate(GenerateRequest {
                max_tokens,
                logprobs,
                sampling,
                forced_answer,
                ..GenerateRequest::new(name(&support::smollm2()), Prompt::Tokens(tokens.to_vec()))
            })
            .unwrap()
    };
    let text = "The sun rises in the east and sets in the west. ".repeat(12);
    let tokens = tokenizer.encode(&text, EncodeOptions::default()).unwrap();
    let rest = tokenizer.decode(&tokens[1..], true);
    // They run at the same time.
    let [alone, followed] = [Some(0), Some(3)].map(|max_tokens| ask(&tokens, max_tokens, true, None));
    let [forced, plain] = [ask(&tokens[..1], None, false, Some(&rest)), ask(&tokens, Some(3), false, None)];
    let [alone, followed, forced, plain] = [alone, followed, forced, plain].map(|asked| asked.complete().unwrap());
    assert_eq!(alone.prompt_logprobs, forced.logprobs);
    assert_eq!((alone.prompt_token_ids, alone.token_ids), (tokens.clone(), Vec::new()));
    assert_eq!((alone.finish_reason, alone.timings.prompt_tokens), (Some(FinishReason::Length), tokens.len()));
    assert_eq!(followed.prompt_logprobs, forced.logprobs);
    assert_eq!((followed.text, followed.token_ids, followed.logprobs), (plain.text, plain.token_ids, plain.logprobs));
    assert_eq!((followed.timings.generation_tokens, followed.timings.guessed_tokens), (3, 0));
    assert_eq!(plain.prompt_logprobs, []);
    let single = ask(&tokens[..1], Some(0), true, None).complete().unwrap();
    assert_eq!((single.prompt_logprobs, single.finish_reason), (Vec::new(), Some(FinishReason::Length)));
}

/// Several answers, so that steps hold tokens of more than one.
#[test]
fn a_forced_answer_has_the_log_probabilities_that_it_has_where_it_is_chosen() {
    let engine = support::engine(support::options());
    let request = |question: &str| GenerateRequest {
        max_tokens: Some(60),
        logprobs: LogprobOptions { top: Some(0), named: Vec::new(), state: true, of_prompt: false },
        ..GenerateRequest::new(name(&support::smollm2()), Prompt::Chat(vec![Message::new(Role::User, question)]))
    };
    let questions = ["Is fire hot?", "Name three colours of leaves.", "What is rain?"];
    let chosen = questions.map(|question| engine.generate(request(question)).unwrap().complete().unwrap());
    let forced: [Generation; 3] = std::array::from_fn(|index| {
        let forced_answer = Some(chosen[index].text.clone());
        engine.generate(GenerateRequest { forced_answer, max_tokens: None, ..request(questions[index]) }).unwrap()
    });
    for (chosen, forced) in std::iter::zip(chosen, forced) {
        let forced = forced.complete().unwrap();
        assert_eq!((&forced.text, &forced.token_ids), (&chosen.text, &chosen.token_ids));
        assert_eq!(forced.logprobs, chosen.logprobs);
        assert_eq!(forced.finish_reason, Some(FinishReason::Stop));
        assert_eq!(forced.timings.guessed_tokens, 0);
    }
}
