//! Not tests: the latency of a message over a NATS server on this machine (`scripts/bench.sh bus`), and the throughput
//! of eight workers compared with one.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hone_fleet::{Job, Requests, Unsent, Urgency, Work};

use crate::nats::NatsServer;
use crate::{ask, connect, finish, message, next, route};

/// Messages of a measurement.
const MESSAGES: u64 = 5_000;
/// The interval between messages: 200 a second are many answers.
const INTERVAL: Duration = Duration::from_millis(5);

/// The number of jobs for eight workers, and the duration of each.
const PIECES: u64 = 10_000;
const PIECE: Duration = Duration::from_millis(40);

#[test]
#[ignore = "measures"]
fn messages() {
    let server = NatsServer::start();
    let (asking, working) = (connect(&server), connect(&server));
    let requests = Requests::begin(&asking, route());
    let work = Work::begin(&working, route(), 8).unwrap();
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for number in 1..=MESSAGES {
        let begun = Instant::now();
        ask(&requests, [number]);
        let job = next(work.jobs());
        let arrived = Instant::now();
        finish(job);
        next(requests.results());
        there.push(arrived - begun);
        back.push(arrived.elapsed());
        std::thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
    }
    for (what, times) in [("work to a worker", &mut there), ("its result back", &mut back)] {
        times.sort_unstable();
        let quantile = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
        let (median, most) = (quantile(50), quantile(99));
        println!("{what}: median {median:.2} ms, 99th percentile {most:.2} ms of {MESSAGES} messages");
    }
}

#[test]
#[ignore = "measures"]
fn throughput() {
    let one = pieces_per_second(1, PIECES / 8);
    let eight = pieces_per_second(8, PIECES);
    let (seconds, share) = (PIECE.as_secs_f64(), eight / (8.0 * one));
    println!("pieces of {seconds} s: one worker {one:.1} a second, eight {eight:.1}, {share:.3} of eight times one");
}

#[test]
#[ignore = "measures"]
fn rate() {
    let rate = rate_of(16, 20_000, |job: Job| finish(job));
    println!("the server passes {rate:.0} pieces of work a second, with their results");
}

/// Jobs that take some time.
fn pieces_per_second(n_workers: usize, n_pieces: u64) -> f64 {
    rate_of(n_workers, n_pieces, work_on)
}

/// Jobs that workers take one at a time.
fn rate_of(n_workers: usize, n_pieces: u64, work_on: impl Fn(Job) + Copy + Send + 'static) -> f64 {
    let server = NatsServer::start();
    let requests = Requests::begin(&connect(&server), route());
    let workers: Vec<Work> = (0..n_workers).map(|_| Work::begin(&connect(&server), route(), 1).unwrap()).collect();
    let of_worker = |worker: &Work| {
        let jobs = worker.jobs().clone();
        std::thread::spawn(move || jobs.iter().for_each(work_on))
    };
    let threads: Vec<JoinHandle<()>> = workers.iter().map(of_worker).collect();
    let begun = Instant::now();
    let mut n_done = 0;
    for number in 1..=n_pieces {
        // The number of requests in flight is limited by the room for them.
        while requests.ask(&message(number), Urgency::Now) == Err(Unsent::NoRoom) {
            next(requests.results());
            n_done += 1;
        }
    }
    (n_done..n_pieces).for_each(|_| drop(next(requests.results())));
    let rate = n_pieces as f64 / begun.elapsed().as_secs_f64();
    workers.into_iter().for_each(Work::end);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    rate
}

fn work_on(job: Job) {
    std::thread::sleep(PIECE);
    finish(job);
}
