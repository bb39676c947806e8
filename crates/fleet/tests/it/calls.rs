//! Work whose result a caller waits for: its pieces arrive as they are produced, a lost process is noticed, and no work
//! is done for an absent caller.

use std::sync::Arc;

use crossbeam_channel::RecvTimeoutError;
use hone_fleet::{Call, Fleet, Job, OfferedModel, Piece, Roster, Route, Unsent, Urgency, Work, WorkerState};

use crate::nats::NatsServer;
use crate::{PATIENCE, connect, next, wait_until};

const ROLE: &str = "generate";
const MODEL: &str = "model:1b";

/// A requesting process, and a worker that reports that it has the model.
struct Pair {
    asking: Fleet,
    roster: Arc<Roster>,
    working: Fleet,
    work: Work<u64>,
}

impl Pair {
    fn new(server: &NatsServer) -> Pair {
        let (asking, working) = (connect(server), connect(server));
        let work = Work::begin(&working, Route::to_model(ROLE, MODEL), 1).unwrap();
        let roster = Arc::new(Roster::begin(&asking));
        assert!(roster.wait(PATIENCE) && !roster.has(ROLE, MODEL));
        let offered = OfferedModel { role: ROLE.to_owned(), name: MODEL.to_owned(), ..OfferedModel::default() };
        let (name, roles, models) = ("one".to_owned(), vec![ROLE.to_owned()], vec![offered]);
        working.tell(&WorkerState { name, roles, models, ..WorkerState::default() }).unwrap();
        wait_until(|| roster.has(ROLE, MODEL));
        Pair { asking, roster, working, work }
    }

    fn ask(&self, number: u64) -> Call {
        let content = number.to_string().into_bytes();
        self.asking.call(&self.roster, (ROLE, MODEL), Urgency::Now, content).unwrap()
    }
}

fn part(attempt: u32, number: u64, content: &str) -> Piece {
    Piece::Part { attempt, number, content: content.as_bytes().to_vec() }
}

fn send(job: &Job<u64>, content: &str) {
    job.caller.as_ref().unwrap().send(content.as_bytes().to_vec()).unwrap();
}

#[test]
fn pieces_come_in_order_and_of_a_worker_that_gives_back_anew() {
    let server = NatsServer::start();
    let pair = Pair::new(&server);
    assert_eq!(pair.roster.models(ROLE).len(), 1);
    let call = pair.ask(7);
    let job = next(pair.work.jobs());
    assert_eq!((job.content, job.attempt), (7, 1));
    ["a", "b"].iter().for_each(|content| send(&job, content));
    assert_eq!([next(call.pieces()), next(call.pieces())], [part(1, 0, "a"), part(1, 1, "b")]);
    drop(job);
    let job = next(pair.work.jobs());
    send(&job, "again");
    assert_eq!(next(call.pieces()), part(2, 0, "again"));
    job.end();
    wait_until(|| pair.asking.queues().unwrap().open == 0);
}

#[test]
fn who_waits_no_more_is_worked_for_no_more() {
    let server = NatsServer::start();
    let pair = Pair::new(&server);
    let call = pair.ask(1);
    let job = next(pair.work.jobs());
    drop(call);
    wait_until(|| job.caller.as_ref().unwrap().is_gone());
    // With one slot, this job waits until the first is done. Its caller is gone, so it is taken back.
    let unwanted = pair.ask(2);
    wait_until(|| pair.asking.queues().unwrap().open == 2);
    drop(unwanted);
    wait_until(|| pair.asking.queues().unwrap().open == 1);
    job.end();
    let last = pair.ask(3);
    assert_eq!(next(pair.work.jobs()).content, 3);
    drop(last);
}

#[test]
fn a_worker_that_is_lost_is_noticed() {
    let server = NatsServer::start();
    let Pair { asking, roster, working, work } = Pair::new(&server);
    let call = asking.call(&roster, (ROLE, MODEL), Urgency::Now, b"1".to_vec()).unwrap();
    let job = next(work.jobs());
    send(&job, "a");
    assert_eq!(next(call.pieces()), part(1, 0, "a"));
    // The worker falls silent, like a killed process.
    std::mem::forget(job);
    drop((work, working));
    assert!(matches!(next(call.pieces()), Piece::Lost(_)));
    assert_eq!(call.pieces().recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "nothing follows");
}

#[test]
fn what_nobody_can_do_is_given_up() {
    let server = NatsServer::start();
    let Pair { asking, roster, working, work } = Pair::new(&server);
    work.end();
    let call = asking.call(&roster, (ROLE, MODEL), Urgency::Now, b"1".to_vec()).unwrap();
    working.tell_end("one").unwrap();
    assert!(matches!(next(call.pieces()), Piece::GivenUp(reason) if reason.contains(MODEL)));
    let long = vec![b' '; 1 << 20];
    assert_eq!(asking.call(&roster, (ROLE, MODEL), Urgency::Now, long).err(), Some(Unsent::TooLong));
}

#[test]
fn a_worker_that_fails_leaves_the_work_to_another() {
    let server = NatsServer::start();
    let pair = Pair::new(&server);
    let broken = pair.work.jobs();
    let call = pair.ask(1);
    next(broken).fail("no memory");
    let sound = Work::<u64>::begin(&connect(&server), Route::to_model(ROLE, MODEL), 1).unwrap();
    // The broken worker always has room for it; on a busy machine it may get it once more.
    let job = loop {
        crossbeam_channel::select! {
            recv(broken) -> job => job.unwrap().fail("no memory"),
            recv(sound.jobs()) -> job => break job.unwrap(),
        }
    };
    assert!(job.attempt <= 3, "{}", job.attempt);
    send(&job, "a");
    assert_eq!(next(call.pieces()), part(job.attempt, 0, "a"));
    job.end();
}

#[test]
fn what_no_worker_can_do_ends_with_the_reason() {
    let server = NatsServer::start();
    let pair = Pair::new(&server);
    let call = pair.ask(1);
    let failing = std::thread::spawn({
        let jobs = pair.work.jobs().clone();
        move || jobs.iter().for_each(|job| job.fail("no memory"))
    });
    assert_eq!(next(call.pieces()), Piece::GivenUp("no memory".to_owned()));
    drop(pair);
    failing.join().unwrap();
}

#[test]
fn a_call_outlives_its_server() {
    let mut server = NatsServer::start();
    let pair = Pair::new(&server);
    let _first = pair.ask(1);
    let held = next(pair.work.jobs());
    let waiting = pair.ask(2);
    wait_until(|| pair.asking.queues().unwrap().open == 2);
    server.shut_down();
    server.resume();
    held.end();
    let job = next(pair.work.jobs());
    assert_eq!(job.content, 2);
    send(&job, "a");
    assert_eq!(next(waiting.pieces()), part(job.attempt, 0, "a"));
    // The worker has been silent since, and is still known.
    assert!(pair.roster.has(ROLE, MODEL));
    job.end();
}
