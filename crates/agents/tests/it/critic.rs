//! The critic that reviews memories while no caller waits.

use hone_memory::Engram;
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GenerateRequest, QueryId, Subject, VettingState};

use crate::stage::{Plan, Stage, text_of, wait_until};

fn respond(request: &GenerateRequest) -> Script {
    Script::saying(&["Yes to ", text_of(request).trim()])
}

/// A review with this level.
fn review(level: &str) -> Script {
    Script::saying(&[&format!(
        r#"{{"reasoning": "R", "strongest_counterargument": "C", "challenges": [], "suggested_improvements": [],
        "validity_score": 0.75, "level": "{level}"}}"#
    )])
}

fn with_critic(critic: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static) -> Stage {
    Plan { critic: Some(Scripted::new(critic)), ..Plan::answering(respond) }.start()
}

/// Asks questions, whose answers are graded and remembered.
fn remembered<const N: usize>(stage: &mut Stage, questions: [&str; N]) -> [QueryId; N] {
    questions.map(|question| {
        let id = stage.ask(question);
        stage.wait_about(id, Subject::CritiqueResult);
        wait_until("it is graded in memory", || stage.store.get(id).unwrap().is_some_and(|it| it.grade.is_some()));
        id
    })
}

fn state(stage: &Stage, id: QueryId) -> VettingState {
    stage.engram(id).vetting.state
}

#[test]
fn what_is_remembered_is_reviewed_while_nobody_waits() {
    let level = |request: &GenerateRequest| if text_of(request).contains("Atlantis") { "block" } else { "pass" };
    let mut stage = with_critic(move |request| review(level(request)));
    let [right, wrong] = remembered(&mut stage, ["Where is Oslo?", "Where is Atlantis?"]);
    wait_until("both are reviewed", || [right, wrong].iter().all(|id| state(&stage, *id) != VettingState::Unreviewed));
    assert_eq!([right, wrong].map(|id| state(&stage, id)), [VettingState::Reviewed, VettingState::Blocked]);
    let texts: Vec<String> = stage.critic.as_ref().unwrap().requests().iter().map(text_of).collect();
    assert!(texts.len() == 2 && texts[0].contains("Atlantis"), "the newest first, each once: {texts:?}");
}

#[test]
fn a_question_interrupts_the_critic_and_the_text_is_taken_up_again() {
    let mut stage = with_critic(|_| Script::never_ending(&["Hm"]));
    let [first] = remembered(&mut stage, ["first?"]);
    wait_until("the critic reads", || !stage.critic.as_ref().unwrap().requests().is_empty());
    let [second] = remembered(&mut stage, ["second?"]);
    assert!(stage.critic.as_ref().unwrap().was_cancelled());
    let untouched = |id| {
        let Engram { vetting, .. } = stage.engram(id);
        (vetting.state, vetting.note, vetting.critique) == (VettingState::Unreviewed, None, None)
    };
    assert!(untouched(first) && untouched(second));
    wait_until("the critic reads again", || stage.critic.as_ref().unwrap().requests().len() > 1);
}
