//! Selection of the judge that grades: the configured one only if it has passed, and otherwise the likelihood judge
//! where it is better than chance.

use std::sync::Arc;

use crate::support::{ANSWERER, settings};
use hone_judging::{CompareTask, Fallback, GradeTask, Judge, LIKELIHOOD, Marks, QuestionGrades, Standing, Standings};
use hone_protocol::scripted::Script;
use hone_protocol::{
    GenerateError, GenerateRequest, JudgingMethod, Likely, Prompt, RespondentId, TokenLogprob, TokenLogprobs,
};

/// Finds answers with the word "right" likely, and responds with 2 if asked.
fn respond(request: &GenerateRequest) -> Script {
    if request.model == "missing" {
        return Script::failing(GenerateError::Model { model: "missing".into(), reason: "it is not here".into() });
    }
    let Some(answer) = &request.forced_answer else { return Script::saying(&["Well. [RESULT] 2"]) };
    let logprob = if answer.contains("right") { -0.1 } else { -3.0 };
    let token = |_| TokenLogprobs {
        logprob,
        top: vec![TokenLogprob { id: 0, logprob, text: String::new() }],
        ..TokenLogprobs::default()
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
    Standings {
        judge,
        generator: Standing::Barred("it guesses".into()),
        likelihood: Standing::Passed,
        ..Standings::default()
    }
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

/// A reward model whose reward is the number in the answer, and perhaps the scale from an examination in which most
/// answers above 0 were good.
fn reward_model(is_examined: bool) -> Judge {
    let reward = |request: &GenerateRequest| {
        let Prompt::Chat(turns) = &request.prompt else { panic!("{request:?}") };
        let number = turns.last().unwrap().content.parse().ok().filter(|_| request.wants_reward);
        Script { reward: number, ..Script::saying(&[]) }
    };
    let change = |settings: &mut hone_judging::JudgeSettings| settings.model = "reward".to_owned();
    let (judge, _) = hone_judging::scripted::judge(settings(change), reward);
    let question = |index: i32| {
        let value = f64::from(index) / 15.0 - 0.5;
        QuestionGrades { good: value, mediocre: 0.0, bad: -value, is_manipulative: false }
    };
    let marks = Marks::of_rewards(&(0..60).map(question).collect::<Vec<_>>(), &[1.0]);
    let reward_scale = marks.reward_scale.map(Arc::new).filter(|_| is_examined);
    judge.set_standings(Standings { reward_scale, ..examined(Standing::Passed) });
    judge.of_reward_model(true)
}

#[test]
fn a_reward_model_says_what_its_examination_found_out() {
    let judge = reward_model(true);
    let check = |answer: &str, likely: Option<Likely>, probability: std::ops::Range<f64>| {
        let grade = judge.judge(task(answer), ANSWERER);
        let raw = grade.raw_score.clone().unwrap();
        assert_eq!((grade.likely, grade.score, raw.as_str()), (likely, None, answer), "{grade:?}");
        assert!(probability.contains(&grade.probability.unwrap()), "{grade:?}");
        assert_eq!((grade.judging.judge.as_str(), grade.judging.method), ("reward", JudgingMethod::Reward));
        assert!(grade.is_verdict() && !grade.lacks_reasons() && grade.raw_score_of_its_own().is_none(), "{grade:?}");
        assert!(grade.feedback.contains("In the model's examination"), "{grade:?}");
    };
    check("3.5", Some(Likely::Right), 0.9..1.0);
    check("-2", Some(Likely::Wrong), 0.0..0.1);
    check("0", None, 0.3..0.7);
    let unknown = reward_model(false).judge(task("3.5"), ANSWERER);
    assert_eq!((unknown.likely, unknown.probability, unknown.reward()), (None, None, Some(3.5)));
    assert_eq!(unknown.feedback, "Its reward is 3.50. `hone judge exam reward` finds out what that means.");
    let silent = judge.judge(task("no number"), ANSWERER);
    assert_eq!(silent.judging.failure.as_deref(), Some("the reward model gave no reward"));
}

#[test]
fn of_two_answers_the_one_with_the_higher_reward_is_better() {
    let pair = |a: &str, b: &str| CompareTask { query: "Is it so?".into(), answer_a: a.into(), answer_b: b.into() };
    let check = |a: &str, b: &str, winner: Option<RespondentId>| {
        let preference = reward_model(true).judge(pair(a, b), ANSWERER);
        assert_eq!((preference.winner, preference.consistent), (winner, true), "{preference:?}");
    };
    check("2", "-1", Some(RespondentId::A));
    check("-1", "2", Some(RespondentId::B));
    check("1", "1.01", None);
}
