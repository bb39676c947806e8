//! Work that was given up, for a person to review.

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
use crate::requests::{ASKER, Asker, REQUEST, content_of};
use crate::route::Urgency;

/// The header with the reason why work was given up.
const REASON: &str = "Hone-Reason";
/// The longest wait for the next message.
const PATIENCE: Duration = Duration::from_secs(5);

/// A job that was given up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadWork {
    /// Its number in the stream.
    pub number: u64,
    /// The kind of work.
    pub role: String,
    /// When it was given up.
    pub at: Timestamp,
    /// The reason.
    pub reason: String,
    /// The message that requested it, if this version can read it.
    pub envelope: Option<Envelope>,
}

/// Moves a job to the dead.
pub(crate) async fn bury(server: &Server, role: &str, message: &Message, reason: &str) -> Result<(), FleetError> {
    let mut headers = HeaderMap::new();
    if let Some(asker) = Asker::of(message) {
        headers.insert(ASKER, asker.to_string().as_str());
    }
    let request = message.headers.as_ref().and_then(|headers| headers.get(REQUEST));
    request.into_iter().for_each(|request| headers.insert(REQUEST, request.clone()));
    headers.insert(REASON, one_line(reason).as_str());
    let publish = PublishMessage::build().headers(headers).payload(message.payload.clone());
    let failed = |error: &dyn std::error::Error| unusable(DEAD, error);
    let sent = server.jetstream.send_publish(format!("hone.dead.{role}"), publish).await;
    sent.map_err(|error| failed(&error))?.await.map(drop).map_err(|error| failed(&error))
}

/// Makes a text fit for a header, which is a single line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Fleet {
    /// All work that was given up, oldest first.
    ///
    /// # Errors
    /// When the server cannot be used.
    pub fn dead(&self) -> Result<Vec<DeadWork>, FleetError> {
        let found = self.block_on(messages(&self.server))?;
        Ok(found.iter().map(dead_of).collect())
    }

    /// Requests all work that was given up again; returns the number of jobs.
    ///
    /// # Errors
    /// When the server cannot be used; work not requested again stays with the dead.
    pub fn retry_dead(&self) -> Result<usize, FleetError> {
        self.block_on(async {
            let failed = |error: &dyn std::error::Error| unusable(WORK, error);
            let stream = self.server.jetstream.get_stream(DEAD).await.map_err(|error| failed(&error))?;
            let mut n_asked = 0;
            for message in messages(&self.server).await? {
                let role = role_of(&message);
                let Some(asker) = Asker::of(&message).filter(|_| is_role(role)) else { continue };
                let subject = format!("hone.work.{role}.{}", Urgency::Later.as_str());
                let (number, published) = {
                    let info = message.info().map_err(|error| failed(&*error))?;
                    (info.stream_sequence, info.published.unix_timestamp_nanos())
                };
                let mut publish = PublishMessage::build()
                    // A recreated stream uses the same numbers again.
                    .message_id(format!("dead-{number}-{published}"))
                    .payload(message.payload.clone())
                    .header(ASKER, asker.to_string().as_str());
                if let Some(request) = message.headers.as_ref().and_then(|headers| headers.get(REQUEST)) {
                    publish = publish.header(REQUEST, request.clone());
                }
                let sent = self.server.jetstream.send_publish(subject, publish).await;
                sent.map_err(|error| failed(&error))?.await.map_err(|error| failed(&error))?;
                stream.delete_message(number).await.map_err(|error| failed(&error))?;
                n_asked += 1;
            }
            Ok(n_asked)
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
        role: role_of(message).to_owned(),
        at: Timestamp(u64::try_from(at).unwrap_or_default() * 1000),
        reason: header(REASON),
        envelope: content_of(&message.payload),
    }
}

/// The kind of work, which is the end of the subject.
fn role_of(message: &Message) -> &str {
    message.subject.rsplit('.').next().unwrap_or_default()
}

/// Whether a role can be a part of a subject.
fn is_role(role: &str) -> bool {
    !role.is_empty() && role.bytes().all(|byte| byte.is_ascii_lowercase())
}
