//! The gate to long-term memory, with a scripted critic and a clock set by the test.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hone_agents::{Criticize, Decided, Gatekeeper};
use hone_judging::CritiqueSettings;
use hone_memory::{Engram, EngramKind, MemoryOptions, MemoryStore};
use hone_protocol::{
    ContentType, CriticMode, CritiqueLevel, CritiqueResult, Judging, Response, SessionId, Timestamp, VettingState,
};
use tempfile::TempDir;

const MINUTE: u64 = 60_000;

/// Gives these levels in turn; `None` is a missing verdict.
struct Scripted {
    levels: Mutex<Vec<Option<CritiqueLevel>>>,
    disregarded: Option<String>,
    /// Runs while the critic thinks.
    meanwhile: Box<dyn Fn() + Sync + Send>,
}

impl Criticize for Scripted {
    fn criticize(&self, kind: ContentType, content: &str, context: &str) -> CritiqueResult {
        assert_eq!((content, context), ("Buy milk.", "The fridge is empty."));
        (self.meanwhile)();
        let level = self.levels.lock().unwrap().remove(0);
        let judging = if level.is_none() { Judging::failed("there is no judge") } else { Judging::default() };
        CritiqueResult {
            content_type: kind,
            level,
            should_block: level == Some(CritiqueLevel::Block) && self.disregarded.is_none(),
            reasoning: "It is vague.".to_owned(),
            disregarded: self.disregarded.clone(),
            judging,
            ..CritiqueResult::default()
        }
    }

    fn unproven(&self, _: ContentType) -> Option<String> {
        self.disregarded.clone()
    }
}

fn saying(levels: &[Option<CritiqueLevel>]) -> Scripted {
    Scripted { levels: Mutex::new(levels.to_vec()), disregarded: None, meanwhile: Box::new(|| ()) }
}

struct Place {
    _folder: TempDir,
    store: MemoryStore,
    settings: CritiqueSettings,
    now: AtomicU64,
}

impl Place {
    fn new() -> Place {
        let folder = TempDir::new().unwrap();
        let store = MemoryStore::open(folder.path(), MemoryOptions::default()).unwrap();
        let settings = toml::from_str(include_str!("../../../../config/critique.toml")).unwrap();
        Place { _folder: folder, store, settings, now: AtomicU64::new(1_000_000 * MINUTE) }
    }

    /// Remembers a note and decides about it.
    fn decide(&self, critic: &Scripted, kind: ContentType) -> (Engram, Decided) {
        let clock = || Timestamp(self.now.load(Ordering::Relaxed));
        let gatekeeper =
            Gatekeeper { store: &self.store, critic, settings: &self.settings, is_batch: false, clock: &clock };
        let note = note();
        self.store.remember(note.clone(), None).unwrap();
        let decided = gatekeeper.decide(&note, kind, "The fridge is empty.").unwrap();
        let stored = self.store.get(note.query_id).unwrap().unwrap();
        assert_eq!(stored.vetting.state, decided.state, "what is said is what is stored");
        (stored, decided)
    }

    fn wait(&self, minutes: u64) {
        self.now.fetch_add(minutes * MINUTE, Ordering::Relaxed);
    }
}

fn note() -> Engram {
    let response = Response::new("What is to be done?", "Buy milk.", "m");
    Engram::note(EngramKind::Intention, SessionId::fresh(), &response, Vec::new())
}

#[test]
fn a_hard_gate_keeps_back_what_a_soft_one_only_marks() {
    use CritiqueLevel::{Block, Major, Minor, Pass};
    use VettingState::{Blocked, Reviewed, Unreviewed};
    let mut place = Place::new();
    let levels = [Some(Pass), Some(Minor), Some(Major), Some(Block), None];
    for (mode, kind, expected) in [
        (CriticMode::Hard, ContentType::Research, [Reviewed, Reviewed, Reviewed, Blocked, Unreviewed]),
        (CriticMode::Hard, ContentType::Consolidation, [Reviewed, Reviewed, Blocked, Blocked, Unreviewed]),
        (CriticMode::Soft, ContentType::Research, [Reviewed, Reviewed, Reviewed, Unreviewed, Unreviewed]),
        (CriticMode::Off, ContentType::Research, [Unreviewed; 5]),
    ] {
        place.settings = CritiqueSettings { research_mode: mode, consolidation_mode: mode, ..place.settings };
        let critic = saying(&levels);
        for expected in expected {
            let (stored, decided) = place.decide(&critic, kind);
            assert_eq!(decided.state, expected, "{mode} {kind} {decided:?}");
            assert_eq!(decided.reason.is_none(), expected == Reviewed);
            assert_eq!(stored.vetting.note.is_some(), expected == Unreviewed);
        }
        place.wait(61);
    }
}

#[test]
fn a_critic_whose_word_does_not_count_neither_blocks_nor_lets_pass() {
    let place = Place::new();
    let levels = [Some(CritiqueLevel::Block), Some(CritiqueLevel::Pass)];
    let critic = Scripted { disregarded: Some("it has not passed its examination".to_owned()), ..saying(&levels) };
    for _ in levels {
        let (stored, decided) = place.decide(&critic, ContentType::Research);
        assert_eq!((decided.state, decided.mode), (VettingState::Unreviewed, CriticMode::Soft));
        assert_eq!(stored.vetting.note.as_deref(), Some("it has not passed its examination"));
        assert!(stored.vetting.critique.is_some(), "what it said is kept");
    }
}

#[test]
fn a_verdict_that_is_missing_for_one_text_says_nothing_about_others() {
    let place = Place::new();
    for (reason, is_critics_fault) in [("the judge wrote no verdict that counts: pass", false), ("no judge", true)] {
        let levels = [Some(CritiqueLevel::Pass)];
        let critic = Scripted { disregarded: Some(reason.to_owned()), ..saying(&levels) };
        let (_, decided) = place.decide(&critic, ContentType::Research);
        assert_eq!(decided.is_critics_fault(), is_critics_fault, "{reason}");
    }
}

#[test]
fn a_person_sets_the_mode_of_every_gate_even_while_the_critic_thinks() {
    let place = Place::new();
    let (blocks, store) = ([Some(CritiqueLevel::Block); 2], place.store.clone());
    let meanwhile = move || store.set_critic_override(Some(CriticMode::Soft)).unwrap();
    let critic = Scripted { meanwhile: Box::new(meanwhile), ..saying(&blocks) };
    let (_, decided) = place.decide(&critic, ContentType::Research);
    assert_eq!((decided.state, decided.mode), (VettingState::Unreviewed, CriticMode::Soft));
    assert!(decided.was_to_be_blocked());
    place.store.set_critic_override(Some(CriticMode::Off)).unwrap();
    let (_, decided) = place.decide(&saying(&[]), ContentType::Research);
    assert_eq!((decided.mode, decided.critique), (CriticMode::Off, None));
    place.store.set_critic_override(Some(CriticMode::Hard)).unwrap();
    let (_, decided) = place.decide(&saying(&blocks), ContentType::Intention);
    assert_eq!(decided.state, VettingState::Blocked, "although the configuration says soft");
}

#[test]
fn ten_in_an_hour_of_each_type() {
    let place = Place::new();
    let critic = saying(&[Some(CritiqueLevel::Pass); 13]);
    for _ in 0..10 {
        place.decide(&critic, ContentType::Research);
        place.wait(1);
    }
    let (_, refused) = place.decide(&critic, ContentType::Research);
    assert_eq!((refused.state, &refused.critique), (VettingState::Unreviewed, &None));
    assert!(refused.reason.as_ref().unwrap().contains("10 texts of type research"), "{refused:?}");
    assert_eq!(place.decide(&critic, ContentType::Intention).1.state, VettingState::Reviewed, "of each type");
    place.wait(49);
    assert_eq!(place.decide(&critic, ContentType::Research).1.critique, None, "59 minutes after the first");
    place.wait(1);
    assert_eq!(place.decide(&critic, ContentType::Research).1.state, VettingState::Reviewed);
    assert_eq!(place.decide(&critic, ContentType::Research).1.critique, None, "one hour has passed for one only");
}

#[test]
fn three_blocks_in_a_row_are_followed_by_a_rest() {
    let place = Place::new();
    let block = Some(CritiqueLevel::Block);
    let critic = saying(&[block, block, Some(CritiqueLevel::Pass), block, block, block, Some(CritiqueLevel::Pass)]);
    for _ in 0..6 {
        assert!(place.decide(&critic, ContentType::Research).1.critique.is_some());
    }
    let (_, refused) = place.decide(&critic, ContentType::Research);
    assert!(refused.reason.unwrap().contains("blocked the last 3"));
    place.wait(59);
    assert_eq!(place.decide(&critic, ContentType::Research).1.critique, None);
    place.wait(1);
    assert_eq!(place.decide(&critic, ContentType::Research).1.state, VettingState::Reviewed);
}
