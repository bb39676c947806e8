//! Work whose result a caller waits for: it arrives in pieces, as they are produced, on a subject of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use async_nats::{Client, Message, Subscriber};
use crossbeam_channel::{Receiver, Sender, unbounded};
use futures_util::StreamExt;
use hone_protocol::EnvelopeId;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::caller::{ASK, ATTEMPT, INBOX, NUMBER};
use crate::connection::{Fleet, Server, WORK, unusable};
use crate::error::FleetError;
use crate::requests::{GIVEN_UP, LONGEST, PAUSE, Unsent};
use crate::roster::Roster;
use crate::route::{Route, Urgency};

/// A worker that has been silent for this long counts as lost: it asks every second whether the caller still waits.
pub(crate) const SILENCE: Duration = Duration::from_secs(8);
/// The interval for checking that work not yet begun is still in the stream, and that a worker for it exists.
const LOOK: Duration = Duration::from_secs(3);
/// The longest absence of the server before a call that no worker has begun is given up.
const PATIENCE: Duration = Duration::from_secs(15);

/// The reason when a call ends with its connection.
const ENDED: &str = "the connection to the NATS server has ended";

/// A piece of a call's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next part.
    Part {
        /// The attempt that made it: a later one begins anew.
        attempt: u32,
        /// Its number within the attempt, from 0.
        number: u64,
        /// The bytes that the worker sent.
        content: Vec<u8>,
    },
    /// No more pieces come; asking again may help.
    Lost(String),
    /// No more pieces come.
    GivenUp(String),
}

/// A job whose result a caller waits for. Dropping it ends the job: its worker learns that the caller is gone, and a
/// job that no worker has begun is taken back.
pub struct Call {
    pieces: Receiver<Piece>,
    _wanted: oneshot::Sender<()>,
}

impl Call {
    /// Its pieces.
    pub fn pieces(&self) -> &Receiver<Piece> {
        &self.pieces
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
        let (wanted, unwanted) = oneshot::channel();
        let (role, model) = offer;
        let asked = Asked {
            server: self.server.clone(),
            roster: Arc::clone(roster),
            role,
            model: model.to_owned(),
            subject: Route::to_model(role, model).subject(urgency),
            id: EnvelopeId::fresh().to_string(),
            content,
            sender,
            is_begun: false,
        };
        self.handle().spawn(asked.run(unwanted));
        Ok(Call { pieces, _wanted: wanted })
    }
}

/// A call in progress.
struct Asked {
    server: Server,
    roster: Arc<Roster>,
    role: &'static str,
    model: String,
    subject: String,
    id: String,
    content: Vec<u8>,
    sender: Sender<Piece>,
    /// Whether a worker has replied.
    is_begun: bool,
}

impl Asked {
    /// Sends the request and passes the pieces on, until no more come or the caller is gone.
    async fn run(mut self, unwanted: oneshot::Receiver<()>) {
        let client = self.server.jetstream.client();
        let inbox = client.new_inbox();
        let last = match client.subscribe(inbox.clone()).await {
            Ok(coming) => self.ask(&client, &inbox, coming, unwanted).await,
            Err(error) => Some(Piece::GivenUp(unusable(WORK, &error).to_string())),
        };
        // The caller may be gone.
        last.into_iter().for_each(|last| drop(self.sender.send(last)));
    }

    async fn ask(
        &mut self,
        client: &Client,
        inbox: &str,
        mut coming: Subscriber,
        unwanted: oneshot::Receiver<()>,
    ) -> Option<Piece> {
        if self.nobody_can() {
            return Some(self.given_up());
        }
        let place = match self.send(inbox).await {
            Ok(place) => place,
            Err(reason) => return Some(Piece::GivenUp(reason)),
        };
        let last = tokio::select! {
            last = self.follow(client, &mut coming, place) => Some(last),
            _ = unwanted => None,
        };
        if !self.is_begun {
            self.take_back(place).await;
        }
        last
    }

    /// Passes the pieces on; returns the reason for the end.
    async fn follow(&mut self, client: &Client, coming: &mut Subscriber, place: u64) -> Piece {
        if let Some(last) = self.wait_for_worker(client, coming, place).await {
            return last;
        }
        loop {
            match timeout(SILENCE, coming.next()).await {
                Ok(Some(message)) => {
                    if let Some(last) = self.pass_on(client, message).await {
                        return last;
                    }
                }
                Ok(None) => return Piece::Lost(ENDED.to_owned()),
                Err(_) => return Piece::Lost("the worker that answered is not heard of any more".to_owned()),
            }
        }
    }

    /// Puts the request into the stream; returns its number there.
    ///
    /// # Errors
    /// The reason, when sending takes too long.
    async fn send(&self, inbox: &str) -> Result<u64, String> {
        let mut reason = "the NATS server cannot be reached".to_owned();
        let until = Instant::now() + PATIENCE;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match timeout(left, self.publish(inbox)).await {
                Ok(Ok(place)) => return Ok(place),
                Ok(Err(error)) => reason = error.to_string(),
                Err(_) => break,
            }
            // The server may have been replaced.
            if self.server.is_connected()
                && let Err(error) = self.server.prepare().await
            {
                reason = error.to_string();
            }
            sleep(PAUSE).await;
        }
        Err(reason)
    }

    async fn publish(&self, inbox: &str) -> Result<u64, FleetError> {
        self.server.connected().await;
        let message =
            PublishMessage::build().payload(self.content.clone().into()).message_id(&self.id).header(INBOX, inbox);
        let failed = |error: &dyn std::error::Error| unusable(WORK, error);
        let sent = self.server.jetstream.send_publish(self.subject.clone(), message).await;
        Ok(sent.map_err(|error| failed(&error))?.await.map_err(|error| failed(&error))?.sequence)
    }

    /// Waits for the first reply of a worker; returns the reason if none will come.
    async fn wait_for_worker(&mut self, client: &Client, coming: &mut Subscriber, place: u64) -> Option<Piece> {
        let mut looking = interval(LOOK);
        looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looking.tick().await;
        let mut away_since = None;
        loop {
            tokio::select! {
                message = coming.next() => {
                    let Some(message) = message else { return Some(Piece::Lost(ENDED.to_owned())) };
                    self.is_begun = true;
                    return self.pass_on(client, message).await;
                }
                _ = looking.tick() => {}
            }
            if !self.server.is_connected() {
                if away_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Some(Piece::GivenUp("the NATS server cannot be reached".to_owned()));
                }
                continue;
            }
            away_since = None;
            if self.nobody_can() {
                return Some(self.given_up());
            }
            if self.is_forgotten(place).await {
                return Some(Piece::Lost("the NATS server has lost the question".to_owned()));
            }
        }
    }

    fn nobody_can(&self) -> bool {
        self.server.is_connected() && !self.roster.has(self.role, &self.model)
    }

    fn given_up(&self) -> Piece {
        Piece::GivenUp(format!("no worker has the model {:?} any more", self.model))
    }

    /// Whether the request is no longer in the stream, though no worker has replied.
    async fn is_forgotten(&self, place: u64) -> bool {
        let Ok(stream) = self.server.jetstream.get_stream(WORK).await else {
            // A new server has no streams yet.
            let _ = self.server.prepare().await;
            return false;
        };
        match stream.get_raw_message(place).await {
            // A new server may have a different message with this number.
            Ok(found) => found.headers.get("Nats-Msg-Id").is_none_or(|id| id.as_str() != self.id),
            Err(error) => error.kind() == RawMessageErrorKind::NoMessageFound,
        }
    }

    /// Removes a request that no worker has begun and no caller wants from the stream.
    async fn take_back(&self, place: u64) {
        if self.is_forgotten(place).await {
            return;
        }
        if let Ok(stream) = self.server.jetstream.get_stream(WORK).await
            && let Err(error) = stream.delete_message(place).await
        {
            tracing::debug!("a question that nobody waits for stays with the NATS server: {error}");
        }
    }

    /// Passes a piece on, or answers a worker that asks whether the caller still waits; returns the reason for the end.
    async fn pass_on(&self, client: &Client, message: Message) -> Option<Piece> {
        let header = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name));
        if let Some(reply) = message.reply {
            // A worker without a reply asks again.
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

// A live worker asks often enough to count as alive.
const _: () = assert!(ASK.as_secs() * 4 <= SILENCE.as_secs());
