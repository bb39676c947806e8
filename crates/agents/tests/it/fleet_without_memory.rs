//! Verdicts from other machines that come while memory's database is away.

#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
#[path = "../../../../tests/support/proxy.rs"]
mod proxy;

use std::time::Duration;

use hone_memory::{MemoryOptions, MemoryStore};
use hone_protocol::prospect::LATE;
use hone_protocol::{Grade, QueryId, Subject};

use self::postgres::PostgresServer;
use self::proxy::{Proxy, Target};
use crate::fleet::{Elsewhere, plan};
use crate::stage::{grades_of, wait_until};

#[test]
fn a_late_verdict_waits_until_memory_says_that_it_is_due() {
    let database = PostgresServer::start();
    let network = Proxy::to(Target::Socket(database.socket()));
    let graders = Elsewhere::new(Duration::ZERO);
    let mut plan = plan(&graders);
    plan.database = Some(format!("postgres://postgres@{}/postgres", network.address()));
    let mut stage = plan.start();
    let ids = ["why?", "how?"].map(|question| stage.ask(question));
    let requests = [1, 2].map(|n| graders.asked(n).0);
    let folder = tempfile::tempdir().unwrap();
    let options = MemoryOptions { url: Some(database.own_url()), ..MemoryOptions::default() };
    let elsewhere = MemoryStore::open(folder.path(), options).unwrap();
    let engram = |id: QueryId| elsewhere.get(id).unwrap();
    for id in ids {
        stage.wait_about(id, Subject::CritiqueResult);
        wait_until("memory knows that it is late", || {
            let due = engram(id).and_then(|engram| engram.due);
            due.is_some_and(|due| due.reason.as_deref() == Some(LATE))
        });
    }

    network.refuse(true);
    let [first, second] = ids;
    elsewhere.update_score(first, &Grade { score: Some(2), ..Grade::default() }).unwrap();
    requests.iter().for_each(|request| graders.grade(request, 4));
    wait_until("both verdicts have been looked at", || graders.results.1.is_empty());
    network.refuse(false);
    wait_until("the verdict that is due", || engram(second).unwrap().score() == Some(4));
    assert_eq!(engram(first).unwrap().score(), Some(2));
    let heard = stage.stop();
    assert_eq!(grades_of(&heard, first), [Err(LATE.to_owned())]);
    assert_eq!(grades_of(&heard, second), [Err(LATE.to_owned()), Ok(4)]);
}
