//! Many clients at once, each with its own connection to the agents.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::RecvTimeoutError;
use hone_agents::{Asker, Exchange, Expected, TooSlow};
use hone_protocol::scripted::Script;
use hone_protocol::{AnswerOptions, GenerateRequest, Query, RespondentId, SamplingOptions, SessionId, Subject};

use super::stage::{MODEL, PATIENCE, Plan, Stage, messages_of};

const COMPARED: Expected = Expected { grades: true, respondent_b: true };

fn query(text: &str) -> Query {
    Query {
        query: text.to_owned(),
        history: Vec::new(),
        model: MODEL.to_owned(),
        sampling: SamplingOptions::default(),
        max_tokens: None,
        stop: Vec::new(),
        options: AnswerOptions::default(),
    }
}

/// Echoes the question, in as many pieces as it has words.
fn echo(request: &GenerateRequest) -> Script {
    let question = &messages_of(request).last().unwrap().content;
    Script::saying(&question.split_inclusive(' ').collect::<Vec<_>>())
}

/// The number of messages that all clients of a test have received. Every message is written to the disk before the
/// next one, so how long one client waits for its turn depends on the disk and on all others. A test has failed only if
/// no client receives anything.
#[derive(Default)]
struct Progress(AtomicUsize);

impl Progress {
    /// Receives all messages of an exchange, which must be of its own session alone.
    #[track_caller]
    fn follow(&self, asker: &Asker, session: SessionId, mut exchange: Exchange) -> Exchange {
        let mut n_heard = self.0.load(Ordering::Relaxed);
        while !exchange.is_complete(asker.expected()) {
            match asker.heard().recv_timeout(PATIENCE) {
                Ok(envelope) => {
                    self.0.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(envelope.session_id, session, "another client's {} was heard", envelope.subject());
                    exchange.take(&envelope);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let n_heard_before = std::mem::replace(&mut n_heard, self.0.load(Ordering::Relaxed));
                    assert!(n_heard > n_heard_before, "nobody hears anything: {n_heard} messages were heard before");
                }
                Err(RecvTimeoutError::Disconnected) => panic!("{}", asker.too_slow()),
            }
        }
        exchange
    }
}

fn follow(asker: &Asker, session: SessionId, exchange: Exchange) -> Exchange {
    Progress::default().follow(asker, session, exchange)
}

fn answer_of(exchange: &Exchange, respondent: RespondentId) -> &str {
    &exchange.reply(respondent).response.as_ref().unwrap().answer
}

#[test]
fn two_hundred_clients_hear_exactly_their_own() {
    let mut stage = Plan::answering(echo).with_b().start();
    let progress = &Progress::default();
    std::thread::scope(|scope| {
        for client in 0..200 {
            let mut asker = Asker::new(&stage.bus, &format!("client {client}"), COMPARED);
            scope.spawn(move || {
                let session = SessionId::fresh();
                for number in 0..3 {
                    let question = format!("question {number} of client {client}");
                    let exchange = asker.ask(session, query(&question));
                    let exchange = progress.follow(&asker, session, exchange);
                    for respondent in [RespondentId::A, RespondentId::B] {
                        assert_eq!(answer_of(&exchange, respondent), question);
                        assert!(exchange.reply(respondent).grade.is_some());
                    }
                }
            });
        }
    });
    let heard = stage.stop();
    let closed = heard.iter().filter(|envelope| envelope.subject() == Subject::SessionClosed).count();
    assert_eq!(closed, 200, "every client that leaves closes its conversation");
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_costs_the_others_nothing() {
    let stage = Plan::answering(echo).start();
    let alone = Expected { grades: true, respondent_b: false };
    let (mut slow, mut quick) = (Asker::with_capacity(&stage.bus, "slow", alone, 8), new(&stage, "quick", alone));
    let [slow_session, quick_session] = [SessionId::fresh(), SessionId::fresh()];
    let long = "word ".repeat(100);
    slow.ask(slow_session, query(&long));
    let exchange = quick.ask(quick_session, query(&long));
    let exchange = follow(&quick, quick_session, exchange);
    assert_eq!(answer_of(&exchange, RespondentId::A), long);
    assert_eq!(slow.heard().iter().count(), 8, "what came in time is read");
    let told = slow.too_slow();
    assert_eq!(told, TooSlow { capacity: 8 });
    assert_eq!(told.to_string(), "the reader is too slow: 8 messages were waiting for it, and it was cut off");
    let exchange = slow.ask(slow_session, query("short"));
    let exchange = follow(&slow, slow_session, exchange);
    assert_eq!(answer_of(&exchange, RespondentId::A), "short");
}

#[test]
fn a_client_that_vanishes_takes_its_questions_back() {
    let mut stage = Plan::answering(|_| Script::never_ending(&["on", " and"])).start();
    let mut asker = new(&stage, "vanishing", Expected::default());
    let session = SessionId::fresh();
    let id = asker.ask(session, query("forever?")).id();
    stage.wait_about(id, Subject::ResponseChunk);
    drop(asker);
    let ended = stage.wait_about(id, Subject::ResponseGeneration);
    assert_eq!(super::stage::response_in(&ended).finish_reason, None);
    assert!(stage.generator.was_cancelled());
}

fn new(stage: &Stage, name: &str, expected: Expected) -> Asker {
    Asker::new(&stage.bus, name, expected)
}
