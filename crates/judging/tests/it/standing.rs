//! Selection of the judge that grades: the configured one only if it has passed, and otherwise the likelihood judge
//! where it is better than chance.

use crate::support::{ANSWERER, settings};
use hone_judging::{CompareTask, Fallback, GradeTask, Judge, LIKELIHOOD, Standing, Standings};
use hone_protocol::scripted::Script;
use hone_protocol::{GenerateError, GenerateRequest, JudgingMethod, Likely, TokenLogprob, TokenLogprobs};

/// Finds answers with the word "right" likely, and responds with 2 if asked.
fn respond(request: &GenerateRequest) -> Script {
    if request.model == "missing" {
        return Script::failing(GenerateError::Model { model: "missing".into(), reason: "it is not here".into() });
    }
    let Some(answer) = &request.forced_answer else { return Script::saying(&["Well. [RESULT] 2"]) };
    let logprob = if answer.contains("right") { -0.1 } else { -3.0 };
    let token = |_| TokenLogprobs {
        id: 0,
        text: String::new(),
        logprob,
        top: vec![TokenLogprob { id: 0, logprob, text: String::new() }],
        named: Vec::new(),
        state: Vec::new(),
    };
    Script { logprobs: (0..6).map(token).collect(), ..Script::saying(&["a", "b", "c", "d", "e", "f"]) }
}

/// A bar below the shipped coefficients' AUC.
const LOW_BAR: f64 = 0.65;
/// A bar that no judge passes.
const HIGH_BAR: f64 = 0.99;

fn judge(model: &str, fallback: Fallback, standings: Standings) -> Judge {
    judge_with_bar(LOW_BAR, model, fallback, standings)
}

fn judge_with_bar(least_auc: f64, model: &str, fallback: Fallback, standings: Standings) -> Judge {
    let change = |settings: &mut hone_judging::JudgeSettings| {
        settings.model = model.to_owned();
        settings.fallback = fallback;
        settings.least_auc = least_auc;
    };
    let (judge, _) = hone_judging::scripted::judge(settings(change), respond);
    judge.set_standings(standings);
    judge
}

fn task(answer: &str) -> GradeTask {
    GradeTask { query: "Is it so?".into(), answer: answer.into(), reference: None }
}

fn examined(judge: Standing) -> Standings {
    Standings { judge, generator: Standing::Barred("it guesses".into()), likelihood: Standing::Passed }
}

#[test]
fn the_likelihood_judge_finds_wrong_what_its_model_finds_unlikely() {
    let judge = judge(LIKELIHOOD, Fallback::None, Standings::default());
    let (right, wrong) = (judge.judge(task("That is right."), ANSWERER), judge.judge(task("That is it."), ANSWERER));
    assert!(right.probability > wrong.probability, "{right:?} {wrong:?}");
    assert_eq!((right.score, right.expected_score, wrong.score), (None, None, None), "it gives no number");
    assert_eq!((right.likely, wrong.likely), (None, Some(Likely::Wrong)));
    assert_eq!((right.judging.method, right.judging.judge.as_str()), (JudgingMethod::Likelihood, ANSWERER));
    assert!(wrong.feedback.contains("Against it: the model finds its words unlikely"), "{}", wrong.feedback);
    let pair =
        |a: &str| CompareTask { query: "Is it so?".into(), answer_a: a.into(), answer_b: "That is right.".into() };
    let preference = judge.judge(pair("No."), ANSWERER);
    assert_eq!(preference.winner, Some(hone_protocol::RespondentId::B));
    assert!(preference.consistent && preference.log_odds < 0.0);
    assert_eq!(judge.judge(pair("That is right."), ANSWERER).winner, None, "it says the same of both");
}

#[test]
fn a_judge_that_has_passed_grades() {
    let judge = judge("able", Fallback::Likelihood, examined(Standing::Passed));
    assert_eq!(judge.refusal(ANSWERER), None);
    let grade = judge.judge(task("That is right."), ANSWERER);
    assert_eq!((grade.score, grade.judging.method), (Some(2), JudgingMethod::Prompted));
}

#[test]
fn the_likelihood_judge_grades_for_one_that_is_barred_or_missing() {
    for (model, standing) in [("able", Standing::Barred("it guesses".into())), ("missing", Standing::Unchecked)] {
        let judge = judge(model, Fallback::Likelihood, examined(standing));
        assert_eq!(judge.refusal(ANSWERER), None);
        let grade = judge.judge(task("That is right."), ANSWERER);
        assert_eq!(grade.judging.method, JudgingMethod::Likelihood, "{grade:?}");
    }
}

#[test]
fn the_model_that_answered_grades_for_a_barred_judge_only_if_it_has_passed() {
    let barred = || Standing::Barred("able guesses".into());
    let passed = Standings { generator: Standing::Passed, ..examined(barred()) };
    let able = judge("able", Fallback::Generator, passed);
    assert_eq!(able.refusal(ANSWERER), None);
    let grade = able.judge(task("That is right."), ANSWERER);
    assert_eq!((grade.score, grade.judging.judge.as_str(), grade.judging.self_graded), (Some(2), ANSWERER, true));
    assert!(judge("able", Fallback::Generator, examined(barred())).refusal(ANSWERER).is_some());
}

#[test]
fn nobody_grades_answers_that_no_judge_can_tell_apart() {
    let barred = || examined(Standing::Barred("able guesses".into()));
    let unable = || judge_with_bar(HIGH_BAR, "able", Fallback::Likelihood, barred());
    let refusal = unable().refusal("another:7b").unwrap();
    assert!(refusal.starts_with("able guesses; ") && refusal.contains("answers of others"), "{refusal}");
    let grade = unable().judge(task("That is right."), "another:7b");
    assert_eq!((grade.score, grade.judging.failure), (None, Some(refusal)));
    assert_eq!(judge("able", Fallback::None, barred()).refusal(ANSWERER).as_deref(), Some("able guesses"));
    let missing = judge("missing", Fallback::Generator, examined(Standing::Unchecked));
    let grade = missing.judge(task("That is right."), ANSWERER);
    assert_eq!(grade.score, None);
    assert!(grade.judging.failure.unwrap().ends_with("; it guesses"));
    let unknown = unable().of_unknown_authors();
    assert!(unknown.refusal(ANSWERER).unwrap().contains("answers of others"));
}
