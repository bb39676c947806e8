//! Constrained texts over the built-in model's vocabulary: any random choices among the allowed tokens give a text of
//! the form.

use crate::constraint::{ConstraintFactory, ConstraintState, Taken};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use hone_protocol::Constraint;
use serde_json::{Value, json};

use crate::support::model_files;
use crate::support::random::Random;

const MAX_TOKENS: usize = 300;

struct Vocabulary {
    tokenizer: Tokenizer,
    factory: ConstraintFactory,
}

fn smollm2() -> Vocabulary {
    let tokenizer = model_files::tokenizer(&model_files::smollm2());
    let factory = ConstraintFactory::new(&tokenizer).unwrap();
    Vocabulary { tokenizer, factory }
}

fn llama() -> Vocabulary {
    let tokenizer = model_files::tokenizer(&model_files::llama_vocabulary());
    let factory = ConstraintFactory::new(&tokenizer).unwrap();
    Vocabulary { tokenizer, factory }
}

fn choice(texts: &[&str]) -> Constraint {
    Constraint::Choice(texts.iter().map(|text| (*text).to_owned()).collect())
}

fn regex(expression: &str) -> Constraint {
    Constraint::Regex(expression.to_owned())
}

impl Vocabulary {
    fn start(&self, constraint: &Constraint) -> ConstraintState {
        self.factory.start(constraint).unwrap_or_else(|error| panic!("{constraint:?}: {error}"))
    }

    /// A text of random allowed tokens. Where it may end, it does so with a probability of one in four, or when nothing
    /// else is allowed. `None` if it has not ended after `MAX_TOKENS`.
    fn random_text(&self, constraint: &Constraint, random: &mut Random) -> Option<String> {
        let mut state = self.start(constraint);
        let mut ids = Vec::new();
        while ids.len() < MAX_TOKENS && !state.is_complete() {
            if state.may_end().unwrap() && random.below(4) == 0 {
                break;
            }
            let allowed: Vec<u32> = state.allowed().unwrap().unwrap().tokens().collect();
            assert!(!allowed.is_empty(), "a dead end after {:?}", self.tokenizer.decode(&ids, true));
            let token = random.pick(&allowed);
            state.accept(token).unwrap();
            if !self.tokenizer.is_end_of_generation(token) {
                ids.push(token);
            }
        }
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.tokenizer.token_bytes(*id)).copied().collect();
        state.may_end().unwrap().then(|| String::from_utf8(bytes).unwrap())
    }

    fn check(&self, constraint: &Constraint, has_form: impl Fn(&str) -> bool) {
        let mut random = Random::new(42);
        let texts: Vec<String> = (0..20).filter_map(|_| self.random_text(constraint, &mut random)).collect();
        assert!(texts.len() >= 5, "{constraint:?}: only {texts:?} came to an end");
        for text in texts {
            assert!(has_form(&text), "{constraint:?}: {text:?}");
        }
    }

    fn check_json(&self, schema: Value, has_form: impl Fn(&Value) -> bool) {
        self.check(&Constraint::JsonSchema(schema), |text| {
            serde_json::from_str(text).is_ok_and(|value: Value| has_form(&value))
        });
    }

    fn check_refused(&self, constraint: &Constraint, part: &str) {
        let error = self.factory.start(constraint).err().unwrap_or_else(|| panic!("{constraint:?}")).to_string();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn choices_are_one_of_their_texts() {
    let choices: [&[&str]; 6] = [
        &["yes", "no", "maybe"],
        &["1", "2", "3", "4", "5"],
        &["a", "ab", "abc"],
        &["日本語", "日本", "🦙🚀", "Grüße, y'all"],
        &[".*", "a|b", "[x]{2}", "\\x41", "\\", "\"quoted\"", "/slash/", "(?i)", "<b>", "\\d+", "#-&~^$"],
        &["two\nlines", " leading", "trailing ", "\ttab"],
    ];
    for vocabulary in [smollm2(), llama()] {
        for texts in choices {
            vocabulary.check(&choice(texts), |text| texts.contains(&text));
        }
    }
}

#[test]
fn a_choice_offers_every_text_and_only_those() {
    let Vocabulary { tokenizer, factory } = smollm2();
    let mut state = factory.start(&choice(&["yes", "no"])).unwrap();
    let (yes, no) = (tokenizer.token_with_text("yes").unwrap(), tokenizer.token_with_text("no").unwrap());
    let maybe = tokenizer.token_with_text("may").unwrap();
    let mask = state.allowed().unwrap().unwrap();
    assert!(mask.allows(yes) && mask.allows(no) && !mask.allows(maybe));
    assert!(mask.tokens().all(|id| {
        let bytes = tokenizer.token_bytes(id);
        b"yes".starts_with(bytes) || b"no".starts_with(bytes)
    }));
    let mut logits = vec![1.0; tokenizer.n_tokens() + 64];
    mask.apply(&mut logits);
    for (id, logit) in (0..).zip(&logits) {
        assert_eq!(*logit, if mask.allows(id) { 1.0 } else { f32::NEG_INFINITY });
    }
    assert!(state.accept(maybe).is_err(), "what does not fit is refused");
    assert!(!state.may_end().unwrap());
    state.accept(yes).unwrap();
    assert!(state.is_complete() && state.may_end().unwrap());
    assert!(state.allowed().unwrap().unwrap().tokens().all(|id| tokenizer.is_end_of_generation(id)));
}

#[test]
fn a_text_that_may_end_allows_the_end_of_the_turn() {
    let Vocabulary { tokenizer, factory } = smollm2();
    let mut state = factory.start(&regex("[0-9]+")).unwrap();
    let end = tokenizer.eos().unwrap();
    assert!(!state.allowed().unwrap().unwrap().allows(end));
    state.accept(tokenizer.token_with_text("7").unwrap()).unwrap();
    assert!(state.may_end().unwrap() && !state.is_complete());
    assert!(state.allowed().unwrap().unwrap().allows(end));
    let mut fork = state.clone();
    state.accept(end).unwrap();
    assert!(state.is_complete());
    assert!(!fork.is_complete());
    fork.accept(tokenizer.token_with_text("1").unwrap()).unwrap();
}

#[test]
fn control_tokens_are_no_text() {
    let Vocabulary { tokenizer, factory } = smollm2();
    let mut state = factory.start(&regex(r"(?s).{1,40}")).unwrap();
    let start = tokenizer.token_with_text("<|im_start|>").unwrap();
    assert!(!state.allowed().unwrap().unwrap().allows(start));
    let mut state = factory.start(&choice(&["<|im_start|>"])).unwrap();
    assert!(!state.allowed().unwrap().unwrap().allows(start));
    for id in tokenizer.encode("<|im_start|>", EncodeOptions::default()).unwrap() {
        state.accept(id).unwrap();
    }
    assert!(state.is_complete());
}

#[test]
fn regular_expressions_match_the_whole_text() {
    let is_date = |text: &str| text.len() == 10 && text.split('-').map(str::len).eq([4, 2, 2]);
    for vocabulary in [smollm2(), llama()] {
        vocabulary.check(&regex(r"\d{4}-[01]\d-[0-3]\d"), |text| {
            let digits: Vec<usize> = text.split('-').map(|part| part.chars().count()).collect();
            digits == [4, 2, 2]
        });
        vocabulary.check(&regex(r"^[0-9]{4}-[01][0-9]-[0-3][0-9]$"), is_date);
        vocabulary.check(&regex(r"(yes|no)(, (yes|no)){2}"), |text| text.split(", ").count() == 3);
        vocabulary.check(&regex(r"[äöüß]{3,6}/\n"), |text| text.ends_with("/\n") && text.chars().count() >= 5);
        vocabulary.check(&regex(r"costs \$5\$"), |text| text == "costs $5$");
        vocabulary.check(&regex(r"a{0,3}"), |text| text.len() <= 3 && text.chars().all(|letter| letter == 'a'));
    }
}

#[test]
fn json_has_the_form_of_its_schema() {
    for vocabulary in [smollm2(), llama()] {
        let verdict = json!({
            "type": "object",
            "properties": {
                "score": {"type": "integer", "minimum": 1, "maximum": 5},
                "reason": {"type": "string", "maxLength": 30},
            },
            "required": ["score", "reason"],
            "additionalProperties": false,
        });
        vocabulary.check_json(verdict, |value| {
            let fields = value.as_object().unwrap();
            let score = value["score"].as_i64().unwrap();
            fields.len() == 2 && (1..=5).contains(&score) && value["reason"].as_str().unwrap().chars().count() <= 30
        });
        let list = json!({"type": "array", "items": {"enum": ["ä", "🦙", 3, null]}, "minItems": 2, "maxItems": 4});
        vocabulary.check_json(list, |value| (2..=4).contains(&value.as_array().unwrap().len()));
        let nested = json!({
            "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                      "required": ["next"], "additionalProperties": false}},
            "$ref": "#/$defs/node",
        });
        vocabulary.check_json(nested, |value| value.as_object().unwrap().contains_key("next"));
        vocabulary.check_json(json!({"type": "boolean"}), Value::is_boolean);
        vocabulary.check_json(json!({"const": {"a": [1, 2]}}), |value| *value == json!({"a": [1, 2]}));
    }
}

/// A model that would only write digits.
#[test]
fn a_number_ends_although_the_model_does_not_end_it() {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "x": {"type": "number"}},
        "required": ["n", "x"],
        "additionalProperties": false,
    });
    for Vocabulary { tokenizer, factory } in [smollm2(), llama()] {
        let mut state = factory.start(&Constraint::JsonSchema(schema.clone())).unwrap();
        let mut text = Vec::new();
        while !state.is_complete() && text.len() < 300 {
            let allowed: Vec<u32> = state.allowed().unwrap().unwrap().tokens().collect();
            let starts =
                |letters: &[u8], id: u32| tokenizer.token_bytes(id).first().is_some_and(|it| letters.contains(it));
            let of = |letters: &[u8]| allowed.iter().copied().find(|id| starts(letters, *id));
            let token = of(b"0123456789").or_else(|| of(b".")).unwrap_or(allowed[0]);
            state.accept(token).unwrap();
            text.extend(tokenizer.token_bytes(token));
        }
        let text = String::from_utf8(text).unwrap();
        serde_json::from_str::<Value>(text.trim_end_matches("</s>")).unwrap_or_else(|error| panic!("{error}: {text}"));
        let longest = text.split(|letter: char| !letter.is_ascii_digit()).map(str::len).max();
        assert!(longest.is_some_and(|longest| longest <= 20), "{text}");
    }
}

#[test]
fn json_that_is_cut_off_is_completed() {
    let Vocabulary { tokenizer, factory } = smollm2();
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3},
            "kind": {"enum": ["first", "second"]},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}},
            "any": {},
        },
        "required": ["name", "kind", "list"],
    });
    let form = Constraint::JsonSchema(schema.clone());
    let whole =
        r#"{"name": "Zoë \"Z\" 🔑", "kind": "second", "list": [{"n": -1.5e3}, {"n": 2}], "any": {"a": [true, null]}}"#;
    let ids = tokenizer.encode(whole, EncodeOptions::default()).unwrap();
    for n_tokens in 0..ids.len() {
        let mut state = factory.start(&form).unwrap();
        let mut text = Vec::new();
        for id in &ids[..n_tokens] {
            state.accept(*id).unwrap();
            text.extend(tokenizer.token_bytes(*id));
        }
        let closing =
            state.closing().unwrap_or_else(|| panic!("{:?} is not completed", String::from_utf8_lossy(&text)));
        text.extend(closing);
        let text = String::from_utf8(text).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["name"].as_str().is_some_and(|name| name.chars().count() >= 3), "{text}");
        assert!(value["kind"].is_string() && value["list"].is_array(), "{text}");
    }
    let state = factory.start(&choice(&["yes", "no"])).unwrap();
    assert_eq!(state.closing(), None, "only JSON is completed");
}

#[test]
fn what_forbids_nothing_is_no_reason_to_refuse_a_schema() {
    let vocabulary = smollm2();
    let digit = json!({"type": "integer", "minimum": 0, "maximum": 9});
    vocabulary.check_json(json!({"type": "string", "format": "path", "maxLength": 4}), Value::is_string);
    let record = json!({
        "type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": digit, "uniqueItems": false,
    });
    vocabulary.check_json(record, |value| value.as_object().unwrap().keys().all(|key| key == "a" || key == "b"));
    vocabulary.check_refused(&Constraint::JsonSchema(json!({"type": "array", "uniqueItems": true})), "uniqueItems");
}

#[test]
fn json_stands_on_one_line_unless_the_schema_wishes_otherwise() {
    let vocabulary = smollm2();
    let text = |schema: Value| {
        let mut state = vocabulary.start(&Constraint::JsonSchema(schema));
        let mut text = String::new();
        while !state.is_complete() {
            let token = state.allowed().unwrap().unwrap().tokens().next().unwrap();
            state.accept(token).unwrap();
            text.push_str(&vocabulary.tokenizer.decode(&[token], false));
        }
        text
    };
    assert_eq!(text(json!({"const": {"a": [1, 2]}})), r#"{"a": [1, 2]}"#);
    let compact = json!({"const": {"a": [1, 2]}, "x-guidance": {"whitespace_flexible": false}});
    assert_eq!(text(compact), r#"{"a":[1,2]}"#);
}

/// Free text before `[RESULT] n`.
fn verdict(free_tokens: usize) -> Constraint {
    let (marker, regex) = ("[RESULT]".to_owned(), " [1-5]".to_owned());
    Constraint::FreeThenRegex { free_tokens, marker, regex }
}

/// The text of a model that wishes to write these tokens one after the other and then end its turn: each token that is
/// not allowed is replaced by the first allowed one. `None` stands for the end of the turn.
fn written(vocabulary: &Vocabulary, constraint: &Constraint, wishes: &[Option<u32>]) -> String {
    written_from(vocabulary, vocabulary.start(constraint), wishes)
}

/// Like `written`, for a text that has begun. It also ends with the last wish if nothing constrains it any more.
fn written_from(vocabulary: &Vocabulary, mut state: ConstraintState, wishes: &[Option<u32>]) -> String {
    let tokenizer = &vocabulary.tokenizer;
    let mut wishes = wishes.iter().copied();
    let mut bytes = Vec::new();
    while !(state.is_complete() || wishes.len() == 0 && state.may_end().unwrap()) {
        let wish = wishes.next().flatten().unwrap_or(tokenizer.eos().unwrap());
        let token = loop {
            let token = match state.allowed().unwrap() {
                Some(mask) if !mask.allows(wish) => mask.tokens().next().unwrap(),
                _ => wish,
            };
            if state.accept(token).unwrap() == Taken::Appended {
                break token;
            }
        };
        bytes.extend_from_slice(tokenizer.token_bytes(token));
    }
    String::from_utf8(bytes).unwrap()
}

/// The tokens of each text, one after the other.
fn wishes(vocabulary: &Vocabulary, texts: &[&str]) -> Vec<Option<u32>> {
    let encode = |text: &&str| vocabulary.tokenizer.encode(text, EncodeOptions::default()).unwrap();
    texts.iter().flat_map(encode).map(Some).collect()
}

#[track_caller]
fn check_written(free_tokens: usize, texts: &[&str], expected: &str) {
    let vocabulary = smollm2();
    let text = written(&vocabulary, &verdict(free_tokens), &wishes(&vocabulary, texts));
    assert_eq!(text, expected, "{texts:?} after {free_tokens}");
}

#[test]
fn a_form_begins_after_a_marker() {
    let vocabulary = smollm2();
    let schema = Constraint::JsonSchema(json!({"enum": ["yes", "no"]}));
    let check = |free_tokens, form: Option<&Constraint>, texts: &[&str], expected: &str| {
        let state = vocabulary.factory.start_after("</think>", free_tokens, form).unwrap();
        assert_eq!(written_from(&vocabulary, state, &wishes(&vocabulary, texts)), expected, "{texts:?}");
    };
    check(100, Some(&schema), &["Hm", "</think>", "\"no\""], "Hm</think>\"no\"");
    check(1, Some(&schema), &["Well", " well", " then"], "Well</think>\"no\"");
    check(100, Some(&choice(&["a.b", "c"])), &["Hm", "</think>", "a", ".", "b"], "Hm</think>a.b");
    check(100, Some(&regex("[0-9]{2}")), &["</think>", "4", "2"], "</think>42");
    check(100, None, &["Hm", "</think>", "anything", " {}"], "Hm</think>anything {}");
    check(1, None, &["Well", "</", "think", ">", "anything"], "Well</think>anything");
    let verdict = vocabulary.factory.start_after("</think>", 1, Some(&verdict(5)));
    assert!(verdict.is_err_and(|error| error.to_string().contains("free text of its own")));
}

#[test]
fn free_text_ends_where_the_model_writes_the_marker() {
    check_written(100, &["Well", "[RESULT] 4"], "Well[RESULT] 4");
    check_written(100, &["Well", "[", "R", "ES", "ULT", "]", " 4"], "Well[RESULT] 4");
    check_written(100, &["[RESULT] 2"], "[RESULT] 2");
    check_written(100, &["[RES", "[RESULT] 5"], "[RES[RESULT] 5");
}

#[test]
fn the_marker_is_put_where_the_model_ends_its_turn() {
    check_written(100, &[], "[RESULT] 1");
    check_written(100, &["Well"], "Well[RESULT] 1");
    check_written(100, &["Well", "[RES"], "Well[RESULT] 1");
    check_written(100, &["Well", "[RES]"], "Well[RES][RESULT] 1");
}

#[test]
fn the_marker_is_put_where_the_free_text_is_long_enough() {
    check_written(0, &["Well"], "[RESULT] 1");
    check_written(3, &["Well", ",", " good", " enough"], "Well, good[RESULT] 1");
    check_written(2, &["Well", "[", "RESULT] 3"], "Well[RESULT] 3");
    check_written(2, &["Well", "[", " 3"], "Well[RESULT] 1");
}

#[test]
fn free_text_that_is_to_conclude_ends_with_the_sentence_and_says_so() {
    let vocabulary = smollm2();
    let concluded = |texts: &[&str], most_tokens: usize| {
        let mut state = vocabulary.start(&verdict(100));
        state.conclude(most_tokens);
        let mut text = String::new();
        for token in wishes(&vocabulary, texts).into_iter().flatten() {
            if state.allowed().unwrap().is_some() {
                break;
            }
            assert_eq!(state.accept(token).unwrap(), Taken::Appended);
            text.push_str(&vocabulary.tokenizer.decode(&[token], false));
        }
        (text, state.was_concluded())
    };
    let sentences = &[" It", " is", " right", ".", " It", " is", " short", "."];
    assert_eq!(concluded(sentences, 24), (" It is right.".to_owned(), true));
    assert_eq!(concluded(sentences, 2), (" It is".to_owned(), true));
    assert_eq!(concluded(&[" Well", "[RESULT]", " 4"], 24), (" Well[RESULT]".to_owned(), false));
}

#[test]
fn a_token_may_hold_the_marker_and_more_only_where_the_rest_fits() {
    let vocabulary = smollm2();
    let token = |text: &str| vocabulary.tokenizer.token_with_text(text);
    // Tokens of the vocabulary that consist of a bracket and something after it.
    let (wrong, right) = (token("],").unwrap(), token("](").unwrap());
    let constraint =
        |regex: &str| Constraint::FreeThenRegex { free_tokens: 50, marker: "[R]".to_owned(), regex: regex.to_owned() };
    let begun = [token("["), token("R")];
    let mut state = vocabulary.start(&constraint(r"\([1-5]\)"));
    for token in begun {
        assert!(state.allowed().unwrap().is_none(), "free text is not masked");
        assert_eq!(state.accept(token.unwrap()).unwrap(), Taken::Appended);
    }
    assert_eq!(state.accept(wrong).unwrap(), Taken::ChooseAgain);
    let mask = state.allowed().unwrap().unwrap();
    assert!(
        !mask.allows(wrong)
            && mask.allows(right)
            && mask.allows(token("]").unwrap())
            && mask.allows(token("x").unwrap())
    );
    let mut other = state.clone();
    assert_eq!(state.accept(right).unwrap(), Taken::Appended);
    let mask = state.allowed().unwrap().unwrap();
    assert!(mask.allows(token("4").unwrap()) && !mask.allows(token("9").unwrap()));
    assert_eq!(other.accept(token("x").unwrap()).unwrap(), Taken::Appended);
    assert!(other.allowed().unwrap().is_none(), "the mask is gone with the next token");
    let wishes: Vec<Option<u32>> = begun.into_iter().chain([Some(wrong)]).collect();
    let text = written(&vocabulary, &constraint(",[1-5]"), &wishes);
    assert!(text.starts_with("[R],"), "{text:?}");
}

#[test]
fn free_text_before_a_form_always_ends_in_it() {
    for vocabulary in [smollm2(), llama()] {
        let mut random = Random::new(7);
        for free_tokens in [0, 1, 5, 40] {
            let wishes: Vec<Option<u32>> = std::iter::repeat_with(|| {
                let token = random.below(vocabulary.tokenizer.n_tokens()) as u32;
                let text = std::str::from_utf8(vocabulary.tokenizer.token_bytes(token));
                Some(token).filter(|token| text.is_ok() && !vocabulary.tokenizer.is_control(*token))
            })
            .take(60)
            .collect();
            let text = written(&vocabulary, &verdict(free_tokens), &wishes);
            let (free, tail) = text.rsplit_once("[RESULT]").unwrap();
            assert!(!free.contains("[RESULT]"), "{text:?}");
            assert!(matches!(tail.as_bytes(), [b' ', b'1'..=b'5']), "{text:?}");
        }
    }
}

#[test]
fn a_form_that_is_wrong_is_refused_with_the_reason() {
    let vocabulary = smollm2();
    vocabulary.check_refused(&choice(&[]), "the choice cannot be used: it has no texts");
    vocabulary.check_refused(&choice(&["a", ""]), "empty");
    vocabulary.check_refused(&regex("(a"), "the regular expression cannot be used: unclosed group: (");
    vocabulary.check_refused(&regex("x(?=a)"), "is not supported: (?=");
    vocabulary.check_refused(&regex(r"a\bc"), "anchors and word boundaries within it are not supported");
    vocabulary.check_refused(&regex(r"[^\x00-\x{10FFFF}]"), "it matches no text");
    vocabulary.check_refused(&regex(""), "the regular expression cannot be used: it is empty");
    vocabulary.check_refused(&regex("^$"), "empty");
    vocabulary.check_refused(&regex("a\\"), "backslash");
    vocabulary.check_refused(&regex("[z-a]"), "range");
    vocabulary.check_refused(&Constraint::JsonSchema(json!({"type": "elvish"})), "elvish");
    let free = |marker: &str, regex: &str| Constraint::FreeThenRegex {
        free_tokens: 5,
        marker: marker.to_owned(),
        regex: regex.to_owned(),
    };
    vocabulary.check_refused(&free("", "a"), "the free text with a form after it cannot be used: its marker is empty");
    vocabulary.check_refused(&free("[RESULT]", ""), "it is empty");
    vocabulary.check_refused(&free("[RESULT]", "(a"), "unclosed group");
    vocabulary.check_refused(&Constraint::JsonSchema(json!([1])), "the JSON schema cannot be used");
    vocabulary.check_refused(&Constraint::JsonSchema(json!({"$ref": "#/nowhere"})), "nowhere");
    let endless = "no text of its form ever ends";
    vocabulary.check_refused(&Constraint::JsonSchema(json!({"$ref": "#"})), endless);
    let node = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
    vocabulary.check_refused(&Constraint::JsonSchema(node), endless);
    vocabulary
        .check_refused(&Constraint::JsonSchema(json!({"minimum": 5, "maximum": 1, "type": "integer"})), "nsatisf");
}

/// A text of calls is free up to the first mark, and may end there; the text after it has the schema's form.
#[test]
fn text_may_hold_calls_and_need_not() {
    let schema = json!({
        "anyOf": [
            {
                "type": "object",
                "properties": {"name": {"const": "time"}, "arguments": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            },
            {"type": "object", "properties": {"name": {"const": "stop"}}, "required": ["name"], "additionalProperties": false},
        ],
    });
    for vocabulary in [smollm2(), llama()] {
        let Vocabulary { tokenizer, factory } = &vocabulary;
        let end = tokenizer.eos().unwrap();
        let start = || factory.start_calls("<tool_call>", &schema, "</tool_call>").unwrap();
        let encode = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        let mut state = start();
        assert!(state.is_optional());
        for token in encode("I do not call <tool anything. 1 < 2").into_iter().chain([end]) {
            assert!(state.allowed().unwrap().is_none(), "text is free");
            assert_eq!(state.accept(token).unwrap(), Taken::Appended);
        }
        let mut random = Random::new(7);
        for _ in 0..20 {
            let mut state = start();
            let mut ids = encode("I call.\n<tool_call>");
            ids.iter().for_each(|token| assert_eq!(state.accept(*token).unwrap(), Taken::Appended));
            while ids.len() < MAX_TOKENS && !state.is_complete() {
                if state.may_end().unwrap() && random.below(4) == 0 {
                    break;
                }
                let allowed: Vec<u32> = state.allowed().unwrap().unwrap().tokens().collect();
                let token = random.pick(&allowed);
                state.accept(token).unwrap();
                if !tokenizer.is_end_of_generation(token) {
                    ids.push(token);
                }
            }
            if !state.may_end().unwrap() {
                continue;
            }
            let text = tokenizer.decode(&ids, true);
            let calls = text.split("<tool_call>").skip(1).map(|part| part.trim().strip_suffix("</tool_call>").unwrap());
            for call in calls {
                let call: Value = serde_json::from_str(call).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert!(call["name"] == "stop" || call["arguments"]["n"].is_number(), "{text}");
            }
        }
    }
}
