//! Asks a server over HTTP with several keys.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hone_models::{Messenger, Posted};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long to wait for the server to send something.
const PATIENCE: Duration = Duration::from_secs(600);
/// The silence after which a stream of events counts as complete.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest time for which such a stream is read.
const LONGEST_READING: Duration = Duration::from_secs(10);
/// How often an overloaded server is asked again, and after how long.
const TRIES: usize = 60;
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum bytes read of an answer.
const LONGEST: u64 = 64 << 20;

/// The latest events.
pub(super) const EVENTS: &str = "/hone/v1/events?last=1000";
/// The latest memories.
pub(super) const MEMORY: &str = "/hone/v1/memory?limit=200";
const CHAT: &str = "/v1/chat/completions";

/// A server and its keys.
pub(super) struct Server {
    messenger: Messenger,
    /// Gives up on a silent stream.
    impatient: Messenger,
    keys: Vec<String>,
}

/// A question that the server remembers.
#[derive(Deserialize)]
pub(super) struct Remembered {
    pub(super) query_id: String,
    #[serde(default)]
    pub(super) query: String,
}

#[derive(Default, Deserialize)]
struct Memories {
    #[serde(default)]
    engrams: Vec<Remembered>,
}

/// The answer to a request.
pub(super) struct Answered {
    pub(super) id: String,
    /// Every choice with its log-probabilities.
    pub(super) choices: Value,
    /// The number of prompt tokens that the server reports as cached.
    pub(super) cached: u64,
    pub(super) duration: Duration,
}

impl Server {
    pub(super) fn new(address: &str, keys: &[String]) -> anyhow::Result<Server> {
        let (scheme, host) = address.split_once("://").unwrap_or(("http", address));
        ensure!(!host.trim_end_matches('/').contains('/'), "{address}: name a server without a path");
        let address = format!("{scheme}://{host}");
        let messenger = |patience| Messenger::new(&address, patience).map_err(anyhow::Error::msg);
        Ok(Server { messenger: messenger(PATIENCE)?, impatient: messenger(SILENCE)?, keys: keys.to_vec() })
    }

    /// Failures if requests without a key, or with a wrong one, are answered.
    pub(super) fn answers_strangers(&self) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        for (who, key) in [("without a key", None), ("with a wrong key", Some("hone-isolation-check"))] {
            if send(&self.messenger, key, "GET", "/v1/models", None)?.status == 200 {
                failures.push(format!("a request {who} is answered: nothing tells the clients of this server apart"));
            }
        }
        Ok(failures)
    }

    /// Asks with a key, and again if the server is overloaded.
    pub(super) fn ask(&self, key: usize, body: &Value) -> anyhow::Result<Answered> {
        let mut tries = 0;
        loop {
            let begun = Instant::now();
            let (status, text) = self.read(key, "POST", CHAT, Some(body))?;
            let duration = begun.elapsed();
            tries += 1;
            match status {
                200 => return Answered::read(&text, duration),
                429 | 503 if tries < TRIES => thread::sleep(PAUSE),
                _ => bail!("the server answers {status} to a question with key {}: {}", key + 1, text.trim()),
            }
        }
    }

    /// Requests a stream with a key, and leaves after a few events. Returns whether the answer had begun.
    pub(super) fn leave(&self, key: usize, body: &Value, after: usize) -> bool {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let body = body.to_string();
        let Ok(mut posted) = send(&self.messenger, Some(&self.keys[key]), "POST", CHAT, Some(&body)) else {
            return false;
        };
        let mut bytes = [0; 256];
        let has_begun = (0..after).all(|_| posted.body.read(&mut bytes).is_ok_and(|n_read| n_read > 0));
        posted.status == 200 && has_begun
    }

    /// The server's answer at a path.
    pub(super) fn get(&self, key: usize, path: &str) -> anyhow::Result<(u16, String)> {
        self.read(key, "GET", path, None)
    }

    /// The latest events. Their stream does not end: it is read until it falls silent, or for long enough.
    pub(super) fn events(&self, key: usize) -> anyhow::Result<(u16, String)> {
        let Posted { status, mut body, .. } = send(&self.impatient, Some(&self.keys[key]), "GET", EVENTS, None)?;
        let (begun, mut bytes, mut part) = (Instant::now(), Vec::new(), vec![0; 1 << 16]);
        while begun.elapsed() < LONGEST_READING && bytes.len() < LONGEST as usize {
            match body.read(&mut part) {
                Ok(n_read) if n_read > 0 => bytes.extend_from_slice(&part[..n_read]),
                _ => break,
            }
        }
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Failures for identifiers of answers that name something for another key than the asker's.
    pub(super) fn known_to_others(&self, ids: &[(usize, String)]) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        for (owner, id) in ids {
            let other = (owner + 1) % self.keys.len();
            for path in ["/hone/v1/memory", "/hone/v1/critique"] {
                if self.get(other, &format!("{path}/{id}"))?.0 == 200 {
                    let (owner, other) = (owner + 1, other + 1);
                    failures.push(format!("{path}/{id}, asked with key {owner}, names something for key {other}"));
                }
            }
        }
        Ok(failures)
    }

    /// Asks a question with each key for a response that is kept; failures if another key is shown it.
    pub(super) fn responses_known_to_others<'a>(
        &self,
        questions: impl Iterator<Item = (usize, &'a str)>,
    ) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        for (owner, question) in questions.take(self.keys.len()) {
            let body = json!({"input": question, "max_output_tokens": 1});
            let (status, text) = self.read(owner, "POST", "/v1/responses", Some(&body))?;
            let id = serde_json::from_str::<Value>(&text).ok().and_then(|said| said["id"].as_str().map(str::to_owned));
            let id = id.with_context(|| format!("the server answers {status} to /v1/responses: {}", text.trim()))?;
            let path = format!("/v1/responses/{id}");
            let other = (owner + 1) % self.keys.len();
            if self.get(other, &path)?.0 == 200 {
                let (owner, other) = (owner + 1, other + 1);
                failures.push(format!("{path}, asked with key {owner}, names something for key {other}"));
            }
            self.delete(owner, &path)?;
        }
        Ok(failures)
    }

    /// Makes the server forget an answer.
    pub(super) fn forget(&self, key: usize, id: &str) -> anyhow::Result<()> {
        self.delete(key, &format!("/hone/v1/memory/{id}"))
    }

    fn delete(&self, key: usize, path: &str) -> anyhow::Result<()> {
        match self.read(key, "DELETE", path, None)? {
            (200 | 404, _) => Ok(()),
            (status, text) => bail!("the server answers {status} when it is to forget {path}: {}", text.trim()),
        }
    }

    /// The latest memories of each key.
    pub(super) fn remembered(&self) -> anyhow::Result<Vec<(usize, Remembered)>> {
        let mut all = Vec::new();
        for key in 0..self.keys.len() {
            let (_, text) = self.get(key, MEMORY)?;
            let Memories { engrams } = serde_json::from_str(&text).unwrap_or_default();
            all.extend(engrams.into_iter().map(|engram| (key, engram)));
        }
        Ok(all)
    }

    fn read(&self, key: usize, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, String)> {
        let body = body.map(Value::to_string);
        let posted = send(&self.messenger, Some(&self.keys[key]), method, path, body.as_deref())?;
        let mut bytes = Vec::new();
        posted.body.take(LONGEST).read_to_end(&mut bytes).with_context(|| format!("the answer to {path} broke off"))?;
        Ok((posted.status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Answered {
    fn read(text: &str, duration: Duration) -> anyhow::Result<Answered> {
        let answer: Value = serde_json::from_str(text).context("the server's answer is not JSON")?;
        let id = answer["hone"]["query_id"]
            .as_str()
            .context("the server is not `hone serve`: its answer has no query_id")?
            .to_owned();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
        Ok(Answered { id, choices: answer["choices"].clone(), cached, duration })
    }
}

fn send(
    messenger: &Messenger,
    key: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&str>,
) -> anyhow::Result<Posted> {
    let authorization = key.map(|key| format!("Bearer {key}"));
    let headers = [("content-type", "application/json")];
    let headers = headers.into_iter().chain(authorization.iter().map(|value| ("authorization", value.as_str())));
    messenger.send(method, path, headers, body).map_err(anyhow::Error::msg)
}
