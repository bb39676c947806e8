//! Asks a server over HTTP with several keys.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hone_models::{Messenger, Posted};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a server may think before it says something.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a stream of events is silent before everything is taken to be told.
const SILENCE: Duration = Duration::from_secs(2);
/// How often, and after how long, a server that has too much to do is asked again.
const TRIES: usize = 60;
const PAUSE: Duration = Duration::from_secs(1);
/// The most bytes of an answer that are read.
const LONGEST: u64 = 64 << 20;

/// The latest that is remembered.
pub(super) const MEMORY: &str = "/hone/v1/memory?limit=200";
const CHAT: &str = "/v1/chat/completions";

/// A server and keys of it.
pub(super) struct Server {
    messenger: Messenger,
    /// Gives up on what is silent.
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

/// What was answered to a request.
pub(super) struct Answered {
    pub(super) id: String,
    /// Every choice with its log-probabilities.
    pub(super) choices: Value,
    /// How many tokens of the prompt are said to have been computed before.
    pub(super) cached: u64,
    pub(super) duration: Duration,
}

impl Server {
    pub(super) fn new(address: &str, keys: &[String]) -> anyhow::Result<Server> {
        let messenger = |patience| Messenger::new(address, patience).map_err(anyhow::Error::msg);
        Ok(Server { messenger: messenger(PATIENCE)?, impatient: messenger(SILENCE)?, keys: keys.to_vec() })
    }

    /// Failures if those who have no key, or a wrong one, are answered.
    pub(super) fn answers_strangers(&self) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        for (who, key) in [("without a key", None), ("with a wrong key", Some("hone-isolation-check"))] {
            if send(&self.messenger, key, "GET", "/v1/models", None)?.status == 200 {
                failures.push(format!("a request {who} is answered: nothing tells the clients of this server apart"));
            }
        }
        Ok(failures)
    }

    /// Asks with a key, again if the server has too much to do.
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

    /// Asks with a key for a stream, and leaves after a few events. Whether the answer had begun.
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

    /// What the server tells at a path.
    pub(super) fn get(&self, key: usize, path: &str) -> anyhow::Result<(u16, String)> {
        self.read(key, "GET", path, None)
    }

    /// The latest events.
    pub(super) fn events(&self, key: usize) -> anyhow::Result<String> {
        let posted = send(&self.impatient, Some(&self.keys[key]), "GET", "/hone/v1/events?last=1000", None)?;
        let mut bytes = Vec::new();
        // The stream does not end: what has come when it falls silent is everything.
        let _ = posted.body.take(LONGEST).read_to_end(&mut bytes);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Failures for the identifiers of answers that name something for others than those who asked.
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

    /// Lets the server forget an answer.
    pub(super) fn forget(&self, key: usize, id: &str) -> anyhow::Result<()> {
        self.read(key, "DELETE", &format!("/hone/v1/memory/{id}"), None).map(drop)
    }

    /// The latest that is remembered of each key.
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
        let answer: Value = serde_json::from_str(text).context("the server's answer is no JSON")?;
        let id = answer["hone"]["query_id"].as_str().context("what answers is no hone serve")?.to_owned();
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
