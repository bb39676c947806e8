//! Writes: consecutive transactions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hone_protocol::EnvelopeId;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{AssertSqlSafe, Row as _};

use super::super::{Batch, KeyChange, Write};
use super::listening::CHANNEL;
use super::tables::{self, Table, text_of};
use super::{LONGEST_ANSWER, PostgresStorage, add};
use crate::error::MemoryError;
use crate::records::{Change, Head, StoredVector, damaged, from_json, shown};
use crate::words;

/// The longest word that is indexed, in bytes: PostgreSQL refuses those of more than 2 KiB.
const LONGEST_WORD: usize = 256;

/// The most bytes of one text's words that are indexed: an entry of PostgreSQL's index has at most 1 MiB.
const MOST_BYTES: usize = 256 << 10;

/// The bytes per millisecond of a slow connection.
const SLOWEST_BYTES_PER_MILLISECOND: u64 = 100;

/// A statement and its arguments.
type Statement = (String, PgArguments);

/// A transaction that holds its role's head.
pub(super) struct PostgresWrite<'a> {
    storage: &'a PostgresStorage,
    head: Head,
    /// `None` once it is committed. If a query fails or is abandoned, the connection is dropped, which ends the
    /// transaction.
    connection: Option<PgConnection>,
}

/// The time limit of a statement that sends this many bytes, even over a slow connection.
fn limit_for(n_bytes: u64) -> Duration {
    LONGEST_ANSWER + Duration::from_millis(n_bytes / SLOWEST_BYTES_PER_MILLISECOND)
}

/// Begins a transaction, once the earlier ones have ended.
pub(super) fn begin(storage: &PostgresStorage) -> Result<PostgresWrite<'_>, MemoryError> {
    let connections = Arc::clone(&storage.connections);
    let (connection, head) = storage.connections.run(LONGEST_ANSWER, async move {
        let mut connection = connections.writer().await?;
        // One round trip instead of two for every write.
        let statements = "BEGIN; SELECT head::text FROM hone.heads WHERE tenant = current_user FOR UPDATE";
        let head: String = sqlx::raw_sql(statements).fetch_one(&mut connection).await?.try_get(0)?;
        Ok((connection, head))
    })?;
    let head = from_json("the head of memory", head.as_bytes())?;
    Ok(PostgresWrite { storage, head, connection: Some(connection) })
}

/// Appends an event in one statement, unless it exists.
pub(super) fn append_event(storage: &PostgresStorage, id: EnvelopeId, event: &[u8]) -> Result<u64, MemoryError> {
    let sql = format!(
        "WITH counted AS (UPDATE hone.heads \
           SET head = jsonb_set(head, '{{last_event}}', to_jsonb((head ->> 'last_event')::bigint + 1)) \
           WHERE tenant = current_user \
             AND NOT EXISTS (SELECT 1 FROM hone.events WHERE tenant = current_user AND id = $1) \
           RETURNING (head ->> 'last_event')::bigint AS number), \
         appended AS (INSERT INTO hone.events (number, event) SELECT number, $2::text::jsonb FROM counted \
           RETURNING number) \
         SELECT number, pg_notify({CHANNEL}, '')::text FROM appended UNION ALL \
         SELECT number, NULL FROM hone.events WHERE tenant = current_user AND id = $1"
    );
    for _ in 0..2 {
        let mut arguments = PgArguments::default();
        add(&mut arguments, id.to_string())?;
        add(&mut arguments, json(event)?)?;
        match storage.rows(sql.clone(), arguments, limit_for(event.len() as u64)) {
            Ok(rows) => {
                let row = rows.first().ok_or_else(|| damaged("the head of memory", "it is missing"))?;
                return storage.column::<i64>(row, "number").map(i64::cast_unsigned);
            }
            // Another process has appended the same event since the statement began; it is found now.
            Err(MemoryError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(damaged("an event", "the database does not take it"))
}

impl Write for PostgresWrite<'_> {
    fn head(&self) -> Option<Head> {
        Some(self.head)
    }

    fn apply(mut self: Box<Self>, batch: Batch, texts: &[(u64, Option<String>)]) -> Result<(), MemoryError> {
        let work = Work::of(batch, texts)?;
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        let connections = Arc::clone(&self.storage.connections);
        let limit = limit_for(work.n_bytes);
        let written = self.storage.connections.run(limit, async move {
            work.carry_out(&mut connection).await?;
            connections.keep_writer(connection);
            Ok(())
        });
        self.storage.noticed(written)
    }
}

impl Drop for PostgresWrite<'_> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let connections = Arc::clone(&self.storage.connections);
        let ended = self.storage.connections.run(LONGEST_ANSWER, async move {
            sqlx::query("ROLLBACK").execute(&mut connection).await?;
            connections.keep_writer(connection);
            Ok(())
        });
        if let Err(error) = self.storage.noticed(ended) {
            tracing::debug!(%error, "a write that changes nothing was not ended");
        }
    }
}

/// The statements of a write, in order.
struct Work {
    /// Removes engrams, and returns the number of their words.
    removal: Option<Statement>,
    statements: Vec<Statement>,
    /// Sets the head, and adds to the numbers of texts and words.
    head: Option<String>,
    n_texts: i64,
    n_words: i64,
    n_bytes: u64,
}

impl Work {
    fn of(batch: Batch, texts: &[(u64, Option<String>)]) -> Result<Work, MemoryError> {
        // The last of several writes to one key counts.
        let n_bytes = batch.n_bytes();
        let writes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = batch.into_writes().into_iter().collect();
        let mut work = Work { removal: None, statements: Vec::new(), head: None, n_texts: 0, n_words: 0, n_bytes };
        let mut by_kind: BTreeMap<u8, Vec<KeyChange>> = BTreeMap::new();
        for (key, value) in writes {
            by_kind.entry(key.first().copied().unwrap_or_default()).or_default().push((key, value));
        }
        for (kind, writes) in by_kind {
            work.add_kind(tables::of_key(&[kind])?, writes)?;
        }
        work.add_texts(texts)?;
        Ok(work)
    }

    fn add_kind(&mut self, table: &Table, writes: Vec<KeyChange>) -> Result<(), MemoryError> {
        let (mut removed, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in writes {
            let text = text_of(table, &key)?;
            match value {
                Some(value) => {
                    keys.push(text);
                    values.push(value);
                }
                None => removed.push(text),
            }
        }
        if !removed.is_empty() && table.kind != b's' {
            let mut arguments = PgArguments::default();
            add(&mut arguments, removed)?;
            let Table { name, key, key_type, .. } = table;
            let removal =
                format!("DELETE FROM {name} WHERE tenant = current_user AND {key} = ANY($1::text[]::{key_type}[])");
            match table.kind {
                b'e' => self.removal = Some((removal + " RETURNING n_words", arguments)),
                _ => self.statements.push((removal, arguments)),
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        match table.kind {
            b'h' => self.head = values.into_iter().next().map(|head| json(&head)).transpose()?,
            // An engram's row has its sequence number.
            b's' => {}
            b'v' => self.statements.push(vectors(keys, &values)?),
            b'c' => self.statements.push(changes(keys, &values)?),
            _ => self.statements.push(records(table, keys, &values)?),
        }
        if table.kind == b'x' {
            // Listeners are notified once the transaction is committed.
            self.statements.push((format!("SELECT pg_notify({CHANNEL}, '')"), PgArguments::default()));
        }
        Ok(())
    }

    /// Indexes the words of new texts.
    fn add_texts(&mut self, texts: &[(u64, Option<String>)]) -> Result<(), MemoryError> {
        let (mut sequences, mut all_words, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, text) in texts {
            let Some(text) = text else { continue };
            let counts = words::counts(text);
            let n_words: u32 = counts.values().sum();
            let mut n_bytes = 0;
            let has_room = |word: &&String| {
                n_bytes += word.len();
                n_bytes <= MOST_BYTES
            };
            let indexed: Vec<&String> =
                counts.keys().filter(|word| word.len() <= LONGEST_WORD).take_while(has_room).collect();
            sequences.push(sequence.cast_signed());
            all_words.push(serde_json::to_string(&indexed).unwrap_or_default());
            lengths.push(i64::from(n_words));
        }
        if sequences.is_empty() {
            return Ok(());
        }
        self.n_texts += sequences.len() as i64;
        self.n_words += lengths.iter().sum::<i64>();
        let mut arguments = PgArguments::default();
        add(&mut arguments, sequences)?;
        add(&mut arguments, all_words)?;
        add(&mut arguments, lengths)?;
        let sql = "UPDATE hone.engrams SET words = \
                   array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(new.words::jsonb))), n_words = new.n \
                   FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS new(sequence, words, n) \
                   WHERE tenant = current_user AND engrams.sequence = new.sequence";
        self.statements.push((sql.to_owned(), arguments));
        Ok(())
    }

    async fn carry_out(mut self, connection: &mut PgConnection) -> sqlx::Result<()> {
        if let Some((sql, arguments)) = self.removal {
            for row in sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(&mut *connection).await? {
                self.n_texts -= 1;
                self.n_words -= row.try_get::<i64, _>("n_words")?;
            }
        }
        for (sql, arguments) in self.statements {
            sqlx::query_with(AssertSqlSafe(sql), arguments).execute(&mut *connection).await?;
        }
        if let Some(head) = self.head {
            let sql = "UPDATE hone.heads SET head = $1::text::jsonb, n_texts = n_texts + $2, n_words = n_words + $3 \
                       WHERE tenant = current_user";
            let query = sqlx::query(sql).bind(head).bind(self.n_texts).bind(self.n_words);
            query.execute(&mut *connection).await?;
        }
        sqlx::query("COMMIT").execute(&mut *connection).await.map(drop)
    }
}

/// Adds or replaces records that are JSON.
fn records(table: &Table, keys: Vec<String>, values: &[Vec<u8>]) -> Result<Statement, MemoryError> {
    let mut arguments = PgArguments::default();
    add(&mut arguments, keys)?;
    add(&mut arguments, values.iter().map(|value| json(value)).collect::<Result<Vec<_>, _>>()?)?;
    let Table { name, key, key_type, column, .. } = table;
    let sql = format!(
        "INSERT INTO {name} ({key}, {column}) SELECT new.key::{key_type}, new.value::jsonb \
         FROM unnest($1::text[], $2::text[]) AS new(key, value) \
         ON CONFLICT (tenant, {key}) DO UPDATE SET {column} = EXCLUDED.{column}"
    );
    Ok((sql, arguments))
}

/// Adds or replaces vectors.
fn vectors(ids: Vec<String>, values: &[Vec<u8>]) -> Result<Statement, MemoryError> {
    let vectors = values.iter().map(|bytes| StoredVector::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut arguments = PgArguments::default();
    add(&mut arguments, ids)?;
    add(&mut arguments, vectors.iter().map(|vector| vector.sequence.cast_signed()).collect::<Vec<_>>())?;
    add(&mut arguments, vectors.iter().map(|vector| vector.model.clone()).collect::<Vec<_>>())?;
    add(&mut arguments, vectors.iter().map(|vector| array_of(&vector.values)).collect::<Vec<_>>())?;
    let sql = "INSERT INTO hone.vectors (id, sequence, model, \"values\") \
               SELECT new.id::uuid, new.sequence, new.model, new.vector::real[] \
               FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS new(id, sequence, model, vector) \
               ON CONFLICT (tenant, id) DO UPDATE \
               SET sequence = EXCLUDED.sequence, model = EXCLUDED.model, \"values\" = EXCLUDED.\"values\"";
    Ok((sql.to_owned(), arguments))
}

/// Records changes to vectors.
fn changes(numbers: Vec<String>, values: &[Vec<u8>]) -> Result<Statement, MemoryError> {
    let changes = values.iter().map(|bytes| Change::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut arguments = PgArguments::default();
    add(&mut arguments, numbers)?;
    add(&mut arguments, changes.iter().map(|change| change.sequence.cast_signed()).collect::<Vec<_>>())?;
    add(&mut arguments, changes.iter().map(|change| change.id.to_string()).collect::<Vec<_>>())?;
    let sql = "INSERT INTO hone.changes (number, sequence, id) \
               SELECT new.number::bigint, new.sequence, new.id::uuid \
               FROM unnest($1::text[], $2::bigint[], $3::text[]) AS new(number, sequence, id) \
               ON CONFLICT (tenant, number) DO UPDATE SET sequence = EXCLUDED.sequence, id = EXCLUDED.id";
    Ok((sql.to_owned(), arguments))
}

/// Numbers as an array in PostgreSQL's notation; each is read back unchanged.
pub(super) fn array_of(values: &[f32]) -> String {
    let values: Vec<String> = values.iter().map(f32::to_string).collect();
    format!("{{{}}}", values.join(","))
}

/// JSON in a form that `jsonb` accepts.
fn json(bytes: &[u8]) -> Result<String, MemoryError> {
    let shown = shown(bytes)?;
    String::from_utf8(shown.into_owned()).map_err(|error| damaged("a record", &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_written_exactly() {
        let values = [0.1_f32, -1.5e-30, 3.402_823_5e38, f32::MIN_POSITIVE, 0.0];
        let text = array_of(&values);
        let read = text.trim_matches(['{', '}']).split(',').map(|value| value.parse::<f32>().unwrap());
        assert!(read.eq(values), "{text}");
    }
}
