//! Pending work on answers: written with them, claimed by one process at a time, removed with the verdict.

use std::io::{BufRead, BufReader};
use std::mem;
use std::path::Path;
use std::time::Duration;

use hone_memory::{Compared, Due, Engram, Holder, MemoryError, MemoryOptions, MemoryStore, Update, Whose};
use hone_protocol::prospect::{ALONE, CANCELLED, LATE, NO_VERDICT, NO_WORKER, SESSION_CLOSED};
use hone_protocol::{Comparison, FinishReason, Grade, Judging, JudgingMethod, Preference, RespondentId};

use super::{Home, check_whole, numbers};
use crate::support::{engram, grade, id, say, start_child, wait_until};

/// An answer whose grade is due; odd numbers are respondent B's, whose comparison is also due.
fn due(number: u64) -> Engram {
    let engram = engram(number);
    let due = Due::fresh(engram.respondent_id == RespondentId::B);
    Engram { due: Some(due), finish_reason: Some(FinishReason::Stop), ..engram }
}

fn unscored(reason: &str) -> Grade {
    Grade::unscored(reason)
}

/// The numbers of the answers in the backlog, with whether they are held.
fn backlog(store: &MemoryStore) -> Vec<(u64, bool)> {
    store.backlog().unwrap().iter().map(|entry| (entry.at.0 / 1_000, entry.is_held)).collect()
}

fn comparison(a: u64, b: u64, preference: Preference) -> Comparison {
    let [query_id_a, query_id_b] = [a, b].map(id);
    Comparison { original_query_id: query_id_a, query_id_a, query_id_b, score_a: None, score_b: None, preference }
}

#[test]
fn an_answer_is_due_from_the_write_that_adds_it_to_the_one_that_grades_it() {
    let home = Home::new();
    let store = home.open();
    for number in [2, 4, 6, 8] {
        store.remember(due(number), None).unwrap();
    }
    store.remember(engram(10), None).unwrap();
    assert_eq!(backlog(&store), [(2, false), (4, false), (6, false), (8, false)]);
    assert_eq!(store.statistics(Whose::Everyones).unwrap().grades_due, 4);
    assert_eq!(store.update_score(id(2), &grade(Some(4))), Ok(Update::Merged));
    assert_eq!(store.update_score(id(4), &unscored(CANCELLED)), Ok(Update::Merged));
    assert_eq!(store.update_score(id(6), &unscored(SESSION_CLOSED)), Ok(Update::Merged));
    assert_eq!(store.remove(&[id(8)]), Ok(vec![Update::Merged]));
    drop(store);
    let store = home.open();
    assert_eq!(backlog(&store), [(6, false)]);
    let [graded, cancelled, left] = [2, 4, 6].map(|number| store.get(id(number)).unwrap().unwrap());
    assert_eq!((graded.score(), graded.due), (Some(4), None));
    assert_eq!((cancelled.grade, cancelled.due), (Some(unscored(CANCELLED)), None));
    assert_eq!((left.grade, left.due.unwrap().reason.as_deref()), (None, Some(SESSION_CLOSED)));
    check_whole(&store, 4, 0);
}

#[test]
fn an_answer_without_a_verdict_is_tried_twice() {
    let home = Home::new();
    let store = home.open();
    store.remember(due(2), None).unwrap();
    store.update_score(id(2), &unscored(NO_VERDICT)).unwrap();
    assert_eq!(backlog(&store), [(2, false)]);
    store.update_score(id(2), &unscored(NO_VERDICT)).unwrap();
    assert_eq!(backlog(&store), []);
    let found = store.get(id(2)).unwrap().unwrap();
    assert_eq!(found.grade.unwrap().judging.failure.as_deref(), Some(NO_VERDICT));
}

#[test]
fn what_failed_least_is_claimed_first_and_by_one_holder_alone() {
    let home = Home::new();
    let store = home.open();
    for number in [2, 4, 6] {
        store.remember(due(number), None).unwrap();
    }
    store.update_score(id(2), &unscored("timeout")).unwrap();
    let [one, other] = [0, 1].map(|_| Holder::new(&store).unwrap());
    let next = |holder: &Holder| holder.claim_next().unwrap().map(|engram| engram.at.0 / 1_000);
    assert_eq!((next(&one), next(&other)), (Some(4), Some(6)));
    assert_eq!(numbers(&other.claim(vec![id(2), id(4), id(6), id(9)]).unwrap()), [2]);
    assert_eq!((next(&one), next(&other)), (None, None));
    assert_eq!(backlog(&store), [(2, true), (4, true), (6, true)]);
    // A failed answer is free again, a graded one is gone.
    store.update_score(id(6), &unscored("timeout")).unwrap();
    store.update_score(id(4), &grade(Some(3))).unwrap();
    assert_eq!(backlog(&store), [(2, true), (6, false)]);
    drop(other);
    assert_eq!(backlog(&store), [(2, false), (6, false)]);
    check_whole(&store, 3, 0);
}

#[test]
fn an_answer_that_its_own_process_grades_is_held_from_the_start() {
    let home = Home::new();
    let store = home.open();
    let holder = Holder::new(&store).unwrap();
    store.remember_exchange(due(2), None, None, Some(holder.id())).unwrap();
    assert_eq!(backlog(&store), [(2, true)]);
    assert_eq!(Holder::new(&store).unwrap().claim_next(), Ok(None));
    // The verdict of a late worker is still expected.
    store.update_score(id(2), &unscored(LATE)).unwrap();
    assert_eq!(backlog(&store), [(2, true)]);
    store.remember_exchange(due(4), None, None, Some(holder.id())).unwrap();
    store.update_score(id(4), &unscored(NO_WORKER)).unwrap();
    assert_eq!(backlog(&store), [(2, true), (4, false)]);
    drop(holder);
    assert_eq!(backlog(&store), [(2, false), (4, false)]);
}

#[test]
fn an_answer_that_is_remembered_again_may_have_been_graded_meanwhile() {
    let home = Home::new();
    let store = home.open();
    store.remember(due(2), None).unwrap();
    store.update_score(id(2), &grade(Some(4))).unwrap();
    assert_eq!(store.remember(due(2), None), Ok(1));
    let cancelled = Engram { grade: Some(unscored(CANCELLED)), ..engram(4) };
    store.remember(cancelled.clone(), None).unwrap();
    store.update_score(id(4), &grade(Some(2))).unwrap();
    assert_eq!(store.remember(cancelled, None), Ok(2));
    assert_eq!([2, 4].map(|number| store.get(id(number)).unwrap().unwrap().score()), [Some(4), Some(2)]);
    assert_eq!(backlog(&store), []);
    assert_eq!(
        store.remember(Engram { answer: "No.".into(), ..due(2) }, None),
        Err(MemoryError::Conflict { id: id(2) })
    );
}

#[test]
fn what_is_due_moves_with_an_export() {
    let [from, to] = [Home::new(), Home::new()];
    let store = from.open();
    let holder = Holder::new(&store).unwrap();
    store.remember_exchange(due(3), None, None, Some(holder.id())).unwrap();
    store.remember(due(4), None).unwrap();
    store.update_score(id(4), &grade(Some(4))).unwrap();
    let mut lines = Vec::new();
    store.export(&mut lines).unwrap();
    let imported = to.open();
    imported.import(lines.as_slice()).unwrap();
    assert_eq!(backlog(&imported), [(3, false)]);
    assert_eq!(imported.get(id(3)).unwrap().unwrap().due, Some(Due::fresh(true)));
    check_whole(&imported, 2, 0);
}

#[test]
fn a_null_is_due_again_where_somebody_asks_for_it() {
    let home = Home::new();
    let store = home.open();
    store.remember(Engram { grade: Some(unscored(NO_VERDICT)), ..engram(2) }, None).unwrap();
    store.remember(engram(4), None).unwrap();
    store.remember(Engram { grade: Some(grade(Some(3))), ..engram(6) }, None).unwrap();
    let asked = [2, 4, 6, 8].map(id);
    let expected = vec![Update::Merged, Update::Merged, Update::Merged, Update::Missing];
    assert_eq!(store.make_due(&asked), Ok(expected));
    assert_eq!(backlog(&store), [(2, false), (4, false)]);
    store.update_score(id(2), &grade(Some(1))).unwrap();
    assert_eq!(store.get(id(2)).unwrap().unwrap().score(), Some(1));
    check_whole(&store, 3, 0);
}

/// Checks A's and B's engrams after these comparisons, and whether one is still due.
#[track_caller]
fn check_compared(
    said: &[(Option<RespondentId>, Option<&str>)],
    expected: (Option<Option<&str>>, [Option<bool>; 2], bool),
) {
    let home = Home::new();
    let store = home.open();
    store.remember(Engram { pairwise_winner: None, ..engram(2) }, None).unwrap();
    store.remember(Engram { due: Some(Due { comparison: true, ..Due::default() }), ..engram(3) }, None).unwrap();
    for (winner, failure) in said {
        let judging = Judging { judge: "j".into(), failure: failure.map(str::to_owned), ..Judging::default() };
        let (reason, log_odds) = ("It is shorter.".to_owned(), 0.75);
        let preference =
            Preference { winner: *winner, log_odds, consistent: true, reason, judging, ..Preference::default() };
        assert_eq!(store.annotate_pairwise(&comparison(2, 3, preference)), Ok([Update::Merged; 2]));
    }
    let [a, b] = [2, 3].map(|number| store.get(id(number)).unwrap().unwrap());
    let compared = |with, failure: Option<&str>| Compared {
        with: id(with),
        log_odds: 0.75,
        consistent: true,
        reason: "It is shorter.".into(),
        jury: Vec::new(),
        judge: "j".into(),
        self_graded: false,
        method: JudgingMethod::Prompted,
        failure: failure.map(str::to_owned),
    };
    let stands = [3, 2].map(|with| expected.0.map(|failure| compared(with, failure)));
    assert_eq!([a.compared, b.compared], stands);
    assert_eq!([a.pairwise_winner, b.pairwise_winner], expected.1);
    assert_eq!((b.due.is_some(), backlog(&store).len()), (expected.2, usize::from(expected.2)));
    assert_eq!(store.statistics(Whose::Everyones).unwrap().comparisons_due, u64::from(expected.2));
    check_whole(&store, 2, 0);
}

#[test]
fn a_comparison_stands_on_both_engrams_and_a_tie_is_not_nothing() {
    const A: RespondentId = RespondentId::A;
    const B: RespondentId = RespondentId::B;
    check_compared(&[], (None, [None, None], true));
    check_compared(&[(Some(A), None)], (Some(None), [Some(true), Some(false)], false));
    check_compared(&[(Some(B), None)], (Some(None), [Some(false), Some(true)], false));
    check_compared(&[(None, None)], (Some(None), [None, None], false));
    check_compared(&[(None, Some("timeout"))], (None, [None, None], true));
    check_compared(&[(None, Some("timeout")), (Some(A), None)], (Some(None), [Some(true), Some(false)], false));
    check_compared(&[(None, Some(ALONE))], (Some(Some(ALONE)), [None, None], false));
    check_compared(&[(None, Some(NO_VERDICT))], (None, [None, None], true));
    check_compared(&[(None, Some(NO_VERDICT)); 2], (Some(Some(NO_VERDICT)), [None, None], false));
}

#[test]
fn who_graded_an_answer_holds_it_until_it_is_compared() {
    let home = Home::new();
    let store = home.open();
    let holder = Holder::new(&store).unwrap();
    store.remember_exchange(due(3), None, None, Some(holder.id())).unwrap();
    store.update_score(id(3), &grade(Some(4))).unwrap();
    assert_eq!(backlog(&store), [(3, true)]);
    store.update_score(id(3), &unscored("timeout")).unwrap();
    assert_eq!(backlog(&store), [(3, true)]);
    let judging = Judging::failed("timeout");
    store.annotate_pairwise(&comparison(2, 3, Preference { judging, ..Preference::default() })).unwrap();
    assert_eq!(backlog(&store), [(3, false)]);
    assert_eq!(holder.claim_next().unwrap().map(|engram| engram.query_id), Some(id(3)));
    store.update_score(id(3), &unscored(SESSION_CLOSED)).unwrap();
    assert_eq!(backlog(&store), [(3, false)], "who has left compares nothing");
}

/// A process that claims an answer and is killed.
#[test]
#[ignore = "is the process that the test beside it kills"]
fn child() {
    let Ok(folder) = std::env::var("HONE_TEST_FOLDER") else { return };
    let options = MemoryOptions { url: std::env::var("HONE_TEST_URL").ok(), ..short_lease() };
    let store = MemoryStore::open(Path::new(&folder), options).unwrap();
    let holder = Holder::new(&store).unwrap();
    say(&format!("claimed {}", holder.claim_next().unwrap().is_some()));
    std::thread::park();
    mem::forget(holder);
}

fn short_lease() -> MemoryOptions {
    MemoryOptions { lease: Duration::from_secs(3), ..MemoryOptions::default() }
}

#[test]
fn a_claim_lasts_as_long_as_its_process_and_little_longer() {
    let home = Home::new();
    let store = home.open_with(short_lease());
    store.remember(due(2), None).unwrap();
    let name = format!("{}::child", module_path!().split_once("::").unwrap().1);
    let variables: Vec<_> = home.url().into_iter().map(|url| ("HONE_TEST_URL", url)).collect();
    let mut child = start_child(home.folder.path(), &name, &variables);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "claimed true" {}
    // The pause is tested: it is twice as long as the lease, which is renewed meanwhile.
    std::thread::sleep(2 * short_lease().lease);
    assert_eq!(backlog(&store), [(2, true)]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the claim has expired", || backlog(&store) == [(2, false)]);
    let holder = Holder::new(&store).unwrap();
    assert_eq!(holder.claim_next().unwrap().map(|engram| engram.query_id), Some(id(2)));
}
