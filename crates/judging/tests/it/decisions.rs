//! Decisions of models whose probabilities are scripted by a test.

use hone_judging::Decider;
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{
    DecisionForm, DecisionKind, DecisionOption, DecisionQuestion, DecisionRequest, Decisions, GenerateError,
    GenerateRequest, OwnerId, Prompt, TokenLogprob, TokenLogprobs,
};

/// A model that gives each label, or the answer, this probability, depending on the prompt and the text.
fn model(probability: impl Fn(&str, &str) -> f64 + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |request| {
        let (prompt, answer) = (prompt_of(request), request.forced_answer.clone().unwrap());
        let of = |id: u32, text: &str| TokenLogprob {
            id,
            logprob: probability(prompt, text).ln() as f32,
            text: text.to_owned(),
        };
        let named = (1..).zip(&request.logprobs.named).map(|(id, text)| of(id, text)).collect();
        let TokenLogprob { logprob, .. } = of(0, &answer);
        let row = TokenLogprobs { id: 0, text: answer.clone(), logprob, named, ..TokenLogprobs::default() };
        Script { logprobs: vec![row], ..Script::saying(&[&answer]) }
    })
}

fn prompt_of(request: &GenerateRequest) -> &str {
    match &request.prompt {
        Prompt::Chat(messages) => &messages[0].content,
        Prompt::Text { text, .. } => text,
        Prompt::Tokens(_) => "",
    }
}

fn choice(names: &[&str]) -> DecisionQuestion {
    let option = |name: &&str| DecisionOption { name: (*name).to_owned(), description: None };
    DecisionQuestion {
        instructions: "Which one?".to_owned(),
        kind: DecisionKind::Choice(names.iter().map(option).collect()),
    }
}

fn yes_no(instructions: &str) -> DecisionQuestion {
    DecisionQuestion { instructions: instructions.to_owned(), kind: DecisionKind::YesNo { yes: None, no: None } }
}

fn decide(model: &Scripted, request: &DecisionRequest) -> Result<Decisions, GenerateError> {
    Decider::default().decide(model, request, &|| false)
}

fn request(questions: Vec<DecisionQuestion>) -> DecisionRequest {
    DecisionRequest::new("scripted", "It is green.", questions)
}

/// Whether a line of the prompt has this label and text.
fn is_beside(prompt: &str, label: &str, text: &str) -> bool {
    prompt.lines().any(|line| line == format!("{}. {text}", label.trim()))
}

#[test]
fn a_model_that_knows_is_sure_wherever_the_option_stands() {
    let knowing = model(|prompt, label| match prompt.contains("green.") && is_beside(prompt, label, "green") {
        true => 0.9,
        false => 0.05,
    });
    for names in [&["green", "red", "blue"][..], &["red", "green"], &["blue", "red", "brown", "green"]] {
        let decided = decide(&knowing, &request(vec![choice(names)])).unwrap();
        let answer = &decided.answers[0];
        assert_eq!(names[answer.likeliest()], "green");
        assert!(answer.confidence() > 0.5, "{answer:?}");
        assert!((answer.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn a_preference_for_a_place_or_a_word_cancels_out() {
    let first = model(|prompt, label| match label.trim() {
        "A" | "1" | "Yes" if prompt.contains("green.") => 0.8,
        _ => 0.1,
    });
    let one_order = DecisionRequest { orders: 1, ..request(vec![choice(&["red", "green"])]) };
    assert!(decide(&first, &one_order).unwrap().answers[0].probabilities[0] > 0.8);
    let both = decide(&first, &request(vec![choice(&["red", "green"])])).unwrap();
    assert!((both.answers[0].probabilities[0] - 0.5).abs() < 1e-6, "{both:?}");

    // For any text, this model says yes, and half of its preference comes from the question.
    let agreeing = model(|_, label| if label.trim().eq_ignore_ascii_case("yes") { 0.15 } else { 0.01 });
    let answer = decide(&agreeing, &request(vec![yes_no("Is it red?")])).unwrap();
    assert!((answer.answers[0].yes() - 0.5).abs() < 1e-6, "{answer:?}");
}

#[test]
fn an_option_can_be_answered_with_its_text() {
    let knowing = model(|prompt, answer| match (prompt.contains("green."), answer) {
        (true, "green.") => 0.02,
        (true, _) => 0.01,
        // Words differ in likelihood by themselves.
        (false, "green.") => 0.001,
        (false, _) => 0.01,
    });
    let mut asked = request(vec![choice(&["red", "green", "greenish"])]);
    asked.tunings.choice.form = DecisionForm::Texts;
    let answer = &decide(&knowing, &asked).unwrap().answers[0];
    assert!((answer.probabilities[1] - 20.0 / 22.0).abs() < 1e-6, "{answer:?}");
    asked.tunings.choice.temperature = 1e6;
    let even = &decide(&knowing, &asked).unwrap().answers[0];
    assert!(even.confidence() < 1e-3, "{even:?}");
}

#[test]
fn questions_are_answered_in_their_order_and_share_the_beginning() {
    let model = model(|prompt, label| match (prompt.contains("green."), label.trim()) {
        (true, "Yes") if prompt.contains("Is it green?") => 0.5,
        (true, "No") if prompt.contains("Is it red?") => 0.5,
        _ => 0.05,
    });
    let questions: Vec<DecisionQuestion> =
        (0..100).map(|index| yes_no(if index % 3 == 0 { "Is it green?" } else { "Is it red?" })).collect();
    let decider = Decider::default();
    let answers = decider.decide(&model, &request(questions.clone()), &|| false).unwrap().answers;
    assert!(answers.iter().enumerate().all(|(index, answer)| (answer.yes() > 0.5) == (index % 3 == 0)), "{answers:?}");
    let requests = model.requests();
    let of_text: Vec<&str> = requests.iter().map(prompt_of).filter(|prompt| prompt.contains("It is green.")).collect();
    assert_eq!(of_text.len(), 100);
    let beginning = of_text[0].find("</text>").unwrap();
    assert!(of_text.iter().all(|prompt| prompt[..beginning] == of_text[0][..beginning]));
    // The biases are cached from the first run.
    decider.decide(&model, &request(questions), &|| false).unwrap();
    assert_eq!(model.requests().len(), requests.len() + 100);
    // The time must not reveal another owner's questions.
    let other = DecisionRequest { owner: Some(OwnerId::fresh()), ..request(vec![yes_no("Is it red?")]) };
    decider.decide(&model, &other, &|| false).unwrap();
    assert_eq!(model.requests().len(), requests.len() + 102);
}

#[test]
fn more_options_than_letters_have_pairs_for_labels() {
    let names: Vec<String> = (0..255).map(|index| "x".repeat(index + 1)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let even = model(|_, _| 0.01);
    let answer = &decide(&even, &request(vec![choice(&names)])).unwrap().answers[0];
    assert_eq!(answer.probabilities.len(), 255);
    assert!((answer.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let few = Scripted::new(|_| Script::saying(&["A"]));
    let error = decide(&few, &request(vec![choice(&names[..30])])).unwrap_err();
    assert_eq!(error.to_string(), "the model has tokens for 26 labels: a question can have no more options");
}

#[test]
fn what_cannot_be_asked_is_refused_and_what_fails_is_told() {
    let even = model(|_, _| 0.01);
    let refused = |questions: Vec<DecisionQuestion>, expected: &str| {
        let error = decide(&even, &request(questions)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    refused(Vec::new(), "there are 0 questions: 1 to 400 are possible");
    refused(vec![yes_no("?"); 401], "there are 401 questions");
    refused(vec![yes_no("?"), choice(&["one"])], "question 2 has 1 options: 2 to 255 are possible");
    let levels = DecisionKind::Score(vec![String::new(); 11]);
    refused(vec![DecisionQuestion { instructions: String::new(), kind: levels }], "question 1 has 11 levels: 2 to 10");
    assert!(even.requests().is_empty());

    let broken = model(|_, _| f64::NAN);
    let error = decide(&broken, &request(vec![yes_no("?")])).unwrap_err();
    assert!(error.to_string().contains("its file is damaged"), "{error}");
    let mute = Scripted::always(Script::saying(&["Yes"]));
    assert!(decide(&mute, &request(vec![yes_no("?")])).unwrap_err().to_string().contains("has no token for"));
    let endless = Scripted::always(Script::never_ending(&[]));
    let gone = Decider::default().decide(&endless, &request(vec![yes_no("?")]), &|| true);
    assert_eq!(gone.unwrap_err(), GenerateError::Stopped);
    assert!(endless.was_cancelled());
}
