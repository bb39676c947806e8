//! Work that was given up, for a person to look at.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use hone_protocol::{Envelope, Timestamp};
use serde::Serialize;

use crate::connection::{DEAD, Fleet, Server, WORK, unusable};
use crate::error::FleetError;
use crate::requests::{HOME, envelope_of};

/// The header that says why work was given up.
const REASON: &str = "Hone-Reason";
/// The header that names the subject that it came from.
const SUBJECT: &str = "Hone-Subject";
/// How long the next of the messages is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A piece of work that was given up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadWork {
    /// Its number in the stream.
    pub number: u64,
    /// What kind of work it is.
    pub role: String,
    /// When it was given up.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// The home that asked.
    pub home: String,
    /// What was to be worked on, if this version can read it.
    pub envelope: Option<Envelope>,
}

/// Puts a piece of work with the dead.
pub(crate) async fn bury(server: &Server, role: &str, message: &Message, reason: &str) -> Result<(), FleetError> {
    let mut headers = HeaderMap::new();
    let home = message.headers.as_ref().and_then(|headers| headers.get(HOME));
    home.into_iter().for_each(|home| headers.insert(HOME, home.clone()));
    headers.insert(REASON, one_line(reason).as_str());
    headers.insert(SUBJECT, message.subject.as_str());
    let publish = PublishMessage::build().headers(headers).payload(message.payload.clone());
    let failed = |error: &dyn std::error::Error| unusable(DEAD, error);
    let sent = server.jetstream.send_publish(format!("hone.dead.{role}"), publish).await;
    sent.map_err(|error| failed(&error))?.await.map(drop).map_err(|error| failed(&error))
}

/// A header is one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Fleet {
    /// All work that was given up, the oldest first.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn dead(&self) -> Result<Vec<DeadWork>, FleetError> {
        let found = self.block_on(messages(&self.server))?;
        Ok(found.iter().map(dead_of).collect())
    }

    /// Asks for all work again that was given up; returns how much that was.
    ///
    /// # Errors
    /// When the server cannot be used; what was not asked again stays with the dead.
    pub fn retry_dead(&self) -> Result<usize, FleetError> {
        self.block_on(async {
            let failed = |error: &dyn std::error::Error| unusable(WORK, error);
            let stream = self.server.jetstream.get_stream(DEAD).await.map_err(|error| failed(&error))?;
            let found = messages(&self.server).await?;
            for message in &found {
                let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
                let (Some(subject), Some(home)) = (header(SUBJECT), header(HOME)) else { continue };
                let publish = PublishMessage::build().payload(message.payload.clone()).header(HOME, home.clone());
                let sent = self.server.jetstream.send_publish(subject.to_string(), publish).await;
                sent.map_err(|error| failed(&error))?.await.map_err(|error| failed(&error))?;
                let number = message.info().map_err(|error| failed(&*error))?.stream_sequence;
                stream.delete_message(number).await.map_err(|error| failed(&error))?;
            }
            Ok(found.len())
        })
    }
}

async fn messages(server: &Server) -> Result<Vec<Message>, FleetError> {
    let failed = |error: &dyn std::error::Error| unusable(DEAD, error);
    let stream = server.jetstream.get_stream(DEAD).await.map_err(|error| failed(&error))?;
    let n_messages = stream.get_info().await.map_err(|error| failed(&error))?.state.messages;
    let config = OrderedConfig { deliver_policy: DeliverPolicy::All, ..OrderedConfig::default() };
    let consumer = stream.create_consumer(config).await.map_err(|error| failed(&error))?;
    let mut coming = consumer.messages().await.map_err(|error| failed(&error))?;
    let mut found = Vec::new();
    while (found.len() as u64) < n_messages {
        match tokio::time::timeout(PATIENCE, coming.next()).await {
            Ok(Some(message)) => found.push(message.map_err(|error| failed(&error))?),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(found)
}

fn dead_of(message: &Message) -> DeadWork {
    let header = |name: &str| {
        let value = message.headers.as_ref().and_then(|headers| headers.get(name));
        value.map(ToString::to_string).unwrap_or_default()
    };
    let (number, at) = message.info().map_or((0, 0), |info| (info.stream_sequence, info.published.unix_timestamp()));
    DeadWork {
        number,
        role: message.subject.rsplit('.').next().unwrap_or_default().to_owned(),
        at: Timestamp(u64::try_from(at).unwrap_or_default() * 1000),
        reason: header(REASON),
        home: header(HOME),
        envelope: envelope_of(&message.payload),
    }
}
