//! The event log: order, filters, followers, and forgetting.

use hone_memory::{Engram, EventFilter, MemoryError, MemoryStore, Update};
use hone_protocol::{
    Chunk, Comparison, Envelope, Feedback, GradedAnswer, JudgingMethod, Nothing, Payload, Preference, Rating, Recall,
    RecallMode, RecalledEngram, RespondentId, SessionId, Subject,
};

use super::{Home, event};
use crate::support::{engram, grade, id};

/// A process that was stopped applies a request when it resumes, although the request was kept and applied meanwhile.
#[test]
fn an_event_that_comes_twice_is_there_once() {
    let home = Home::new();
    let store = home.open();
    let cancelled = Payload::QueryCancelled(Nothing {});
    let event = Envelope::new("test", SessionId::from_bits(1), cancelled);
    assert_eq!((store.append_event(&event), store.append_event(&event)), (Ok(1), Ok(1)));
    assert_eq!(store.events(&EventFilter::default(), None).unwrap().len(), 1);
}

/// An event about the answer with this number, with the texts of its engram.
fn event_about(number: u64, payload: Payload) -> Envelope {
    event(1, payload).about(id(number), id(number), RespondentId::A)
}

#[test]
fn a_forgotten_answer_is_forgotten_by_the_event_log() {
    let home = Home::new();
    let store = home.open();
    let critique = |number: u64| {
        let Engram { query, answer, .. } = engram(number);
        Payload::CritiqueResult(GradedAnswer { query, answer, grade: grade(Some(4)) })
    };
    let recalled = |number: u64| {
        let Engram { query_id, query, answer, .. } = engram(number);
        RecalledEngram {
            query_id,
            query,
            answer,
            score: None,
            similarity: 0.9,
            relevance: 0.9,
            self_graded: false,
            judging_method: JudgingMethod::Prompted,
            words: 0.0,
            is_fact: false,
            is_unreviewed: false,
        }
    };
    let search = "What was 1 of 2?".to_owned();
    let recall = Recall { mode: RecallMode::Context, search, engrams: vec![recalled(1), recalled(3)] };
    let preference = Preference { reason: "A says that it is 1.".into(), ..Preference::default() };
    let (query_id_a, query_id_b) = (id(2), id(1));
    let (score_a, score_b) = (Some(3), None);
    let compared = Comparison { original_query_id: id(2), query_id_a, query_id_b, score_a, score_b, preference };
    let events = [
        event_about(1, critique(1)),
        event_about(2, critique(2)),
        event_about(2, Payload::MemoryRecalled(recall.clone())),
        event_about(2, Payload::PairwiseResult(compared)),
        event_about(1, Payload::MemoryRecalled(recall)),
    ];
    for (number, event) in (1..).zip(&events) {
        store.append_event(event).unwrap();
        store.remember(engram(number), None).unwrap();
    }
    assert_eq!(store.remove(&[id(1), id(9)]), Ok(vec![Update::Merged, Update::Missing]));
    let check = |store: &MemoryStore| {
        let kept = store.events(&EventFilter::default(), None).unwrap();
        assert_eq!(kept.len(), events.len(), "what happened stays");
        assert_eq!(kept[1].1, events[1], "another answer stays as it was");
        let Payload::CritiqueResult(critique) = &kept[0].1.payload else { panic!("{kept:?}") };
        assert_eq!((critique.grade.score, critique.grade.feedback.as_str()), (Some(4), ""));
        let json = |place: usize| serde_json::to_string(&kept[place].1).unwrap();
        let all: String = (0..events.len()).map(json).collect();
        for text in ["What is 1?", "it is 1."] {
            assert!(!all.contains(text), "{all}");
        }
        assert!(json(2).contains("What was 1 of 2?") && json(2).contains("What is 3?"), "{}", json(2));
        assert!(!json(4).contains("What was 1 of 2?"), "{}", json(4));
    };
    check(&store);
    drop(store);
    check(&home.open());
}

#[test]
fn events_are_kept_in_order() {
    let home = Home::new();
    let store = home.open();
    let feedback = || Payload::UserFeedback(Feedback { rating: Some(Rating::Good) });
    let events: Vec<Envelope> = (0..5)
        .map(|number| event(number % 2, if number == 2 { Payload::SessionClosed(Nothing {}) } else { feedback() }))
        .collect();
    for (number, event) in (1..).zip(&events) {
        assert_eq!(store.append_event(event), Ok(number));
    }
    let chunk = event(1, Payload::ResponseChunk(Chunk::Text("hello".into())));
    assert_eq!(store.append_event(&chunk), Err(MemoryError::Chunk));
    drop(store);
    let store = home.open();
    let check = |filter: EventFilter, after: Option<u64>, expected: &[u64]| {
        let found = store.events(&filter, after).unwrap();
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected, "{filter:?}");
        assert!(found.iter().all(|(number, found)| *found == events[*number as usize - 1]));
    };
    check(EventFilter::default(), None, &[1, 2, 3, 4, 5]);
    check(EventFilter::default(), Some(3), &[4, 5]);
    check(EventFilter::default(), Some(5), &[]);
    check(EventFilter { last: Some(2), ..EventFilter::default() }, None, &[4, 5]);
    check(EventFilter { subjects: vec![Subject::SessionClosed], ..EventFilter::default() }, None, &[3]);
    let last_of_session =
        EventFilter { session: Some(SessionId::from_bits(1)), last: Some(1), ..EventFilter::default() };
    check(last_of_session, None, &[4]);
}

#[test]
fn events_are_followed_as_they_come() {
    let home = Home::new();
    let store = home.open();
    let closed = |session| event(session, Payload::SessionClosed(Nothing {}));
    store.append_event(&closed(1)).unwrap();
    let of_session = EventFilter { session: Some(SessionId::from_bits(1)), ..EventFilter::default() };
    let mut from_now = store.follow_events(&of_session, None).unwrap();
    let mut from_the_start = store.follow_events(&of_session, Some(0)).unwrap();
    let numbers = |follower: &mut hone_memory::EventFollower, milliseconds| {
        let events = follower.next(std::time::Duration::from_millis(milliseconds)).unwrap();
        events.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&mut from_the_start, 60_000), [1]);
    assert_eq!(numbers(&mut from_now, 0), [0; 0]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut seen = Vec::new();
            while seen.len() < 2 {
                seen.extend(numbers(&mut from_now, 60_000));
            }
            seen
        });
        for session in [2, 1, 2, 1] {
            store.append_event(&closed(session)).unwrap();
        }
        assert_eq!(waiting.join().unwrap(), [3, 5]);
    });
}
