//! Records in PostgreSQL, which many processes on many machines read and write at the same time.
//!
//! A kind of key is a table ([`tables`]); JSON values are `jsonb`, and fields that this version does not know stay. A
//! write is a transaction that holds the tenant's row of `hone.heads` from its beginning, so writes of one tenant
//! follow each other and none overwrites another's changes. It is durable when it is committed. A tenant is a role of
//! the database, and row-level security shows each role its own rows only.
//!
//! Vectors are compared by pgvector where the extension is installed ([`search`]), and otherwise by an index in each
//! process, which follows `hone.changes`. Processes that wait for events are notified by `NOTIFY` ([`listening`]).

mod connection;
mod listening;
mod search;
mod tables;
mod writing;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hone_protocol::{EnvelopeId, QueryId, Timestamp};
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe};
use tokio::task::AbortHandle;

pub(crate) use self::connection::folder_name;

use self::connection::Connections;
use self::tables::{Table, key_of, text_of};
use super::{Database, Heard, KeyRange, Pair, Pairs, Storage, Write};
use crate::error::MemoryError;
use crate::index::Neighbour;
use crate::lock::lock;
use crate::records::Numbered;
use crate::request::Vector;
use crate::words::WordMatch;

/// The time limit of a query that reads few rows.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);

/// The time limit of a query that reads a whole table.
const LONGEST_SCAN: Duration = Duration::from_secs(300);

/// The size of a range's first read in pairs, and the largest size of a read.
const FIRST_READ: usize = 64;
const MOST_READ: usize = 512;

type KeyValue = (Vec<u8>, Vec<u8>);

/// Records in a PostgreSQL database.
pub(crate) struct PostgresStorage {
    connections: Arc<Connections>,
    /// Whether a connection failed; then all are replaced.
    is_broken: AtomicBool,
    /// `None` without the extension.
    pgvector: Option<search::Pgvector>,
    listening: Mutex<Option<AbortHandle>>,
}

impl PostgresStorage {
    /// Connects to the database at `url`, and creates its tables or changes those of an earlier version.
    ///
    /// # Errors
    /// When the address is invalid or the database cannot be reached, refuses this role, or was used by a later version.
    pub(crate) fn connect(url: &str) -> Result<PostgresStorage, MemoryError> {
        let connections = Arc::new(Connections::open(url)?);
        connections.prepare()?;
        let pgvector = connections.schema_of_pgvector()?.map(search::Pgvector::new);
        let (is_broken, listening) = (AtomicBool::new(false), Mutex::default());
        Ok(PostgresStorage { connections, is_broken, pgvector, listening })
    }

    /// The rows of a query with these arguments.
    fn rows(&self, sql: String, arguments: PgArguments, limit: Duration) -> Result<Vec<PgRow>, MemoryError> {
        let connections = Arc::clone(&self.connections);
        self.noticed(self.connections.run(limit, async move {
            let mut connection = connections.acquire().await?;
            let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(&mut *connection).await;
            connections.give_back(connection, rows.as_ref().err());
            rows
        }))
    }

    /// Passes a result on, and records whether the connection has failed.
    fn noticed<T>(&self, result: Result<T, MemoryError>) -> Result<T, MemoryError> {
        if matches!(result, Err(MemoryError::Database { .. })) {
            self.mark_broken();
        }
        result
    }

    /// Reads the first pairs of a range.
    fn read(&self, table: &Table, range: &KeyRange, n: usize) -> Result<Vec<KeyValue>, MemoryError> {
        let (mut arguments, mut conditions) = (PgArguments::default(), String::new());
        let bounds = [(&range.low, [">", ">="]), (&range.high, ["<", "<="])];
        for (bound, [beyond, from]) in bounds {
            let (key, comparison) = match bound {
                Bound::Excluded(key) => (key, beyond),
                Bound::Included(key) => (key, from),
                Bound::Unbounded => continue,
            };
            // A kind alone stands for the beginning or the end of its table.
            if key.len() > 1 {
                add(&mut arguments, text_of(table, key)?)?;
                let (column, kind, number) = (table.key, table.key_type, arguments.len());
                conditions += &format!(" AND {column} {comparison} ${number}::text::{kind}");
            }
        }
        let direction = if range.is_reversed { "DESC" } else { "ASC" };
        let Table { key, name, columns, .. } = table;
        let sql = format!(
            "SELECT {key}::text AS key, {columns} FROM {name} WHERE tenant = current_user{conditions} \
             ORDER BY {name}.{key} {direction} LIMIT {n}"
        );
        let rows = self.rows(sql, arguments, LONGEST_ANSWER)?;
        rows.iter().map(|row| self.pair(table, row)).collect()
    }

    /// The pairs of a kind that a query finds with these texts.
    fn found(&self, kind: u8, sql: &str, texts: Option<Vec<String>>) -> Pairs<'_> {
        let found = || -> Result<Vec<KeyValue>, MemoryError> {
            let mut arguments = PgArguments::default();
            texts.map_or(Ok(()), |texts| add(&mut arguments, texts))?;
            let rows = self.rows(sql.to_owned(), arguments, LONGEST_SCAN)?;
            let table = tables::of_key(&[kind])?;
            rows.iter().map(|row| self.pair(table, row)).collect()
        };
        match found() {
            Ok(found) => Box::new(found.into_iter().map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn pair(&self, table: &Table, row: &PgRow) -> Result<KeyValue, MemoryError> {
        let key: String = self.column(row, "key")?;
        Ok((key_of(table, &key)?, (table.value)(row).map_err(|error| self.connections.failed(&error))?))
    }

    fn column<'r, T>(&self, row: &'r PgRow, name: &str) -> Result<T, MemoryError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        row.try_get(name).map_err(|error| self.connections.failed(&error))
    }
}

impl Drop for PostgresStorage {
    fn drop(&mut self) {
        lock(&self.listening).take().iter().for_each(AbortHandle::abort);
        self.connections.close();
    }
}

impl Storage for PostgresStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MemoryError> {
        Ok(self.get_all(&[key.to_vec()])?.into_iter().next().flatten())
    }

    fn get_all(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, MemoryError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let table = tables::of_key(first)?;
        let texts = keys.iter().map(|key| text_of(table, key)).collect::<Result<Vec<_>, _>>()?;
        let mut arguments = PgArguments::default();
        add(&mut arguments, texts)?;
        let Table { key, key_type, name, columns, .. } = table;
        let sql = format!(
            "SELECT {key}::text AS key, {columns} FROM {name} \
             WHERE tenant = current_user AND {key} = ANY($1::text[]::{key_type}[])"
        );
        let rows = self.rows(sql, arguments, LONGEST_ANSWER)?;
        let mut found = rows.iter().map(|row| self.pair(table, row)).collect::<Result<HashMap<_, _>, _>>()?;
        Ok(keys.iter().map(|key| found.remove(key)).collect())
    }

    fn pairs(&self, range: KeyRange) -> Pairs<'_> {
        let (next_read, buffer) = (FIRST_READ, VecDeque::new());
        Box::new(Reading { storage: self, range, next_read, buffer, is_over: false })
    }

    fn events_about(&self, ids: &[QueryId]) -> Pairs<'_> {
        let ids: Vec<String> = ids.iter().map(QueryId::to_string).collect();
        let sql = "SELECT number::text AS key, event::text AS value FROM hone.events_about($1) AS about(number, event)";
        self.found(Numbered::Event.kind(), sql, Some(ids))
    }

    fn notes(&self) -> Pairs<'_> {
        let sql = "SELECT id::text AS key, fields::text AS value FROM hone.engrams \
                   WHERE tenant = current_user AND jsonb_exists(fields, 'sources')";
        self.found(b'e', sql, None)
    }

    fn begin(&self) -> Result<Box<dyn Write + '_>, MemoryError> {
        self.noticed(writing::begin(self)).map(|write| -> Box<dyn Write + '_> { Box::new(write) })
    }

    /// A transaction is durable once it is committed.
    fn flush(&self) -> Result<(), MemoryError> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    fn n_bytes(&self) -> Result<u64, MemoryError> {
        let sql = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS n FROM pg_class \
                   WHERE relnamespace = 'hone'::regnamespace AND relkind = 'r'";
        let rows = self.rows(sql.to_owned(), PgArguments::default(), LONGEST_SCAN)?;
        let n = rows.first().map(|row| self.column::<i64>(row, "n")).transpose()?;
        Ok(n.and_then(|n| u64::try_from(n).ok()).unwrap_or_default())
    }

    /// The database's server manages its disk.
    fn check_room(&self, _n_bytes: u64) -> Result<(), MemoryError> {
        Ok(())
    }

    fn database(&self) -> Option<&dyn Database> {
        Some(self)
    }
}

impl Database for PostgresStorage {
    fn now(&self) -> Result<Timestamp, MemoryError> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
        let rows = self.rows(sql.to_owned(), PgArguments::default(), LONGEST_ANSWER)?;
        let now = rows.first().map(|row| self.column::<i64>(row, "now")).transpose()?;
        Ok(Timestamp(now.unwrap_or_default().cast_unsigned()))
    }

    fn number_of_event(&self, id: EnvelopeId) -> Result<Option<u64>, MemoryError> {
        let mut arguments = PgArguments::default();
        add(&mut arguments, id.to_string())?;
        let sql = "SELECT number FROM hone.events WHERE tenant = current_user AND id = $1";
        let rows = self.rows(sql.to_owned(), arguments, LONGEST_ANSWER)?;
        rows.first().map(|row| self.column::<i64>(row, "number").map(i64::cast_unsigned)).transpose()
    }

    fn known_events(&self, ids: &[String]) -> Result<HashSet<String>, MemoryError> {
        let mut arguments = PgArguments::default();
        add(&mut arguments, ids.to_vec())?;
        let sql = "SELECT id FROM hone.events WHERE tenant = current_user AND id = ANY($1::text[])";
        let rows = self.rows(sql.to_owned(), arguments, LONGEST_ANSWER)?;
        rows.iter().map(|row| self.column::<String>(row, "id")).collect()
    }

    fn append_event(&self, id: EnvelopeId, event: &[u8]) -> Result<u64, MemoryError> {
        writing::append_event(self, id, event)
    }

    fn nearest(&self, vector: &Vector, n: usize) -> Result<Option<Vec<Neighbour>>, MemoryError> {
        self.pgvector.as_ref().map(|pgvector| search::nearest(self, pgvector, vector, n)).transpose()
    }

    fn best_by_words(&self, question: &str, n: usize) -> Result<Vec<WordMatch>, MemoryError> {
        search::best_by_words(self, question, n)
    }

    fn on_events(&self, heard: &dyn Fn() -> Heard) {
        let mut listening = lock(&self.listening);
        if listening.is_none() {
            *listening = listening::start(&self.connections, heard());
        }
    }
}

/// The pairs of a range, read some at a time.
struct Reading<'a> {
    storage: &'a PostgresStorage,
    /// The remaining range.
    range: KeyRange,
    next_read: usize,
    buffer: VecDeque<KeyValue>,
    is_over: bool,
}

impl Reading<'_> {
    fn fill(&mut self) -> Result<(), MemoryError> {
        let n = self.next_read.min(self.range.at_most);
        let table = tables::of_range(&self.range)?;
        let read = self.storage.read(table, &self.range, n)?;
        self.is_over = read.len() < n || n == self.range.at_most;
        self.range.at_most -= read.len().min(self.range.at_most);
        self.next_read = (self.next_read * 2).min(MOST_READ);
        if let Some((last, _)) = read.last() {
            let bound = if self.range.is_reversed { &mut self.range.high } else { &mut self.range.low };
            *bound = Bound::Excluded(last.clone());
        }
        self.buffer.extend(read);
        Ok(())
    }
}

impl Iterator for Reading<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        if self.buffer.is_empty()
            && !self.is_over
            && let Err(error) = self.fill()
        {
            self.is_over = true;
            return Some(Err(error));
        }
        self.buffer.pop_front().map(Ok)
    }
}

/// Adds an argument of a query.
fn add<'q, T>(arguments: &mut PgArguments, value: T) -> Result<(), MemoryError>
where
    T: sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    arguments.add(value).map_err(|error| crate::records::damaged("an argument of a query", &error.to_string()))
}
