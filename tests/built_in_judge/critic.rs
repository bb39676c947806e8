//! `hone critic`, `hone intention` and `hone consolidate`: the real binary, with the built-in model as writer and, under
//! another name, as critic.

use std::fs;

use crate::support::{Home, embedder, smollm2};
use hone_memory::{Criticized, Engram, EngramKind, Filters, MemoryOptions, MemoryStore, Vetting};
use hone_protocol::{
    ContentType, CriticDecision, CriticMode, CritiqueLevel, CritiqueResult, QueryId, Response, SessionId, Timestamp,
    VettingState,
};
use serde_json::Value;

fn memory(home: &Home) -> MemoryStore {
    MemoryStore::open(&home.path("data/memory"), MemoryOptions::default()).unwrap()
}

/// A home whose memory holds exchanges about eggs.
fn home() -> Home {
    let home = Home::graded_by_the_generator().variable("HONE_MEMORY_EMBEDDER", &embedder());
    let store = memory(&home);
    for (question, answer) in [
        ("How long do I boil an egg?", "Boil a soft egg for six minutes."),
        ("How long do I boil a hard egg?", "Boil a hard egg for ten minutes."),
    ] {
        let response = Response::new(question, answer, "someone");
        store.remember(Engram::new(QueryId::fresh(), SessionId::fresh(), &response), None).unwrap();
    }
    home
}

#[track_caller]
fn succeed(home: &Home, arguments: &[&str]) -> String {
    let run = home.run(arguments);
    assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
    run.stdout
}

/// The built-in model under another name, so that it does not criticize its own texts.
fn critic(home: &Home) -> String {
    let path = home.path("critic.gguf");
    fs::hard_link(smollm2(), &path).or_else(|_| fs::copy(smollm2(), &path).map(drop)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Stores a note blocked by a hard gate, and returns its id.
fn block(home: &Home) -> QueryId {
    let store = memory(home);
    let response = Response::new("What is remembered of eggs?", "Eggs are boiled for six hours.", "m");
    let note = Engram::note(EngramKind::Consolidation, SessionId::fresh(), &response, Vec::new());
    store.remember(note.clone(), None).unwrap();
    let result = CritiqueResult {
        content_type: ContentType::Consolidation,
        level: Some(CritiqueLevel::Block),
        validity_score: Some(0.1),
        should_block: true,
        reasoning: "Six minutes, not hours.".to_owned(),
        ..CritiqueResult::default()
    };
    let decision = CriticDecision {
        content_type: ContentType::Consolidation,
        level: result.level,
        validity_score: result.validity_score,
        state: VettingState::Blocked,
        mode: CriticMode::Hard,
        reason: result.reasoning.clone(),
    };
    let critique = Criticized { at: Timestamp::now(), mode: CriticMode::Hard, result };
    let state = VettingState::Blocked;
    let vetting = Vetting { state, critique: Some(Box::new(critique)), ..Vetting::default() };
    store.vet(&note, vetting, decision).unwrap();
    note.query_id
}

#[test]
fn the_modes_are_set_at_run_time() {
    let home = home();
    let modes = |home: &Home| {
        let status = home.json(&["critic", "status", "--json"]);
        ["intention", "research"].map(|gate| status["gates"][gate]["mode"].as_str().unwrap().to_owned())
    };
    assert_eq!(modes(&home), ["soft", "soft"], "as shipped: what has not passed its examination is soft");
    let critic = &home.json(&["critic", "status", "--json"])["critic"];
    assert!(critic["obstacle"].as_str().unwrap().contains("is not installed"), "{critic}");
    assert!(succeed(&home, &["critic", "status"]).starts_with("critic: none (model `prometheus:7b` is not installed"));
    let home = home.variable("HONE_CRITIQUE_EXAMINATION", "false");
    assert_eq!(modes(&home), ["soft", "hard"], "as configured");
    for (command, mode) in [("bypass", "off"), ("soft", "soft"), ("hard", "hard")] {
        succeed(&home, &["critic", command]);
        assert_eq!(modes(&home), [mode; 2]);
    }
    assert!(succeed(&home, &["critic", "status"]).contains("every gate is hard"));
    succeed(&home, &["critic", "configured"]);
    assert_eq!(modes(&home), ["soft", "hard"]);
    let events = succeed(&home, &["events"]);
    assert_eq!(events.matches("critic.overridden").count(), 4, "{events}");
}

#[test]
fn a_missing_critic_is_named_and_a_hard_gate_fails_for_it() {
    let home = home();
    let write = ["intention", "--json", "-m", &smollm2(), "--judge", "nobody:1b"];
    let run = home.run(&write);
    let intention: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
    assert_eq!((run.code, &intention["state"]), (0, &"unreviewed".into()), "{intention}");
    assert!(intention["reason"].as_str().unwrap().contains("nobody:1b"), "{intention}");
    succeed(&home, &["critic", "hard"]);
    let run = home.run(&write);
    assert_eq!(run.code, 1, "{}", run.stderr);
    succeed(&home, &["critic", "bypass"]);
    let run = home.run(&write);
    let intention: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &intention["reason"]), (0, &"the critic is off".into()));
    let filters = Filters { kind: Some(EngramKind::Intention), ..Filters::default() };
    let states: Vec<_> = memory(&home).list(&filters, 9).unwrap().iter().map(|it| it.vetting.state).collect();
    assert_eq!(states, [VettingState::Unreviewed; 3]);
}

#[test]
fn the_built_in_model_writes_and_criticizes_each_kind_of_note() {
    let unproven = home();
    let run = unproven.run(&["critic", "vet", "-n", "1", "-m", &smollm2(), "--judge", &critic(&unproven), "--json"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("has not taken the critic's examination"), "{}", run.stderr);
    let home = home().variable("HONE_CRITIQUE_EXAMINATION", "false");
    let critic = critic(&home);
    let flags = ["-m", &smollm2(), "--judge", &critic, "--json"];
    let json = |run: crate::support::Run| -> (i32, Value) {
        (run.code, serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr)))
    };
    let (code, intention) = json(home.run(&[&["intention"], &flags[..]].concat()));
    assert_eq!(code, 0, "a soft gate: {intention}");
    assert!(!intention["intention"].as_str().unwrap().is_empty());
    let home = home.variable("HONE_MEMORY_RECALL", "unreviewed-marked");
    let (_, consolidated) = json(home.run(&[&["consolidate"], &flags[..]].concat()));
    assert_eq!((&consolidated["exchanges"], &consolidated["clusters"]), (&2.into(), &1.into()), "{consolidated}");
    let written = consolidated["written"].as_u64().unwrap() + consolidated["failed"].as_u64().unwrap();
    assert_eq!(written, 1, "{consolidated}");
    let run = home.run(&["critic", "vet", "-n", "1", "-m", &smollm2(), "--judge", &critic, "--json"]);
    let (_, vetted) = json(run);
    assert!(["reviewed", "blocked", "unreviewed"].iter().any(|state| vetted["state"] == *state), "{vetted}");
    assert!(home.path("data/critic_stats.json").exists());
    let statistics = home.json(&["critic", "stats", "--json"]);
    let file: Value = serde_json::from_slice(&fs::read(home.path("data/critic_stats.json")).unwrap()).unwrap();
    assert_eq!(statistics, file);
}

#[test]
fn a_person_reviews_what_was_blocked() {
    let home = home();
    let [right, wrong] = [block(&home), block(&home)];
    let blocks = succeed(&home, &["critic", "blocks"]);
    assert!(blocks.contains("Six minutes, not hours.") && blocks.contains("not reviewed by a person"), "{blocks}");
    succeed(&home, &["critic", "review", &right.to_string(), "--right"]);
    succeed(&home, &["critic", "review", &wrong.to_string(), "--wrong"]);
    let store = memory(&home);
    let state = |id| store.get(id).unwrap().unwrap().vetting.state;
    assert_eq!([right, wrong].map(state), [VettingState::Blocked, VettingState::Reviewed]);
    drop(store);
    assert_eq!(succeed(&home, &["critic", "blocks", "--open"]), "");
    let statistics = home.json(&["critic", "stats", "--json"]);
    assert_eq!((&statistics["block_rate"], &statistics["precision_of_blocks"]["share"]), (&1.0.into(), &0.5.into()));
    assert_eq!(statistics["last_block"]["reason"], "Six minutes, not hours.");
    let answer = home.json(&["memory", "list", "--json"])[0]["query_id"].as_str().unwrap().to_owned();
    let run = home.run(&["critic", "review", &answer, "--right"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("was not blocked"), "{}", run.stderr);
    assert_eq!(home.run(&["critic", "check"]).code, 0, "too few figures say nothing");
}
