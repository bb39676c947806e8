//! Checks over HTTP that the holder of one key learns nothing about requests made with another.
//!
//! Every request has a secret, and is made with one of the keys: alone, then together with the others and with some
//! whose clients leave. The answers must be equal to the bit. Afterwards, each key searches everything that the server
//! reveals (memory, conversations, events, figures), and must not find another's secret. Identifiers of answers and
//! responses must name nothing for other keys. A prompt that was asked with another key must neither count as cached
//! nor be answered sooner than one that was never asked.

mod client;
mod timing;

use std::thread;

use anyhow::ensure;
use serde::Serialize;
use serde_json::{Value, json};

use self::client::{Answered, EVENTS, Server};
use self::timing::Timing;
use super::{ANSWER_TOKENS, EVENTS_BEFORE_CANCELLING, note};

/// The number of requests answered at the same time, unless there are more keys.
const REQUESTS: usize = 8;
/// The maximum number of keys.
const MOST_KEYS: usize = 32;
/// The number of rounds.
const ROUNDS: usize = 3;
/// The places where a server reveals its data; `search` finds the questions.
const PLACES: [&str; 12] = [
    EVENTS,
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

/// The findings of the check of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedReport {
    /// The number of keys.
    pub keys: usize,
    /// How many requests were answered at the same time.
    pub requests: usize,
    /// The number of rounds.
    pub rounds: usize,
    /// How many requests their clients left meanwhile.
    pub cancelled: usize,
    /// How many other answers of the server were searched for secrets of others.
    pub searched: usize,
    /// Places that could not be searched: the server does not have them, or refuses them to a key.
    pub unsearched: Vec<String>,
    /// How many pairs of prompts were timed.
    pub timed: usize,
    /// Each violation, in words; empty if the keys are isolated.
    pub failures: Vec<String>,
}

/// A request with a secret.
struct Secret {
    key: usize,
    code: String,
    /// The question.
    note: String,
    body: Value,
}

/// Checks the server at `address`, a URL or a host with a port, with `keys` of it. The server is then told to forget
/// the questions.
///
/// # Errors
/// When there are fewer than two keys, too many, or a duplicate, or the server cannot be reached, refuses a key, or
/// does not answer.
pub fn check_served(address: &str, keys: &[String]) -> anyhow::Result<ServedReport> {
    let n_keys = keys.len();
    ensure!(n_keys > 1, "keys can only be told apart if there are two: create more with `hone serve --new-key`");
    ensure!(n_keys <= MOST_KEYS, "there are {n_keys} keys: at most {MOST_KEYS} are tried");
    let twice = (1..n_keys).find(|index| keys[..*index].contains(&keys[*index]));
    ensure!(twice.is_none(), "key {} is there twice", twice.unwrap_or_default() + 1);
    let server = Server::new(address, keys)?;
    let requests = REQUESTS.max(n_keys);
    let mut report = ServedReport { keys: n_keys, requests, rounds: ROUNDS, ..ServedReport::default() };
    report.failures.extend(server.answers_strangers()?);
    let secrets = (0..requests).map(|index| Secret::fresh(index, n_keys)).collect::<anyhow::Result<Vec<_>>>()?;
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
                    .push(format!("request {index} got another answer, or other log-probabilities, when it was asked together with others"));
            }
            report.failures.extend(found(secrets, secrets[index].key, &answered.choices.to_string(), || {
                format!("the answer to request {index}")
            }));
        }
    }
    look(server, secrets, report)?;
    report.failures.extend(server.known_to_others(ids)?);
    report.failures.extend(server.responses_known_to_others(secrets.iter().map(|secret| (secret.key, &*secret.note)))?);
    let timing = Timing::take(server, report.keys, ids)?;
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

/// Searches the server's data, as each key sees it, for secrets of others.
///
/// # Errors
/// When a key does not even find its own secrets: not finding others would then prove nothing.
fn look(server: &Server, secrets: &[Secret], report: &mut ServedReport) -> anyhow::Result<()> {
    for key in 0..report.keys {
        let mut finds_own = false;
        for place in PLACES {
            let (status, text) = if place == EVENTS { server.events(key)? } else { server.get(key, place)? };
            if status != 200 {
                report.unsearched.push(format!("{place}, asked with key {}: {status}", key + 1));
                continue;
            }
            report.searched += 1;
            finds_own |= secrets.iter().any(|secret| secret.key == key && text.contains(&secret.code));
            report.failures.extend(found(secrets, key, &text, || format!("{place}, asked with key {},", key + 1)));
        }
        ensure!(
            finds_own,
            "key {} finds nothing of its own questions in memory or events, so that nothing follows from what it does not \
             find: {}",
            key + 1,
            report.unsearched.join("; ")
        );
    }
    Ok(())
}

/// The secrets of other keys in a text.
fn found(secrets: &[Secret], key: usize, text: &str, place: impl Fn() -> String) -> Vec<String> {
    let of_others = secrets.iter().enumerate().filter(|(_, secret)| secret.key != key && text.contains(&secret.code));
    of_others.map(|(index, _)| format!("{} has the secret of request {index}", place())).collect()
}

/// A secret of thirteen letters, which occurs nowhere else.
fn code() -> anyhow::Result<String> {
    const LETTERS: u64 = 26;
    let mut random = getrandom::u64().map_err(|error| anyhow::anyhow!("there are no random numbers: {error}"))?;
    let letter = |_| {
        let letter = b'a' + (random % LETTERS) as u8;
        random /= LETTERS;
        char::from(letter)
    };
    Ok((0..13).map(letter).collect())
}

/// Makes the server forget the questions: the answers in `ids`, and others that it remembers, such as second answers.
/// Answers that clients have left may be remembered a little later.
fn forget(server: &Server, secrets: &[Secret], ids: &[(usize, String)]) -> anyhow::Result<()> {
    ids.iter().try_for_each(|(key, id)| server.forget(*key, id))?;
    let is_of_check = |key: usize, query: &str| secrets.iter().any(|it| it.key == key && query.contains(&it.code));
    for _ in 0..ROUNDS {
        let mut remembered = server.remembered()?;
        remembered.retain(|(key, asked)| is_of_check(*key, &asked.query));
        if remembered.is_empty() {
            break;
        }
        remembered.iter().try_for_each(|(key, asked)| server.forget(*key, &asked.query_id))?;
    }
    Ok(())
}

impl Secret {
    /// The request of this number. Some are sampled, some constrained, some have two answers.
    fn fresh(index: usize, n_keys: usize) -> anyhow::Result<Secret> {
        let code = code()?;
        let note = note(index, &code);
        let mut body = json!({
            "messages": [{"role": "user", "content": note}],
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
        Ok(Secret { key: index % n_keys, code, note, body })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Answers every chat request with everything asked so far, whichever key is used.
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
            "id": "resp_q",
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
            "/hone/v1/events?last=1000, asked with key 2, has the secret of request 0",
            "/hone/v1/memory/q, asked with key 1, names something for key 2",
            "/v1/responses/resp_q, asked with key 1, names something for key 2",
            "cached tokens",
        ] {
            assert!(report.failures.iter().any(|failure| failure.contains(expected)), "{expected}: {report:#?}");
        }
        let refused = |address: &str, keys: &[String]| check_served(address, keys).unwrap_err().to_string();
        assert!(refused(&address, &keys[..1]).contains("--new-key"));
        assert!(refused(&address, &[keys[0].clone(), keys[0].clone()]).contains("key 2 is there twice"));
        assert!(refused(&format!("{address}/hone"), &keys).contains("without a path"));
    }
}
