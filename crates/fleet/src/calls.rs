//! Work whose result somebody waits for now: it comes in pieces, as they arise, to a subject of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, Message, Subscriber};
use crossbeam_channel::{Receiver, Sender, unbounded};
use futures_util::StreamExt;
use hone_protocol::EnvelopeId;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::caller::{ASK, ATTEMPT, INBOX, NUMBER};
use crate::connection::{Fleet, Server, WORK, unusable};
use crate::error::FleetError;
use crate::requests::{GIVEN_UP, LONGEST, PAUSE, Unsent};
use crate::roster::Roster;
use crate::route::{Route, Urgency};

/// How long after the last words of a worker it counts as lost: it asks every second whether somebody waits.
const SILENCE: Duration = Duration::from_secs(8);
/// How often it is looked whether work that nobody has begun is still there, and somebody to do it.
const LOOK: Duration = Duration::from_secs(3);
/// How long the server may be away before a call is given up that nobody has begun.
const PATIENCE: Duration = Duration::from_secs(15);

/// A piece of what comes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next part.
    Part {
        /// Which worker made it: a later one begins anew.
        attempt: u32,
        /// Its number within the attempt, from 0.
        number: u64,
        /// What the worker sent.
        content: Vec<u8>,
    },
    /// Nothing more comes; asking again may help.
    Lost(String),
    /// Nothing more comes.
    GivenUp(String),
}

/// Work that somebody waits for. Dropping it ends it: its worker hears that nobody listens.
pub struct Call {
    pieces: Receiver<Piece>,
    task: AbortHandle,
}

impl Call {
    /// Its pieces.
    pub fn pieces(&self) -> &Receiver<Piece> {
        &self.pieces
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    /// Asks for work of a role with a model that the roster has.
    ///
    /// # Errors
    /// When the request is too long.
    pub fn call(
        &self,
        roster: &Arc<Roster>,
        offer: (&'static str, &str),
        urgency: Urgency,
        content: Vec<u8>,
    ) -> Result<Call, Unsent> {
        if content.len() > LONGEST {
            return Err(Unsent::TooLong);
        }
        let (sender, pieces) = unbounded();
        let (role, model) = offer;
        let asked = Asked {
            server: self.server.clone(),
            roster: Arc::clone(roster),
            role,
            model: model.to_owned(),
            subject: Route::to_model(role, model).subject(urgency),
            content,
            sender,
        };
        let task = self.handle().spawn(asked.run()).abort_handle();
        Ok(Call { pieces, task })
    }
}

/// A call on its way.
struct Asked {
    server: Server,
    roster: Arc<Roster>,
    role: &'static str,
    model: String,
    subject: String,
    content: Vec<u8>,
    sender: Sender<Piece>,
}

impl Asked {
    async fn run(mut self) {
        let last = self.follow().await.unwrap_or_else(|error| Piece::GivenUp(error.to_string()));
        // Whoever waited may have gone.
        let _ = self.sender.send(last);
    }

    /// Sends the request and passes the pieces on; returns why no more come.
    async fn follow(&mut self) -> Result<Piece, FleetError> {
        let client = self.server.jetstream.client();
        let inbox = client.new_inbox();
        let mut coming = client.subscribe(inbox.clone()).await.map_err(|error| unusable(WORK, &error))?;
        let Some(place) = self.send(&inbox).await? else {
            return Ok(Piece::GivenUp("the NATS server cannot be reached".to_owned()));
        };
        if let Some(last) = self.wait_for_worker(&client, &mut coming, place).await {
            return Ok(last);
        }
        loop {
            match tokio::time::timeout(SILENCE, coming.next()).await {
                Ok(Some(message)) => {
                    if let Some(last) = self.pass_on(&client, message).await {
                        return Ok(last);
                    }
                }
                Ok(None) => return Ok(Piece::Lost("the connection to the NATS server has ended".to_owned())),
                Err(_) => return Ok(Piece::Lost("the worker that answered is not heard of any more".to_owned())),
            }
        }
    }

    /// Puts the request into the stream; returns its number there, or `None` if the server is away.
    async fn send(&self, inbox: &str) -> Result<Option<u64>, FleetError> {
        let id = EnvelopeId::fresh().to_string();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let sending = async {
                self.server.connected().await;
                let message =
                    PublishMessage::build().payload(self.content.clone().into()).message_id(&id).header(INBOX, inbox);
                let sent = self.server.jetstream.send_publish(self.subject.clone(), message).await;
                let failed = |error: &dyn std::error::Error| unusable(WORK, error);
                sent.map_err(|error| failed(&error))?.await.map_err(|error| failed(&error))
            };
            match tokio::time::timeout(PATIENCE, sending).await {
                Ok(Ok(place)) => return Ok(Some(place.sequence)),
                Ok(Err(error)) if self.server.is_connected() => {
                    // The server may be a new one.
                    self.server.prepare().await?;
                    tracing::debug!("a call is not sent yet: {error}");
                    sleep(PAUSE).await;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Waits until a worker is heard of; returns why none will be.
    async fn wait_for_worker(&self, client: &Client, coming: &mut Subscriber, place: u64) -> Option<Piece> {
        let mut looking = interval(LOOK);
        looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looking.tick().await;
        let mut away_since = None;
        loop {
            tokio::select! {
                message = coming.next() => match message {
                    Some(message) => return self.pass_on(client, message).await,
                    None => return Some(Piece::Lost("the connection to the NATS server has ended".to_owned())),
                },
                _ = looking.tick() => {
                    if self.server.is_connected() {
                        away_since = None;
                    } else if away_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Some(Piece::GivenUp("the NATS server cannot be reached".to_owned()));
                    } else {
                        continue;
                    }
                    if !self.roster.has(self.role, &self.model) {
                        return Some(Piece::GivenUp(format!("no worker has the model {:?} any more", self.model)));
                    }
                    if self.is_forgotten(place).await {
                        return Some(Piece::Lost("the NATS server has lost the question".to_owned()));
                    }
                }
            }
        }
    }

    /// Whether the stream has no such message any more, though no worker was heard of.
    async fn is_forgotten(&self, place: u64) -> bool {
        let Ok(stream) = self.server.jetstream.get_stream(WORK).await else { return false };
        let found = stream.get_raw_message(place).await;
        matches!(found, Err(error) if error.kind() == async_nats::jetstream::stream::RawMessageErrorKind::NoMessageFound)
    }

    /// Passes a piece on, or answers a worker who asks whether somebody waits; returns why no more come.
    async fn pass_on(&self, client: &Client, message: Message) -> Option<Piece> {
        let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
        if let Some(reply) = message.reply {
            // A worker that hears nothing asks again.
            let _ = client.publish(reply, Vec::new().into()).await;
            return None;
        }
        if let Some(reason) = header(GIVEN_UP) {
            return Some(Piece::GivenUp(reason.to_string()));
        }
        let attempt = header(ATTEMPT).and_then(|text| text.as_str().parse().ok());
        let number = header(NUMBER).and_then(|text| text.as_str().parse().ok());
        let (Some(attempt), Some(number)) = (attempt, number) else { return None };
        let _ = self.sender.send(Piece::Part { attempt, number, content: message.payload.to_vec() });
        None
    }
}

// A worker that is heard of is heard of often enough.
const _: () = assert!(ASK.as_secs() * 4 <= SILENCE.as_secs());
