//! Not a test: a worker on a host of its own, whose judge takes a fixed time for each answer (`scripts/test.sh hosts`).

use std::env;
use std::thread::sleep;
use std::time::Duration;

use hone_fleet::{BusSettings, Fleet, FleetError, Work};
use hone_protocol::{Envelope, Grade, GradedAnswer, Judging, JudgingMethod, Payload, Response};

use crate::{ROLE, route, settings};

fn setting(name: &str) -> String {
    env::var(format!("HONE_HOSTS_{name}")).unwrap_or_else(|_| panic!("HONE_HOSTS_{name} is not set"))
}

#[test]
#[ignore = "a part of scripts/test.sh hosts"]
fn scripted_worker() {
    let bus = BusSettings { lease: setting("LEASE").parse().unwrap(), attempts: 5, ..settings(setting("BUS")) };
    let seconds = Duration::from_secs_f64(setting("SECONDS").parse().unwrap());
    // The network may be cut, and the server may be away.
    let (_fleet, work) = loop {
        match begin(&bus) {
            Ok(begun) => break begun,
            Err(_) => sleep(Duration::from_millis(100)),
        }
    };
    for job in work.jobs() {
        sleep(seconds);
        let verdict = verdict(&job.content);
        job.finish(&verdict);
    }
}

fn begin(bus: &BusSettings) -> Result<(Fleet, Work), FleetError> {
    let fleet = Fleet::connect(bus, "worker")?;
    let work = Work::begin(&fleet, route(), 1)?;
    Ok((fleet, work))
}

fn verdict(answer: &Envelope) -> Envelope {
    let Payload::ResponseGeneration(Response { query, answer: text, .. }) = answer.payload.clone() else {
        panic!("not an answer: {answer:?}")
    };
    let judging = Judging { judge: "scripted".to_owned(), method: JudgingMethod::Prompted, ..Judging::default() };
    let grade = Grade { score: Some(4), judging, ..Grade::default() };
    answer.reply(ROLE, Payload::CritiqueResult(GradedAnswer { query, answer: text, grade }))
}
