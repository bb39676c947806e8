//! A jury gives one verdict, and keeps its members' verdicts with it.

use std::sync::Arc;

use crate::support::{ANSWERER, missing, row};
use hone_judging::{CompareTask, Fallback, GradeTask, Judge, JudgeSettings, Jury, Standing, Standings, scripted};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GenerateRequest, Grade, JudgingMethod, Lane, Preference, Prospect, RespondentId};

/// The probabilities of a judge with an expected score of 4.25.
const SURE: [(&str, f32); 5] = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 0.75), ("5", 0.25)];

/// The response of a judge, given by its name: `four` gives a 4.
fn respond(request: &GenerateRequest) -> Script {
    let saying = |score: u8| Script::saying(&[&format!("It is {}. [RESULT] {score}", request.model)]);
    match request.model.as_str() {
        "one" => saying(1),
        "two" => saying(2),
        "four" => saying(4),
        "five" => saying(5),
        "sure" => Script { logprobs: vec![row("4", &SURE)], ..saying(4) },
        ANSWERER => Script { logprobs: vec![row("", &[]); 3], ..Script::saying(&["a", "b", "c"]) },
        "silent" => Script::saying(&["I cannot say."]),
        "slow" => Script::never_ending(&["Well"]),
        "A" => choosing(request, "first"),
        "B" => choosing(request, "second"),
        "by place" => Script::saying(&["So. [RESULT] A"]),
        other => missing(other),
    }
}

/// Prefers the answer with this text in any position.
fn choosing(request: &GenerateRequest, text: &str) -> Script {
    let turn = scripted::turn(request);
    let is_first = turn.find(text) < turn.find(if text == "first" { "second" } else { "first" });
    Script::saying(&[if is_first { "Good. [RESULT] A" } else { "Good. [RESULT] B" }])
}

fn juror(model: &Arc<Scripted>, name: &str) -> Judge {
    let settings = JudgeSettings {
        model: name.to_owned(),
        fallback: Fallback::None,
        grade_timeout: std::time::Duration::from_millis(50),
        ..JudgeSettings::shipped()
    };
    scripted::judge_over(Arc::clone(model) as _, settings)
}

/// A jury of judges with these names, and the models behind it.
fn jury(names: &[&str], stronger: Option<&str>) -> (Jury, Arc<Scripted>) {
    let model = Arc::new(Scripted::new(respond));
    let mut judges = names.iter().map(|name| juror(&model, name));
    let first = Jury::from(judges.next().unwrap());
    let jury = judges.fold(first, Jury::joined_by);
    let jury = match stronger {
        Some(name) => jury.with_stronger(juror(&model, name)),
        None => jury,
    };
    (jury, model)
}

fn task() -> GradeTask {
    GradeTask { query: "Is it so?".into(), answer: "That is right.".into(), reference: None }
}

fn graded(names: &[&str], stronger: Option<&str>) -> (Grade, Vec<String>) {
    let (jury, model) = jury(names, stronger);
    let grade = jury.judge(task(), ANSWERER);
    (grade, model.requests().into_iter().map(|request| request.model).collect())
}

fn compared(names: &[&str], stronger: Option<&str>) -> Preference {
    let task = CompareTask { query: "Q".into(), answer_a: "first".into(), answer_b: "second".into() };
    jury(names, stronger).0.judge(task, ANSWERER)
}

/// Score, mean, spread and whether the jury disagrees.
#[track_caller]
fn check(names: &[&str], expected: (Option<u8>, Option<f64>, Option<u8>, bool)) -> Grade {
    let (grade, asked) = graded(names, None);
    assert_eq!((grade.score, grade.expected_score, grade.spread, grade.disputed), expected, "{grade:?}");
    assert_eq!(asked, names, "each is asked once, in this order");
    let members: Vec<&str> = grade.jury.iter().map(|juror| juror.name.as_str()).collect();
    assert_eq!(members, names);
    grade
}

#[test]
fn a_grade_is_the_mean_of_the_jurors() {
    let grade = check(&["five", "four"], (Some(5), Some(4.5), Some(1), false));
    assert_eq!((grade.feedback.as_str(), grade.judging.judge.as_str()), ("It is five.", "five, four"));
    assert_eq!((grade.rubric.as_str(), grade.raw_score, grade.entropy), ("default", None, None));
    let grade = check(&["one", "five", "four"], (Some(3), Some(10.0 / 3.0), Some(4), true));
    assert_eq!(grade.feedback, "It is four.", "the nearest to the mean");
    let own: Vec<(Option<u8>, &str)> =
        grade.jury.iter().map(|juror| (juror.verdict.score, juror.verdict.feedback.as_str())).collect();
    assert_eq!(own, [(Some(1), "It is one."), (Some(5), "It is five."), (Some(4), "It is four.")]);
    check(&["two", "four"], (Some(3), Some(3.0), Some(2), true));
    let (grade, _) = graded(&["sure", "four"], None);
    assert!((grade.expected_score.unwrap() - 4.125).abs() < 1e-6, "the expected scores count: {grade:?}");
}

#[test]
fn the_cost_is_that_of_all_jurors() {
    let (grade, _) = graded(&["five", "silent", "four"], None);
    let jurors = || grade.jury.iter().map(|juror| &juror.verdict.judging);
    assert_eq!(grade.judging.tokens, jurors().map(|judging| judging.tokens).sum::<usize>());
    assert!((grade.judging.seconds - jurors().map(|judging| judging.seconds).sum::<f64>()).abs() < 1e-9);
    assert!(!grade.judging.self_graded && grade.judging.method == JudgingMethod::Prompted);
}

#[test]
fn a_single_judge_judges_as_without_a_jury() {
    let (jury, model) = jury(&["four"], Some("one"));
    let grade = jury.judge(task(), ANSWERER);
    let alone = juror(&model, "four").judge(task(), ANSWERER);
    let untimed = |mut grade: Grade| {
        grade.judging.seconds = 0.0;
        grade
    };
    assert_eq!(untimed(grade.clone()), untimed(alone));
    assert!(grade.jury.is_empty() && grade.spread.is_none());
    let json = serde_json::to_string(&grade).unwrap();
    assert!(!json.contains("jury") && !json.contains("spread") && !json.contains("disputed"), "{json}");
}

#[test]
fn a_juror_that_fails_has_no_vote_and_says_why() {
    let grade = check(&["five", "slow", "absent", "silent", "four"], (Some(5), Some(4.5), Some(1), false));
    assert_eq!((grade.judging.failure, grade.judging.judge.as_str()), (None, "five, four"));
    let failure = |place: usize| grade.jury[place].verdict.judging.failure.clone().unwrap_or_default();
    assert_eq!(failure(1), "timeout");
    assert!(failure(2).contains("model `absent` is not installed"), "{}", failure(2));
    assert!(failure(3).starts_with("the judge wrote no verdict: "), "{}", failure(3));
    let grade = check(&["absent", "four"], (Some(4), None, None, false));
    assert_eq!((grade.judging.judge.as_str(), grade.feedback.as_str()), ("four", "It is four."));
}

#[test]
fn without_a_vote_the_reasons_stand_for_the_score() {
    let failed = |names: &[&str], prospect| {
        let grade = check(names, (None, None, None, false));
        assert_eq!(grade.judging.prospect(), Some(prospect), "{grade:?}");
        grade.judging.failure.unwrap()
    };
    assert_eq!(failed(&["slow", "slow"], Prospect::Failed), "timeout");
    let failure = failed(&["silent", "absent"], Prospect::Failed);
    assert!(failure.starts_with("no juror gave a verdict (silent: the judge wrote no verdict: "), "{failure}");
    assert!(failure.contains("; absent: "), "{failure}");
    failed(&["silent", "silent"], Prospect::Doubtful);
}

#[test]
fn a_juror_that_has_not_passed_has_no_vote() {
    let (jury, model) = jury(&["five", "four"], None);
    assert_eq!(jury.refusal(ANSWERER), None);
    let barred = |name: &str| Standings { judge: Standing::Barred(format!("{name} guesses")), ..Standings::default() };
    jury.first().set_standings(barred("five"));
    assert_eq!(jury.refusal(ANSWERER), None);
    let grade = jury.judge(task(), ANSWERER);
    assert_eq!((grade.score, grade.judging.judge.as_str()), (Some(4), "four"));
    assert_eq!(grade.jury[0].verdict.judging.failure.as_deref(), Some("five guesses"));
    assert_eq!(model.requests().len(), 1);
    jury.jurors().nth(1).unwrap().set_standings(barred("four"));
    let refusal = "no juror gave a verdict (five: five guesses; four: four guesses)";
    assert_eq!(jury.refusal(ANSWERER).as_deref(), Some(refusal));
    assert_eq!(jury.judge(task(), ANSWERER).judging.failure.as_deref(), Some(refusal));
}

#[test]
fn the_stronger_judge_is_asked_only_where_the_jurors_disagree() {
    let (grade, asked) = graded(&["five", "four"], Some("one"));
    assert_eq!((grade.score, asked.len(), grade.jury.len()), (Some(5), 2, 2));
    let (grade, asked) = graded(&["absent", "four"], Some("one"));
    assert_eq!((grade.score, asked.len()), (Some(4), 2));
    let (grade, asked) = graded(&["five", "two"], Some("one"));
    assert_eq!((grade.score, grade.spread, grade.disputed), (Some(1), Some(3), true));
    assert_eq!((grade.feedback.as_str(), grade.judging.judge.as_str()), ("It is one.", "one"));
    assert_eq!(asked, ["five", "two", "one"]);
    let members: Vec<(&str, bool)> = grade.jury.iter().map(|juror| (juror.name.as_str(), juror.is_stronger)).collect();
    assert_eq!(members, [("five", false), ("two", false), ("one", true)]);
    let (grade, _) = graded(&["five", "two"], Some("slow"));
    assert_eq!((grade.score, grade.jury.len(), grade.judging.failure), (Some(4), 3, None), "the jury's own stands");
    assert_eq!(grade.jury[2].verdict.judging.failure.as_deref(), Some("timeout"));
}

#[test]
fn most_jurors_name_the_winner() {
    let preference = compared(&["A", "B", "A"], None);
    assert_eq!((preference.winner, preference.consistent), (Some(RespondentId::A), true));
    assert!(preference.log_odds > 0.0 && preference.judging.judge == "A, B, A", "{preference:?}");
    assert_eq!(preference.jury[1].verdict.winner, Some(RespondentId::B));
    let preference = compared(&["A", "B"], None);
    assert_eq!((preference.winner, preference.log_odds), (None, 0.0), "a tie");
    let preference = compared(&["B", "by place"], None);
    assert_eq!((preference.winner, preference.consistent), (Some(RespondentId::B), false), "by the mean of the odds");
    let preference = compared(&["B", "absent"], None);
    assert_eq!((preference.winner, preference.jury.len()), (Some(RespondentId::B), 2));
    assert!(compared(&["absent", "silent"], None).judging.failure.unwrap().starts_with("no juror gave a verdict ("));
}

#[test]
fn the_stronger_judge_decides_between_jurors_who_name_different_winners() {
    let preference = compared(&["A", "B"], Some("B"));
    assert_eq!((preference.winner, preference.jury.len()), (Some(RespondentId::B), 3));
    assert_eq!((preference.judging.judge.as_str(), preference.jury[2].is_stronger), ("B", true));
    assert_eq!(compared(&["A", "by place"], Some("B")).jury.len(), 2, "a tie is no other winner");
}

#[test]
fn a_verdict_of_a_jury_is_read_as_it_was_written() {
    // A round trip may change the last digit of a measured time.
    let (mut grade, _) = graded(&["five", "absent", "two"], Some("one"));
    grade.judging.seconds = 1.5;
    grade.jury.iter_mut().for_each(|juror| juror.verdict.judging.seconds = 0.5);
    let text = serde_json::to_string(&grade).unwrap();
    assert_eq!(serde_json::from_str::<Grade>(&text).unwrap(), grade, "{text}");
    let mut preference = compared(&["A", "B"], Some("B"));
    preference.judging.seconds = 1.5;
    preference.jury.iter_mut().for_each(|juror| juror.verdict.judging.seconds = 0.5);
    let text = serde_json::to_string(&preference).unwrap();
    assert_eq!(serde_json::from_str::<Preference>(&text).unwrap(), preference, "{text}");
}

#[test]
fn a_jury_is_given_up_at_once_whoever_has_the_turn() {
    let (jury, model) = jury(&["five", "slow"], None);
    let mut run = jury.in_lane(Lane::Batch).start(task(), ANSWERER);
    while model.requests().len() < 2 {
        let (channel, event) = {
            let (channel, events) = run.channels().next().unwrap();
            (channel, events.recv())
        };
        assert_eq!(run.take(channel, event), None);
    }
    assert!(model.requests().iter().all(|request| request.lane == Lane::Batch));
    assert_eq!(run.give_up("cancelled").judging.failure.as_deref(), Some("cancelled"));
    assert!(model.was_cancelled());
}
