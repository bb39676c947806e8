//! Agents that fail while working.

use hone_protocol::scripted::Script;
use hone_protocol::{GenerateRequest, Payload, Rating, Subject};

use crate::stage::{Plan, count, grades_of, text_of, verdict};

#[test]
fn a_critic_that_panics_starts_again_and_grades_what_waits() {
    let judge = |request: &GenerateRequest| {
        assert!(!text_of(request).contains("poison"), "this judge cannot bear poison");
        verdict(request, 4)
    };
    let mut stage = Plan::answering(|_| Script::saying(&["Yes."])).judged_by(judge).start();
    let ids = ["one?", "poison?", "two?", "poison again?", "three?"].map(|question| stage.ask(question));
    for id in ids {
        stage.wait_about(id, Subject::CritiqueResult);
    }
    let heard = stage.stop();
    let failed = || vec![Err("the judge failed at this answer and was started again".to_owned())];
    let grades = ids.map(|id| grades_of(&heard, id));
    assert_eq!(grades, [vec![Ok(4)], failed(), vec![Ok(4)], failed(), vec![Ok(4)]]);
    assert_eq!(ids.map(|id| stage.engram(id).score()), [Some(4), None, Some(4), None, Some(4)]);
}

#[test]
fn a_generator_that_panics_starts_again_and_answers_what_waits() {
    let respond = |request: &GenerateRequest| {
        assert!(!text_of(request).contains("poison"), "this generator cannot bear poison");
        Script::saying(&["Yes."])
    };
    let mut stage = Plan::answering(respond).with_b().start();
    let [poisoned, next] = ["poison?", "one?"].map(|question| stage.ask(question));
    stage.wait(|envelope| envelope.subject() == Subject::PairwiseResult);
    let heard = stage.stop();
    let failures: Vec<_> = heard.iter().filter(|envelope| envelope.subject() == Subject::ResponseFailed).collect();
    assert_eq!(failures.len(), 2, "one for each respondent");
    for failure in failures {
        assert_eq!(failure.correlation_id, Some(poisoned));
        let Payload::ResponseFailed(error) = &failure.payload else { panic!("it is a failure") };
        assert!(error.to_string().contains("was started again"), "{error}");
    }
    assert_eq!(grades_of(&heard, next), [Ok(4)]);
    assert_eq!(count(&heard, Subject::ResponseGeneration), 2);
}

#[test]
fn a_full_disk_costs_memory_and_nothing_else() {
    let mut before = Plan::answering(|_| Script::saying(&["Yes."])).start();
    let remembered = before.ask("one?");
    before.wait_about(remembered, Subject::CritiqueResult);
    let mut plan = Plan::answering(|_| Script::saying(&["Yes."]));
    // No disk has as much free space as must be kept free.
    plan.reserved_bytes = u64::MAX;
    let mut stage = plan.start_in(before.leave_folder());
    stage.rate(remembered, Rating::Good);
    let ids = ["two?", "three?"].map(|question| stage.ask(question));
    for id in ids {
        stage.wait_about(id, Subject::CritiqueResult);
    }
    let heard = stage.stop();
    assert_eq!(ids.map(|id| grades_of(&heard, id)), [vec![Ok(4)], vec![Ok(4)]]);
    assert_eq!(ids.map(|id| stage.store.get(id).unwrap()), [None, None]);
    assert_eq!(count(&heard, Subject::MemoryStored), 0);
    assert_eq!(count(&heard, Subject::RewardEvent), 0, "what is not kept is not announced");
    assert_eq!(stage.engram(remembered).user_feedback, None);
}
