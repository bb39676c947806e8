//! Work over a real NATS server: everything is done once, whichever process is lost.

#![allow(clippy::unwrap_used)]

#[path = "../../../../tests/support/nats.rs"]
mod nats;

mod accounts;
mod calls;
mod hosts;
mod latency;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use hone_fleet::{BusSettings, Fleet, FleetError, Job, LONGEST, Requests, Route, Unsent, Urgency, Work, WorkerState};
use hone_protocol::{Envelope, Payload, SessionId, Stored, WorkResult};

use crate::nats::NatsServer;

const ROLE: &str = "grade";

fn route() -> Route {
    Route::of_role(ROLE)
}
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(url: String) -> BusSettings {
    BusSettings {
        url,
        credentials: PathBuf::new(),
        authority: PathBuf::new(),
        patience: 60.0,
        lease: 1.0,
        attempts: 3,
        keep_hours: 1.0,
        keep_mib: 16,
        replicas: 1,
    }
}

fn connect(server: &NatsServer) -> Fleet {
    Fleet::connect(&settings(server.url()), "test").unwrap()
}

/// A message identified by a number.
fn message(number: u64) -> Envelope {
    Envelope::new("test", SessionId::from_bits(1), Payload::MemoryStored(Stored { sequence: number }))
}

fn number_of(message: &Envelope) -> u64 {
    match message.payload {
        Payload::MemoryStored(Stored { sequence }) => sequence,
        ref other => panic!("{other:?}"),
    }
}

fn ask(requests: &Requests, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        requests.ask(&message(number), Urgency::Now).unwrap();
    }
}

fn next<T>(channel: &Receiver<T>) -> T {
    channel.recv_timeout(PATIENCE).expect("something comes")
}

/// The results, in the order of their numbers; surplus ones would arrive within a moment.
fn results(requests: &Requests, n: usize) -> Vec<u64> {
    let number = |result: WorkResult| number_of(&result.outcome.unwrap());
    let mut numbers: Vec<u64> = (0..n).map(|_| number(next(requests.results()))).collect();
    numbers.extend(requests.results().recv_timeout(Duration::from_millis(300)).map(number));
    numbers.sort_unstable();
    numbers
}

fn finish(job: Job) {
    let result = message(number_of(&job.content) + 100);
    job.finish(&result);
}

/// Ends the threads that wait for jobs, also after a failed assertion.
struct StopWhenDropped<'a>(&'a [Work]);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Work::stop);
    }
}

#[test]
fn work_is_done_once_and_every_process_hears_of_its_own() {
    let server = NatsServer::start();
    let asking = connect(&server);
    let (one, other) = (Requests::begin(&asking, route()), Requests::begin(&asking, route()));
    ask(&one, [1, 2, 3]);
    let last = message(4);
    other.ask(&last, Urgency::Now).unwrap();
    // Sending the message again requests no new work.
    other.ask(&last, Urgency::Now).unwrap();
    let workers = [connect(&server), connect(&server)];
    let work = workers.each_ref().map(|fleet| Work::begin(fleet, route(), 2).unwrap());
    std::thread::scope(|scope| {
        let _stop = StopWhenDropped(&work);
        for work in &work {
            scope.spawn(|| work.jobs().iter().for_each(finish));
        }
        assert_eq!(results(&one, 3), [101, 102, 103]);
        let result = next(other.results());
        assert_eq!((result.request, number_of(&result.outcome.unwrap())), (last.id, 104));
    });
    assert!(other.results().is_empty());
    work.into_iter().for_each(Work::end);
    assert_eq!(asking.queues().unwrap().open, 0);
}

#[test]
fn what_is_too_long_for_the_server_is_not_sent() {
    let server = NatsServer::start();
    let requests = Requests::begin(&connect(&server), route());
    let long = Envelope { sender: "x".repeat(LONGEST), ..message(1) };
    assert_eq!(requests.ask(&long, Urgency::Now), Err(Unsent::TooLong));
}

#[test]
fn urgent_work_comes_first() {
    let server = NatsServer::start();
    let fleet = connect(&server);
    let requests = Requests::begin(&fleet, route());
    for number in 1..=3 {
        requests.ask(&message(number), Urgency::Later).unwrap();
    }
    ask(&requests, [9]);
    wait_until(|| fleet.queues().unwrap().open == 4);
    let work = Work::begin(&fleet, route(), 1).unwrap();
    let order: Vec<u64> = work.jobs().iter().take(4).map(|job| (number_of(&job.content), finish(job)).0).collect();
    assert_eq!(order, [9, 1, 2, 3]);
}

#[test]
fn the_work_of_a_lost_worker_is_done_by_another() {
    let server = NatsServer::start();
    let asking = connect(&server);
    let requests = Requests::begin(&asking, route());
    ask(&requests, [1]);
    let lost = connect(&server);
    let work = Work::<Envelope>::begin(&lost, route(), 1).unwrap();
    let held = next(work.jobs());
    // The worker falls silent, like a killed process.
    std::mem::forget(held);
    drop((work, lost));
    let other = connect(&server);
    let work = Work::begin(&other, route(), 1).unwrap();
    let job = next(work.jobs());
    assert_eq!((number_of(&job.content), job.attempt), (1, 2));
    finish(job);
    assert_eq!(results(&requests, 1), [101]);
}

#[test]
fn long_work_keeps_its_lease_and_what_is_given_back_is_done_at_once() {
    let server = NatsServer::start();
    let fleet = connect(&server);
    let requests = Requests::begin(&fleet, route());
    ask(&requests, [1]);
    let (one, other) = (Work::begin(&fleet, route(), 1).unwrap(), Work::begin(&connect(&server), route(), 1).unwrap());
    let (job, rest) = crossbeam_channel::select! {
        recv(one.jobs()) -> job => (job.unwrap(), other),
        recv(other.jobs()) -> job => (job.unwrap(), one),
    };
    // Three times its lease.
    assert!(rest.jobs().recv_timeout(Duration::from_secs(3)).is_err(), "nobody else gets it");
    let begun = Instant::now();
    drop(job);
    let job = next(rest.jobs());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    finish(job);
    assert_eq!(results(&requests, 1), [101]);
}

#[test]
fn the_lease_is_that_of_who_came_first() {
    let server = NatsServer::start();
    let first = connect(&server);
    Work::<Envelope>::begin(&first, route(), 1).unwrap().end();
    // Three renewals within its own lease would be too few for the effective lease.
    let patient = Fleet::connect(&BusSettings { lease: 600.0, ..settings(server.url()) }, "test").unwrap();
    let requests = Requests::begin(&patient, route());
    let (one, other) = (Work::begin(&patient, route(), 1).unwrap(), Work::begin(&patient, route(), 1).unwrap());
    ask(&requests, [1]);
    let (job, rest) = crossbeam_channel::select! {
        recv(one.jobs()) -> job => (job.unwrap(), other),
        recv(other.jobs()) -> job => (job.unwrap(), one),
    };
    assert!(rest.jobs().recv_timeout(Duration::from_secs(3)).is_err(), "nobody else gets it");
    finish(job);
    assert_eq!(results(&requests, 1), [101]);
}

#[test]
fn what_fails_too_often_is_given_up_and_can_be_asked_for_again() {
    let server = NatsServer::start();
    let settings = BusSettings { attempts: 1, ..settings(server.url()) };
    let fleet = Fleet::connect(&settings, "test").unwrap();
    let requests = Requests::begin(&fleet, route());
    ask(&requests, [1]);
    let work = Work::begin(&fleet, route(), 1).unwrap();
    next(work.jobs()).fail("no\njudge");
    wait_until(|| fleet.queues().unwrap().dead == 1);
    let dead = fleet.dead().unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((&*dead[0].role, &*dead[0].reason), (ROLE, "no judge"));
    assert_eq!(next(requests.results()).outcome, Err("no judge".to_owned()));
    assert_eq!(dead[0].envelope.as_ref().map(number_of), Some(1));
    assert_eq!(fleet.retry_dead().unwrap(), 1);
    finish(next(work.jobs()));
    assert_eq!(results(&requests, 1), [101]);
    assert_eq!(fleet.queues().unwrap().dead, 0);
}

#[test]
fn nothing_is_lost_while_the_server_is_away() {
    let mut server = NatsServer::start();
    let url = server.url();
    server.stop();
    let unreachable = Fleet::connect(&settings(url.clone()), "test");
    assert!(matches!(unreachable, Err(FleetError::Unreachable { .. })));
    let fleet = Fleet::begin(&settings(url), "test").unwrap();
    let requests = Requests::begin(&fleet, route());
    ask(&requests, 1..=3);
    assert!(!requests.is_connected());
    server.resume();
    let working = connect(&server);
    let work = Work::begin(&working, route(), 3).unwrap();
    let jobs: Vec<Job> = (0..3).map(|_| next(work.jobs())).collect();
    server.stop();
    jobs.into_iter().for_each(finish);
    server.resume();
    assert_eq!(results(&requests, 3), [101, 102, 103]);
    // A killed server may have forgotten its deliveries, and redeliver the work.
    wait_until(|| {
        work.jobs().try_iter().for_each(finish);
        fleet.queues().is_ok_and(|queues| queues.open == 0)
    });
    assert!(requests.results().is_empty());
}

#[test]
fn a_server_that_has_lost_everything_is_used_again() {
    let mut server = NatsServer::start();
    let fleet = connect(&server);
    let requests = Requests::begin(&fleet, route());
    let work = Work::begin(&fleet, route(), 1).unwrap();
    ask(&requests, [1, 2, 3]);
    (0..3).for_each(|_| finish(next(work.jobs())));
    assert_eq!(results(&requests, 3), [101, 102, 103]);
    server.stop();
    server.forget();
    server.resume();
    wait_until(|| requests.is_connected());
    ask(&requests, [4]);
    finish(next(work.jobs()));
    assert_eq!(results(&requests, 1), [104]);
}

#[test]
fn a_worker_takes_work_again_after_the_server_hung() {
    let server = NatsServer::start();
    let fleet = connect(&server);
    let requests = Requests::begin(&fleet, route());
    let work = Work::begin(&fleet, route(), 1).unwrap();
    server.signal("STOP");
    // Longer than a request of the worker waits.
    assert!(work.jobs().recv_timeout(Duration::from_secs(8)).is_err());
    server.signal("CONT");
    ask(&requests, [1]);
    finish(next(work.jobs()));
    assert_eq!(results(&requests, 1), [101]);
}

#[test]
fn a_refused_login_is_told() {
    let server = NatsServer::start_with(&["--user", "one", "--pass", "secret"]);
    let refused = Fleet::connect(&settings(server.url()), "test").err().unwrap().to_string();
    assert!(refused.contains("uthorization"), "{refused}");
}

#[test]
fn workers_are_seen_while_they_are_there() {
    let server = NatsServer::start();
    let fleet = connect(&server);
    assert_eq!(fleet.processes().unwrap(), []);
    let state = WorkerState { name: "one-1".to_owned(), busy: 2, ..WorkerState::default() };
    fleet.tell(&state).unwrap();
    assert_eq!(fleet.processes().unwrap(), [state]);
    fleet.tell_end("one-1").unwrap();
    assert_eq!(fleet.processes().unwrap(), []);
}

#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it has not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}
