//! Intentions, consolidations and the review of exchanges, with a scripted model and a scripted critic.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hone_agents::{
    Consolidated, Consolidator, Criticize, Gatekeeper, Intended, Intender, MemoryMode, ModelWriter, NoteError,
    NoteSettings, RecallPolicy, Rememberer, Vetter,
};
use hone_judging::{CritiqueSettings, Purpose, PurposeDecider, scripted};
use hone_memory::{Engram, EngramKind, Filters, MemoryOptions, MemoryStore};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{
    ContentType, CritiqueLevel, CritiqueResult, Generate, Judging, Lane, QueryId, Response, SamplingOptions, SessionId,
    Timestamp, VettingState,
};
use tempfile::TempDir;

use crate::stage::{WordEmbedder, memory_settings, text_of};

const BLOCK: Option<CritiqueLevel> = Some(CritiqueLevel::Block);
const PASS: Option<CritiqueLevel> = Some(CritiqueLevel::Pass);

/// Gives these levels in turn, then repeats the last one, and keeps the texts that it was shown.
struct Levels {
    levels: Vec<Option<CritiqueLevel>>,
    n_asked: AtomicUsize,
    shown: Mutex<Vec<(ContentType, String, String)>>,
}

fn saying(levels: &[Option<CritiqueLevel>]) -> Levels {
    Levels { levels: levels.to_vec(), n_asked: AtomicUsize::new(0), shown: Mutex::default() }
}

impl Criticize for Levels {
    fn criticize(&self, kind: ContentType, content: &str, context: &str) -> CritiqueResult {
        let number = self.n_asked.fetch_add(1, Ordering::Relaxed);
        self.shown.lock().unwrap().push((kind, content.to_owned(), context.to_owned()));
        let level = self.levels[number.min(self.levels.len() - 1)];
        CritiqueResult {
            content_type: kind,
            level,
            should_block: level == BLOCK,
            challenges: vec!["Which shop?".to_owned()],
            reasoning: "It is vague.".to_owned(),
            judging: if level.is_none() { Judging::failed("there is no judge") } else { Judging::default() },
            ..CritiqueResult::default()
        }
    }

    fn unproven(&self, _: ContentType) -> Option<String> {
        None
    }
}

struct Place {
    _folder: TempDir,
    rememberer: Rememberer,
    model: Arc<Scripted>,
    critique: CritiqueSettings,
    notes: NoteSettings,
    recall: RecallPolicy,
    decider: Option<PurposeDecider>,
}

impl Place {
    fn new(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> Place {
        let folder = TempDir::new().unwrap();
        let options = MemoryOptions { embedding_model: "words".to_owned(), ..MemoryOptions::default() };
        let store = MemoryStore::open(folder.path(), options).unwrap();
        let rememberer = Rememberer { store, embedder: Some(Arc::new(WordEmbedder)), takes_facts: true };
        let model = Arc::new(Scripted::new(move |request| Script::saying(&[&respond(&text_of(request))])));
        let critique: CritiqueSettings = toml::from_str(include_str!("../../../../config/critique.toml")).unwrap();
        let notes: NoteSettings = toml::from_str(include_str!("../../../../config/notes.toml")).unwrap();
        notes.check().unwrap();
        let recall = RecallPolicy::UnreviewedMarked;
        Place { _folder: folder, rememberer, model, critique, notes, recall, decider: None }
    }

    fn store(&self) -> &MemoryStore {
        &self.rememberer.store
    }

    fn keeper<'a>(&'a self, critic: &'a Levels) -> Gatekeeper<'a> {
        let (store, settings) = (self.store(), &self.critique);
        Gatekeeper { store, critic, settings, is_batch: true, clock: &Timestamp::now }
    }

    fn writer(&self) -> ModelWriter<'_> {
        ModelWriter {
            generator: Arc::clone(&self.model) as Arc<dyn Generate>,
            model: "m".to_owned(),
            sampling: SamplingOptions::default(),
            lane: Lane::Batch,
            is_stopped: &|| false,
        }
    }

    fn intend(&self, critic: &Levels) -> Result<Intended, NoteError> {
        let (rememberer, settings) = (&self.rememberer, &self.notes);
        let open_ends = &["Task (waits for a decision): mend the fence".to_owned()];
        Intender { rememberer, writer: self.writer(), gatekeeper: self.keeper(critic), settings, open_ends }.intend()
    }

    /// Consolidates, and stops before the group with that number.
    fn consolidate(&self, critic: &Levels, stop_before: usize) -> Consolidated {
        let mut memory = memory_settings(MemoryMode::Auto);
        memory.recall = self.recall;
        let consolidator = Consolidator {
            rememberer: &self.rememberer,
            writer: self.writer(),
            gatekeeper: self.keeper(critic),
            settings: &self.notes,
            memory: &memory,
            decider: self.decider.clone(),
        };
        consolidator.run(&mut |done, _| done < stop_before).unwrap()
    }

    /// Remembers an exchange at this minute.
    fn said(&self, minute: u64, question: &str, answer: &str) -> QueryId {
        self.said_in(None, minute, question, answer)
    }

    fn said_in(&self, scope: Option<&str>, minute: u64, question: &str, answer: &str) -> QueryId {
        let at = Timestamp(60_000 * minute);
        let id = QueryId::from_bits((u128::from(at.0) << 80) | (7 << 76) | (1 << 63));
        let response = Response { scope: scope.map(str::to_owned), ..Response::new(question, answer, "m") };
        let engram = Engram::new(id, SessionId::from_bits(1), &response);
        self.rememberer.remember(Engram { at, ..engram }, None).unwrap();
        id
    }

    fn notes_of(&self, kind: EngramKind) -> Vec<Engram> {
        self.store().list(&Filters { kind: Some(kind), ..Filters::default() }, usize::MAX).unwrap()
    }
}

fn summary(_: &str) -> String {
    r#"{"title": "The dog", "summary": "The person has a dog."}"#.to_owned()
}

#[test]
fn a_blocked_intention_is_written_once_more_with_what_is_wrong_with_it() {
    let place =
        Place::new(|prompt| if prompt.contains("> - Which shop?") { "Buy milk at Ada's." } else { "Buy." }.to_owned());
    place.said(1, "Is there milk?", "No.");
    place.said(2, "I want to learn to swim, where can I?", "At the pool.");
    for scope in ["client", "client:plain"] {
        place.said_in(
            Some(scope),
            if scope == "client" { 3 } else { 4 },
            "I want to sell the moon, is it mine?",
            "No.",
        );
    }
    let critic = saying(&[BLOCK, PASS]);
    let Intended { note, decided, first } = place.intend(&critic).unwrap();
    assert_eq!((note.answer.as_str(), decided.state), ("Buy milk at Ada's.", VettingState::Reviewed));
    assert!(place.critique.intention_mode == hone_protocol::CriticMode::Soft, "the shipped mode");
    assert_eq!(first.unwrap().1.state, VettingState::Unreviewed, "a soft gate marks it");
    let prompt = text_of(&place.model.requests()[0]);
    for part in ["no intention before", "mend the fence", "own words", ": I want to learn to swim", "Is there milk?"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!prompt.contains("moon"), "what programs said is not the person's: {prompt}");
    assert!(critic.shown.lock().unwrap()[0].2.contains("Is there milk?"), "the critic sees the state");
    // The next one is written from the last one.
    place.intend(&saying(&[PASS])).unwrap();
    let requests = place.model.requests();
    assert!(text_of(requests.last().unwrap()).contains("> Buy milk at Ada's."));
    assert_eq!(place.notes_of(EngramKind::Intention).len(), 3);
}

#[test]
fn a_hard_gate_that_asks_no_critic_now_has_nothing_written() {
    let mut place = Place::new(|_| "Buy.".to_owned());
    place.critique.intention_mode = hone_protocol::CriticMode::Hard;
    place.critique.per_hour_in_batch = 1;
    let Intended { decided, .. } = place.intend(&saying(&[None])).unwrap();
    assert_eq!((decided.state, decided.reason.as_deref()), (VettingState::Unreviewed, Some("there is no judge")));
    assert!(decided.is_critics_fault());
    place.intend(&saying(&[PASS])).unwrap();
    let refused = place.intend(&saying(&[PASS])).unwrap_err();
    assert!(matches!(refused, NoteError::Refused(_)), "{refused}");
    assert_eq!(place.model.requests().len(), 2, "the model was not asked");
}

#[test]
fn a_consolidation_links_its_sources_and_names_what_has_changed() {
    let place = Place::new(summary);
    let sources = [
        place.said(1, "My dog is called Rex. What does a dog eat?", "Meat."),
        place.said(2, "My dog is called Max. What does a dog eat?", "Meat."),
        place.said(3, "My dog is called Max. What does a dog eat?", "Meat."),
    ];
    place.said(4, "Who painted the Sistine Chapel ceiling?", "Michelangelo did.");
    let critic = saying(&[PASS]);
    let consolidated = place.consolidate(&critic, usize::MAX);
    assert_eq!((consolidated.exchanges, consolidated.clusters, consolidated.reviewed), (4, 1, 1), "{consolidated:?}");
    assert_eq!(consolidated.duplicates, 1);
    let [note] = &place.notes_of(EngramKind::Consolidation)[..] else { panic!() };
    assert_eq!(note.sources, sources);
    assert!(note.answer.starts_with("The person has a dog."), "{}", note.answer);
    assert!(
        note.answer.contains("\"My dog is called Rex\" was said before \"My dog is called Max\""),
        "{}",
        note.answer
    );
    let shown = critic.shown.lock().unwrap()[0].clone();
    assert_eq!((shown.0, shown.2.matches("> Meat.").count()), (ContentType::Consolidation, 2), "{shown:?}");
    // Consolidated exchanges are not consolidated again.
    let again = place.consolidate(&saying(&[PASS]), usize::MAX);
    assert_eq!((again.exchanges, again.clusters, again.written), (1, 0, 0));
}

/// The rules find "My dog is called Rex" and "My dog is called Max"; the model finds what they cannot.
#[test]
fn a_model_that_has_passed_decides_what_has_changed() {
    let mut place = Place::new(summary);
    place.said(1, "My dog is called Rex. What does a dog eat?", "Meat.");
    place.said(2, "My dog is called Max. What does a dog eat?", "Meat.");
    place.said(3, "My dog Max is gone now. What does a dog eat?", "Meat.");
    let (decider, model) = scripted::decider(Purpose::Contradiction, |prompt| {
        prompt.contains("Earlier statement: My dog is called Max\n\nLater statement: My dog Max is gone now")
    });
    place.decider = Some(decider);
    let consolidated = place.consolidate(&saying(&[PASS]), usize::MAX);
    let found: Vec<[&str; 2]> = consolidated.contradictions.iter().map(|it| [&*it.earlier, &it.later]).collect();
    assert_eq!(found, [["My dog is called Max", "My dog Max is gone now"]], "{:?}", model.requests());
}

#[test]
fn a_blocked_consolidation_leaves_its_sources_untouched() {
    let place = Place::new(summary);
    let sources = [1, 2].map(|minute| place.said(minute, "What does my dog eat?", "Meat, or fish."));
    let before = sources.map(|id| place.store().fields(id).unwrap());
    for level in [CritiqueLevel::Major, CritiqueLevel::Block] {
        let consolidated = place.consolidate(&saying(&[Some(level)]), usize::MAX);
        assert_eq!((consolidated.blocked, consolidated.stopped.clone()), (1, None), "{consolidated:?}");
        let [note] = &place.notes_of(EngramKind::Consolidation)[..] else { panic!() };
        assert_eq!(note.vetting.state, VettingState::Blocked);
        place.store().remove(&[note.query_id]).unwrap();
    }
    assert_eq!(sources.map(|id| place.store().fields(id).unwrap()), before);
}

#[test]
fn only_what_is_reviewed_is_consolidated_where_that_is_asked_for() {
    let mut place = Place::new(summary);
    place.recall = RecallPolicy::Reviewed;
    for minute in 1..=3 {
        place.said(minute, "What does my dog eat?", "Meat.");
    }
    assert_eq!(place.consolidate(&saying(&[PASS]), usize::MAX).exchanges, 0);
    let critic = saying(&[PASS, BLOCK, PASS]);
    let vetter = Vetter { gatekeeper: place.keeper(&critic) };
    let pending = vetter.pending(usize::MAX).unwrap();
    let states: Vec<VettingState> = pending.iter().map(|engram| vetter.decide(engram).unwrap().state).collect();
    assert_eq!(states, [VettingState::Reviewed, VettingState::Blocked, VettingState::Reviewed]);
    assert_eq!(vetter.pending(usize::MAX).unwrap(), []);
    assert_eq!(place.consolidate(&saying(&[PASS]), usize::MAX).exchanges, 2);
}

#[test]
fn a_missing_critic_stops_a_hard_consolidation_and_the_next_run_decides_first() {
    let place = Place::new(summary);
    for (group, topic) in (0..).zip(["apple apple apple", "berry berry berry", "cherry cherry cherry"]) {
        for minute in 0..2 {
            place.said(100 * group + minute, topic, "Yes.");
        }
    }
    let consolidated = place.consolidate(&saying(&[None]), usize::MAX);
    assert_eq!((consolidated.written, consolidated.unreviewed), (1, 1), "{consolidated:?}");
    assert_eq!(consolidated.stopped.as_deref(), Some("there is no judge"));
    let n_written = place.model.requests().len();
    let consolidated = place.consolidate(&saying(&[PASS]), usize::MAX);
    assert_eq!((consolidated.reviewed, consolidated.stopped), (3, None));
    assert_eq!(place.model.requests().len(), n_written + 2, "the first summary was not written again");
}

/// Consolidates `n` exchanges about different things, three about each, and stops twice on the way.
fn consolidate_many(n: usize) {
    let mut place = Place::new(|prompt| {
        let topic = prompt.lines().find_map(|line| line.strip_prefix("> What about ")).unwrap_or("?");
        format!(r#"{{"title": "{topic}", "summary": "It is about {topic}."}}"#)
    });
    place.critique.per_hour_in_batch = n;
    let letters = |number: usize| -> String {
        let digit = |place: u32| char::from(b'a' + u8::try_from(number / 26_usize.pow(place) % 26).unwrap());
        (0..4).map(digit).collect()
    };
    let topic = |number: usize| letters(number / 3).repeat(6);
    let sources: Vec<QueryId> =
        (0..n).map(|number| place.said(number as u64, &format!("What about {}", topic(number)), "Yes.")).collect();
    let mut written = 0;
    for stop_before in [n / 10, n / 5, usize::MAX] {
        written += place.consolidate(&saying(&[PASS]), stop_before).written;
    }
    let notes = place.notes_of(EngramKind::Consolidation);
    assert_eq!(notes.len(), written);
    let linked: Vec<QueryId> = notes.iter().flat_map(|note| note.sources.clone()).collect();
    let distinct: HashSet<QueryId> = linked.iter().copied().collect();
    assert_eq!(linked.len(), distinct.len(), "nothing is summarized twice");
    // Exchanges without a group stay as they are; all others are linked.
    let alone = sources.iter().filter(|id| !distinct.contains(*id)).count();
    assert!(alone <= n / 10, "{alone} of {n} are in no group");
    let kept: BTreeSet<QueryId> =
        place.store().list(&Filters::default(), usize::MAX).unwrap().iter().map(|engram| engram.query_id).collect();
    assert!(sources.iter().all(|id| kept.contains(id)), "nothing is lost");
    assert_eq!(place.store().verify().unwrap().problems, [""; 0]);
}

#[test]
fn a_consolidation_that_is_stopped_goes_on_where_it_was() {
    consolidate_many(300);
}

#[test]
#[ignore = "takes a minute: scripts/test.sh torture runs it"]
fn ten_thousand_answers_are_consolidated() {
    consolidate_many(10_000);
}
