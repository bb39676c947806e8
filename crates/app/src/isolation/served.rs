//! The same question of a running server, as those see it who have its keys: does the holder of one key learn what was asked
//! with another?
//!
//! Every request has a secret, and is made with one of the keys: alone, then together with the others and beside some whose
//! clients leave. The answers must be equal to the bit. Afterwards the holder of each key looks wherever the server tells
//! something (answers, memory, conversations, events, figures), and must not find another's secret; its identifiers must name
//! nothing for others; and a prompt that was asked with another key must not be counted as cached, nor answered sooner, than
//! one that nobody has asked.

mod client;
mod timing;

use std::thread;

use serde::Serialize;
use serde_json::{Value, json};

use self::client::{Answered, Server};
use self::timing::Timing;
use super::{ANSWER_TOKENS, EVENTS_BEFORE_CANCELLING, note, secret};

/// How many requests are answered at the same time.
const REQUESTS: usize = 8;
/// How often.
const ROUNDS: usize = 3;
/// Where a server tells what it knows; `{search}` finds what was asked.
const PLACES: [&str; 11] = [
    client::MEMORY,
    "/hone/v1/memory?limit=200&search=the+code+is+for+the+door",
    "/hone/v1/conversations",
    "/hone/v1/conversations?search=code",
    "/hone/v1/report",
    "/hone/v1/critic",
    "/hone/v1/judges",
    "/hone/v1/models",
    "/hone/v1/ps",
    "/props",
    "/metrics",
];

/// What the check of a server found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedReport {
    /// How many keys were tried.
    pub keys: usize,
    /// How many requests were answered at the same time.
    pub requests: usize,
    /// How often.
    pub rounds: usize,
    /// How many requests were left by their clients meanwhile.
    pub cancelled: usize,
    /// How many answers of the server, other than those to the requests, were searched for secrets of others.
    pub searched: usize,
    /// How many pairs of prompts were timed.
    pub timed: usize,
    /// Each violation, in words; empty if the keys are isolated.
    pub failures: Vec<String>,
}

/// A request with a secret.
struct Secret {
    key: usize,
    code: String,
    body: Value,
}

/// Checks the server at `address`, a URL or a host with a port, with `keys` of it. What it asks is forgotten by the server afterwards.
///
/// # Errors
/// When there are fewer than two keys, or the server cannot be reached, refuses one, or does not answer.
pub fn check_served(address: &str, keys: &[String]) -> anyhow::Result<ServedReport> {
    anyhow::ensure!(
        keys.len() > 1,
        "keys can only be told apart if there are two: create more with `hone serve --new-key`"
    );
    let address = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let server = Server::new(&address, keys)?;
    let mut report = ServedReport { keys: keys.len(), requests: REQUESTS, rounds: ROUNDS, ..ServedReport::default() };
    report.failures.extend(server.answers_strangers()?);
    let secrets = (0..REQUESTS).map(|index| Secret::fresh(index, keys.len())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut ids: Vec<(usize, String)> = Vec::new();
    let checked = check(&server, &secrets, &mut ids, &mut report);
    let forgotten = forget(&server, &secrets, &ids);
    checked.and(forgotten)?;
    Ok(report)
}

fn check(
    server: &Server,
    secrets: &[Secret],
    ids: &mut Vec<(usize, String)>,
    report: &mut ServedReport,
) -> anyhow::Result<()> {
    let mut keep = |secret: &Secret, answered: &Answered| ids.push((secret.key, answered.id.clone()));
    let mut alone = Vec::new();
    for secret in secrets {
        let answered = server.ask(secret.key, &secret.body)?;
        keep(secret, &answered);
        alone.push(answered);
    }
    for _ in 0..ROUNDS {
        let (together, n_left) = all_at_once(server, secrets)?;
        report.cancelled += n_left;
        for (index, answered) in together.iter().enumerate() {
            keep(&secrets[index], answered);
            if answered.choices != alone[index].choices {
                report
                    .failures
                    .push(format!("request {index} got another answer, or other log-probabilities, beside others"));
            }
            report.failures.extend(found(secrets, secrets[index].key, &answered.choices.to_string(), || {
                format!("the answer to request {index}")
            }));
        }
    }
    look(server, secrets, report)?;
    report.failures.extend(server.known_to_others(ids)?);
    let timing = Timing::take(server, ids)?;
    report.timed = timing.pairs();
    report.failures.extend(timing.failures());
    Ok(())
}

/// The answers to all requests, made at the same time, and how many others were left meanwhile.
fn all_at_once(server: &Server, secrets: &[Secret]) -> anyhow::Result<(Vec<Answered>, usize)> {
    thread::scope(|scope| {
        let asked: Vec<_> =
            secrets.iter().map(|secret| scope.spawn(move || server.ask(secret.key, &secret.body))).collect();
        let left: Vec<_> = secrets
            .iter()
            .map(|secret| scope.spawn(move || server.leave(secret.key, &secret.body, EVENTS_BEFORE_CANCELLING)))
            .collect();
        let n_left = left.into_iter().filter_map(|thread| thread.join().ok()).filter(|has_left| *has_left).count();
        let answers = asked.into_iter().map(|thread| thread.join().expect("no request panics"));
        Ok((answers.collect::<anyhow::Result<_>>()?, n_left))
    })
}

/// Searches what the server tells each key for secrets of others.
fn look(server: &Server, secrets: &[Secret], report: &mut ServedReport) -> anyhow::Result<()> {
    for key in 0..report.keys {
        let mut told: Vec<(&str, String)> = vec![("/hone/v1/events", server.events(key)?)];
        for place in PLACES {
            // A place that this server does not have, or refuses, tells nothing.
            told.push((place, server.get(key, place)?.1));
        }
        for (place, text) in told {
            report.searched += 1;
            report.failures.extend(found(secrets, key, &text, || format!("{place}, asked with key {},", key + 1)));
        }
    }
    Ok(())
}

/// Lets the server forget what was asked: what its answers name, and the second answers, which they do not.
fn forget(server: &Server, secrets: &[Secret], ids: &[(usize, String)]) -> anyhow::Result<()> {
    ids.iter().try_for_each(|(key, id)| server.forget(*key, id))?;
    for (key, asked) in server.remembered()? {
        if secrets.iter().any(|secret| secret.key == key && asked.query.contains(&secret.code)) {
            server.forget(key, &asked.query_id)?;
        }
    }
    Ok(())
}

/// The secrets of other keys in a text.
fn found(secrets: &[Secret], key: usize, text: &str, place: impl Fn() -> String) -> Vec<String> {
    let of_others = secrets.iter().enumerate().filter(|(_, secret)| secret.key != key && text.contains(&secret.code));
    of_others.map(|(index, _)| format!("{} has the secret of request {index}", place())).collect()
}

impl Secret {
    /// The request of this number. Some are sampled, some held to a form, some have two answers.
    fn fresh(index: usize, n_keys: usize) -> anyhow::Result<Secret> {
        let code = secret()?;
        let mut body = json!({
            "messages": [{"role": "user", "content": note(index, code)}],
            "temperature": if index.is_multiple_of(2) { 0.0 } else { 0.8 },
            "seed": index,
            "max_tokens": ANSWER_TOKENS,
            "logprobs": true,
            "top_logprobs": 2,
        });
        if index.is_multiple_of(3) {
            let schema =
                json!({"type": "object", "properties": {"purpose": {"type": "string"}}, "required": ["purpose"]});
            body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "use", "schema": schema}});
        }
        if index % 4 == 3 {
            body["n"] = json!(2);
        }
        Ok(Secret { key: index % n_keys, code: code.to_string(), body })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Answers every request to chat with all that it was ever asked, whoever asks.
    fn answer(mut stream: TcpStream, asked: &Mutex<String>) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim().to_lowercase();
            length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut asked = asked.lock().unwrap();
        let body = String::from_utf8_lossy(&body);
        let cached = if asked.contains(&*body) { 100 } else { 0 };
        asked.push_str(&body);
        let choices = json!([{"message": {"content": *asked}}]);
        let said = json!({
            "choices": choices,
            "hone": {"query_id": "q"},
            "usage": {"prompt_tokens_details": {"cached_tokens": cached}},
        });
        let said = said.to_string();
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{said}", said.len())
    }

    #[test]
    fn a_server_that_tells_everybody_everything_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(String::new()));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let asked = Arc::clone(&asked);
                thread::spawn(move || answer(stream, &asked));
            }
        });
        let keys = ["one".to_owned(), "two".to_owned()];
        let report = check_served(&address, &keys).unwrap();
        for expected in [
            "without a key is answered",
            "request 0 got another answer",
            "the answer to request 1 has the secret of request 0",
            "/metrics, asked with key 1, has the secret of request 1",
            "/hone/v1/events, asked with key 2, has the secret of request 0",
            "names something for key 2",
            "cached tokens",
        ] {
            assert!(report.failures.iter().any(|failure| failure.contains(expected)), "{expected}: {report:#?}");
        }
        assert!(check_served(&address, &keys[..1]).unwrap_err().to_string().contains("--new-key"));
    }
}
