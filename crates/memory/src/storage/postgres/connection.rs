//! Connections to the database, and the thread on which their queries run.

use std::future::Future;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, mpsc};
use std::time::Duration;

use hone_protocol::hexadecimal;
use sha2::{Digest, Sha256};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Postgres, SqlSafeStr as _};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use crate::error::MemoryError;
use crate::lock::lock;
use crate::records::{FORMAT, Head, damaged, to_json};

/// The time limit for connecting.
const LONGEST_CONNECTING: Duration = Duration::from_secs(3);

/// The time limit for creating or changing the tables, also while another process does it.
const LONGEST_PREPARING: Duration = Duration::from_secs(120);

/// The most reading connections of a memory, in addition to the writing one; further requests wait for one.
const MOST_CONNECTIONS: u32 = 4;

/// The lifetime of an unused connection.
const LONGEST_IDLE: Duration = Duration::from_secs(60);

/// The settings of every connection. The timeouts, in milliseconds, limit how long a process that was stopped in the
/// middle of a write delays others. The last one is pgvector's: the number of vectors that an approximate search
/// examines.
const SETTINGS: [(&str, &str); 3] =
    [("idle_in_transaction_session_timeout", "20000"), ("lock_timeout", "4000"), ("hnsw.ef_search", "1000")];

/// The migrations that create and change the tables, oldest first.
const MIGRATIONS: [(&str, &str); 1] = [("memory", include_str!("../../../migrations/0001_memory.sql"))];

/// The table that records the applied migrations.
const MIGRATIONS_TABLE: &str = "hone.migrations";

/// Connections to one database as one role.
pub(super) struct Connections {
    /// The reading connections.
    pool: PgPool,
    /// The writing connection, between writes. Unless a write has ended, it is dropped, and its transaction with it.
    writer: Mutex<Option<PgConnection>>,
    options: PgConnectOptions,
    /// Host, port and name of the database, for messages.
    database: String,
}

impl Connections {
    /// The database at an address. Nothing is connected yet.
    ///
    /// # Errors
    /// When the address is invalid.
    pub(super) fn open(url: &str) -> Result<Connections, MemoryError> {
        let options = PgConnectOptions::from_str(url).map_err(|error| MemoryError::Database {
            // An address may hold a password.
            database: "that memory.url names".to_owned(),
            reason: format!("its address is invalid, it should be postgres://USER@HOST/NAME: {error}"),
        })?;
        let options = options.application_name("hone").options(SETTINGS).disable_statement_logging();
        let name = options.get_database().unwrap_or(options.get_username());
        let database = format!("{}:{}/{name}", options.get_host(), options.get_port());
        // The next query of a broken connection notices that, and is then repeated on a new one.
        let pool = PgPoolOptions::new()
            .max_connections(MOST_CONNECTIONS)
            .acquire_timeout(LONGEST_CONNECTING)
            .idle_timeout(LONGEST_IDLE)
            .test_before_acquire(false);
        // The runtime in which the pool is created maintains it.
        let _guard = runtime()?.enter();
        let pool = pool.connect_lazy_with(options.clone());
        Ok(Connections { pool, writer: Mutex::default(), options, database })
    }

    /// Creates or changes the tables if they are not those of this version, and this role's head.
    ///
    /// # Errors
    /// When the role lacks the permissions, or a later version has changed them.
    pub(super) fn prepare(&self) -> Result<(), MemoryError> {
        let options = self.options.clone();
        let latest = MIGRATIONS.len() as i64;
        // The pool would keep trying if the server does not listen.
        let applied = self.run(LONGEST_CONNECTING, async move {
            let mut connection = PgConnection::connect_with(&options).await?;
            last_migration(&mut connection).await
        })?;
        if applied > latest {
            let reason =
                format!("a later hone has changed its tables ({applied}, this one knows {latest}): use that one");
            return Err(MemoryError::Database { database: self.database.clone(), reason });
        }
        if applied < latest {
            tracing::info!(database = self.database, "the tables are created or changed");
            let pool = self.pool.clone();
            self.run(LONGEST_PREPARING, async move {
                let migrated = migrator().run(&pool).await;
                migrated.map_err(|error| sqlx::Error::Migrate(Box::new(error)))
            })?;
        }
        let head = to_json("the head of memory", &Head { format: FORMAT, ..Head::default() })?;
        let head = String::from_utf8(head).map_err(|error| damaged("the head of memory", &error.to_string()))?;
        let pool = self.pool.clone();
        self.run(LONGEST_CONNECTING, async move {
            let sql = "INSERT INTO hone.heads (head) VALUES ($1::text::jsonb) ON CONFLICT DO NOTHING";
            sqlx::query(sql).bind(head).execute(&pool).await.map(drop)
        })
    }

    /// The schema of pgvector, as an SQL identifier; `None` if this role cannot use the extension, and may not install
    /// it either.
    pub(super) fn schema_of_pgvector(&self) -> Result<Option<String>, MemoryError> {
        let pool = self.pool.clone();
        self.run(LONGEST_CONNECTING, async move {
            let installed = "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace \
                             WHERE extname = 'vector' AND has_schema_privilege(extnamespace, 'USAGE')";
            let schema = || sqlx::query_scalar::<_, String>(installed).fetch_optional(&pool);
            if let Some(schema) = schema().await? {
                return Ok(Some(schema));
            }
            // Every role may use this schema.
            let created = sqlx::query("CREATE EXTENSION IF NOT EXISTS vector SCHEMA hone").execute(&pool).await;
            if let Err(error) = created {
                tracing::debug!(%error, "without pgvector");
            }
            schema().await
        })
    }

    /// The connection for the next write, to be kept with [`Connections::keep_writer`] once that has ended.
    pub(super) async fn writer(&self) -> sqlx::Result<PgConnection> {
        let kept = lock(&self.writer).take();
        match kept {
            Some(connection) => Ok(connection),
            None => PgConnection::connect_with(&self.options).await,
        }
    }

    /// Keeps a connection for the next write. It must have no open transaction.
    pub(super) fn keep_writer(&self, connection: PgConnection) {
        *lock(&self.writer) = Some(connection);
    }

    /// A connection, to be given back with [`Connections::give_back`].
    pub(super) async fn acquire(&self) -> sqlx::Result<PoolConnection<Postgres>> {
        self.pool.acquire().await
    }

    /// Keeps a connection for the next query, or closes it if the last one failed.
    pub(super) fn give_back(&self, connection: PoolConnection<Postgres>, error: Option<&sqlx::Error>) {
        if error.is_some_and(|error| !matches!(error, sqlx::Error::Database(_))) {
            drop(connection.detach());
        }
    }

    /// The options of other connections.
    pub(super) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// Runs queries on their thread, and waits until they are done or the time limit is reached.
    pub(super) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        queries: impl Future<Output = sqlx::Result<T>> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        runtime()?.spawn(async move {
            // The receiver is gone only if the waiting thread has panicked.
            let _ = sender.send(tokio::time::timeout(limit, queries).await);
        });
        match receiver.recv() {
            Ok(Ok(done)) => done.map_err(|error| self.failed(&error)),
            Ok(Err(_)) => {
                let reason = format!("it has not answered within {} s", limit.as_secs());
                Err(MemoryError::Database { database: self.database.clone(), reason })
            }
            Err(_) => {
                Err(MemoryError::Database { database: self.database.clone(), reason: "a query failed".to_owned() })
            }
        }
    }

    /// The error for a failed query. The database will refuse invalid queries again.
    pub(super) fn failed(&self, error: &sqlx::Error) -> MemoryError {
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        if code.starts_with("22") || code.starts_with("23") || matches!(error, sqlx::Error::Decode(_)) {
            return damaged("a record", &error.to_string());
        }
        let reason = match error {
            sqlx::Error::PoolTimedOut => "no connection could be made in time".to_owned(),
            other => other.to_string(),
        };
        MemoryError::Database { database: self.database.clone(), reason }
    }

    /// Closes all connections; those in use when they are given back.
    pub(super) fn close(&self) {
        let pool = self.pool.clone();
        spawn(async move { pool.close().await });
    }
}

/// The number of the last applied migration; 0 for a database without tables.
async fn last_migration(connection: &mut PgConnection) -> sqlx::Result<i64> {
    // The first holds for roles that may use the schema, the second also for those that may not.
    let exists = "SELECT to_regnamespace('hone') IS NOT NULL AND has_schema_privilege('hone', 'USAGE') \
                  AND to_regclass('hone.migrations') IS NOT NULL";
    if !sqlx::query_scalar::<_, bool>(exists).fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    let last = "SELECT coalesce(max(version), 0) FROM hone.migrations WHERE success";
    sqlx::query_scalar(last).fetch_one(connection).await
}

/// Runs the missing migrations, one process at a time: sqlx holds an advisory lock meanwhile.
fn migrator() -> Migrator {
    let migration = |(version, (name, sql)): (i64, (&'static str, &'static str))| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    let mut migrator = Migrator::with_migrations((1..).zip(MIGRATIONS).map(migration).collect());
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator.create_schema("hone");
    migrator
}

/// A folder name for a database and a role: always the same for one address, and different for others.
pub(crate) fn folder_name(url: &str) -> String {
    let parts = PgConnectOptions::from_str(url).map_or_else(
        |_| url.to_owned(),
        |options| {
            let (host, socket) = (options.get_host(), options.get_socket());
            format!("{host} {socket:?} {} {} {:?}", options.get_port(), options.get_username(), options.get_database())
        },
    );
    hexadecimal(Sha256::digest(parts))[..16].to_owned()
}

/// The runtime of all connections of this process.
fn runtime() -> Result<&'static Runtime, MemoryError> {
    static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| {
        Builder::new_multi_thread().worker_threads(1).thread_name("hone-postgres").enable_all().build().ok()
    });
    RUNTIME.as_ref().ok_or_else(|| damaged("the thread for a database", "it cannot be started"))
}

/// Runs a background task on that thread.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
    runtime().ok().map(|runtime| runtime.spawn(task).abort_handle())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_address_is_not_shown() {
        let error = Connections::open("postgres://me:secret@host:port/db").err().unwrap().to_string();
        assert!(!error.contains("secret") && error.contains("its address is invalid"), "{error}");
    }

    #[test]
    fn what_is_kept_for_one_role_is_not_found_by_another() {
        let names =
            ["me@host/db", "you@host/db", "me@host/other", "me@elsewhere/db", "me@host:1/db", "me@x/db?host=/run"];
        let names: std::collections::BTreeSet<String> =
            names.iter().map(|address| folder_name(&format!("postgres://{address}"))).collect();
        assert_eq!(names.len(), 6);
        assert_eq!(folder_name("postgres://me:secret@host/db"), folder_name("postgres://me@host:5432/db"));
    }
}
