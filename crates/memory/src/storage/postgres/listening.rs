//! Notification of events that other processes append.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::task::AbortHandle;

use super::super::Heard;
use super::connection::Connections;

/// The time between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The channel on which a role's events are announced: its name is known to the role alone.
pub(super) const CHANNEL: &str = "(SELECT channel FROM hone.heads WHERE tenant = current_user)";

/// Calls `heard` with the number of every event, until it returns `false` or the task is aborted. Events during an
/// interruption are noticed after it.
pub(super) fn start(connections: &Arc<Connections>, heard: Heard) -> Option<AbortHandle> {
    let connections = Arc::clone(connections);
    let task = async move {
        loop {
            match listen(&connections, &heard).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "events of other processes are not heard at present"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    super::connection::spawn(task)
}

/// Listens until the listener wants no more events.
async fn listen(connections: &Connections, heard: &Heard) -> sqlx::Result<()> {
    let pool = PgPoolOptions::new().max_connections(1).connect_with(connections.options()).await?;
    let name = sqlx::AssertSqlSafe(format!("SELECT {CHANNEL}"));
    let channel: String = sqlx::query_scalar(name).fetch_one(&pool).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(&channel).await?;
    loop {
        let last = "SELECT coalesce(max(number), 0) FROM hone.events WHERE tenant = current_user";
        let last: i64 = sqlx::query_scalar(last).fetch_one(&mut listener).await?;
        if !heard(last.cast_unsigned()) {
            return Ok(());
        }
        // Both announced events and those missed during a lost connection are looked up.
        listener.try_recv().await?;
    }
}
