//! Pieces of a result on their way to the process that waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::jetstream::Message;
use async_nats::{Client, HeaderMap};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::connection::Server;
use crate::requests::{GIVEN_UP, LONGEST, Unsent};

/// The header of a job with the subject on which the caller waits for the pieces of its result.
pub(crate) const INBOX: &str = "Hone-Inbox";
/// The header of a piece with the attempt that made it.
pub(crate) const ATTEMPT: &str = "Hone-Attempt";
/// The header of a piece with its number within its attempt, from 0.
pub(crate) const NUMBER: &str = "Hone-Number";

/// The interval at which the waiting process is asked whether it still waits.
pub(crate) const ASK: Duration = Duration::from_secs(1);
/// The longest wait to send a piece while the server is unreachable.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process that waits for the pieces of a result.
pub struct Caller {
    client: Client,
    handle: Handle,
    inbox: String,
    attempt: u32,
    n_sent: AtomicU64,
    is_gone: Arc<AtomicBool>,
    watch: AbortHandle,
}

impl Caller {
    /// The caller that a job names, if it still waits; otherwise the work is not done.
    pub(crate) async fn of(server: &Server, message: &Message, attempt: u32) -> Option<Result<Caller, Gone>> {
        let inbox = inbox_of(message)?;
        let client = server.jetstream.client();
        if !is_there(&client, &inbox).await {
            return Some(Err(Gone));
        }
        let is_gone = Arc::new(AtomicBool::new(false));
        let watch = tokio::spawn(watch(client.clone(), inbox.clone(), Arc::clone(&is_gone))).abort_handle();
        let handle = Handle::current();
        Some(Ok(Caller { client, handle, inbox, attempt, n_sent: AtomicU64::new(0), is_gone, watch }))
    }

    /// Sends the next piece. It is lost if the connection breaks now; the caller notices that and asks again.
    ///
    /// # Errors
    /// When it is longer than [`LONGEST`].
    pub fn send(&self, content: Vec<u8>) -> Result<(), Unsent> {
        if content.len() > LONGEST {
            return Err(Unsent::TooLong);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ATTEMPT, self.attempt.to_string());
        headers.insert(NUMBER, self.n_sent.fetch_add(1, Ordering::Relaxed).to_string());
        let sending = self.client.publish_with_headers(self.inbox.clone(), headers, content.into());
        let sent = self.handle.block_on(async { timeout(PATIENCE, sending).await });
        if !matches!(sent, Ok(Ok(()))) {
            tracing::debug!("a piece of a result is not sent");
            self.is_gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the caller no longer waits.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// The caller no longer waits.
pub(crate) struct Gone;

/// The subject on which the caller waits for the pieces of a result.
pub(crate) fn inbox_of(message: &Message) -> Option<String> {
    let named = message.headers.as_ref()?.get(INBOX)?.to_string();
    is_inbox(&named).then_some(named)
}

/// Whether a name from an untrusted message is an inbox: messages to other subjects may have effects there.
fn is_inbox(name: &str) -> bool {
    let is_plain =
        |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    name.strip_prefix("_INBOX.").is_some_and(is_plain)
}

/// Tells the waiting process why no more pieces come.
pub(crate) async fn give_up(server: &Server, inbox: String, reason: &str) {
    let mut headers = HeaderMap::new();
    headers.insert(GIVEN_UP, reason);
    let client = server.jetstream.client();
    if let Err(error) = client.publish_with_headers(inbox, headers, Vec::new().into()).await {
        tracing::debug!("nobody is told that work was given up: {error}");
    }
}

/// Repeatedly asks whether the caller still waits. A single missed reply may be a lost connection.
async fn watch(client: Client, inbox: String, is_gone: Arc<AtomicBool>) {
    let mut n_missed = 0;
    while n_missed < 2 {
        sleep(ASK).await;
        n_missed = if is_there(&client, &inbox).await { 0 } else { n_missed + 1 };
    }
    is_gone.store(true, Ordering::Relaxed);
}

/// Whether the caller listens; also true if the server does not say.
async fn is_there(client: &Client, inbox: &str) -> bool {
    let request = Request::new().timeout(Some(2 * ASK));
    let reply = client.send_request(inbox.to_owned(), request).await;
    !matches!(reply, Err(error) if error.kind() == RequestErrorKind::NoResponders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inboxes_are_answered() {
        let check = |name: &str, expected| assert_eq!(is_inbox(name), expected, "{name}");
        check("_INBOX.aZ09.x", true);
        check("_INBOX.", false);
        check("_INBOX.>", false);
        check("$JS.API.STREAM.DELETE.HONE_WORK", false);
        check("hone.results._INBOX.x", false);
    }
}
