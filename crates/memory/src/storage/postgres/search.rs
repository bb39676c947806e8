//! Search in the database: vectors with pgvector, words with PostgreSQL's index of texts.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use super::connection;
use super::writing::array_of;
use super::{LONGEST_ANSWER, PostgresStorage, add};
use crate::engram::Engram;
use crate::error::MemoryError;
use crate::index::Neighbour;
use crate::lock::lock;
use crate::records::from_json;
use crate::request::Vector;
use crate::words::{self, Collection, WordMatch};

/// From this number of vectors on, they are indexed; smaller sets are compared completely, which misses none.
const INDEXED_FROM: i64 = 5_000;

/// The most dimensions that pgvector indexes.
const MOST_DIMENSIONS: usize = 2_000;

/// The most results of an approximate search; `hnsw.ef_search` is 1000.
const MOST_APPROXIMATE: usize = 800;

/// The time limit of a search, which compares all vectors at worst.
const LONGEST_COMPARING: Duration = Duration::from_secs(60);

/// Texts examined per result: PostgreSQL knows their words, but not the number of occurrences.
const TEXTS_PER_RESULT: usize = 2;

/// The interval for checking whether an index exists by now.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// The extension that compares vectors.
pub(super) struct Pgvector {
    /// Its schema, as an SQL identifier, which need not be in the search path.
    schema: String,
    indexed: Mutex<Indexed>,
}

impl Pgvector {
    pub(super) fn new(schema: String) -> Pgvector {
        Pgvector { schema, indexed: Mutex::default() }
    }
}

/// The state of the index of vectors.
#[derive(Default)]
struct Indexed {
    /// The models whose vectors have an index.
    models: HashSet<(String, usize)>,
    /// The models for which this process has tried to create one.
    tried: HashSet<(String, usize)>,
    /// The time of the last check.
    looked: Option<Instant>,
}

/// The `n` nearest vectors of a model, nearest first.
pub(super) fn nearest(
    storage: &PostgresStorage,
    pgvector: &Pgvector,
    vector: &Vector,
    n: usize,
) -> Result<Vec<Neighbour>, MemoryError> {
    let schema = &pgvector.schema;
    if n <= MOST_APPROXIMATE && has_index(storage, pgvector, vector)? {
        let found = compare(storage, schema, vector, n, true)?;
        // Vectors of other roles are in the same index, and may have displaced this role's.
        if found.len() == n {
            return Ok(found);
        }
    }
    compare(storage, schema, vector, n, false)
}

fn compare(
    storage: &PostgresStorage,
    schema: &str,
    vector: &Vector,
    n: usize,
    by_index: bool,
) -> Result<Vec<Neighbour>, MemoryError> {
    let (model, dimensions) = (quoted(&vector.model), vector.values.len());
    // The index is over this expression; any other one is computed for every vector.
    let fixed = if by_index { format!("({dimensions})") } else { String::new() };
    let sql = format!(
        "SELECT sequence, (-distance)::float4 AS similarity FROM \
         (SELECT sequence, (\"values\"::{schema}.vector{fixed}) OPERATOR({schema}.<#>) \
         $1::text::real[]::{schema}.vector({dimensions}) AS distance FROM hone.vectors \
         WHERE tenant = current_user AND model = {model} AND cardinality(\"values\") = {dimensions} \
         ORDER BY distance LIMIT {n}) AS nearest ORDER BY distance"
    );
    let mut arguments = PgArguments::default();
    add(&mut arguments, array_of(&vector.values))?;
    let rows = storage.rows(sql, arguments, LONGEST_COMPARING)?;
    let neighbour = |row| {
        let sequence: i64 = storage.column(row, "sequence")?;
        Ok(Neighbour { sequence: sequence.cast_unsigned(), similarity: storage.column(row, "similarity")? })
    };
    rows.iter().map(neighbour).collect()
}

/// Whether the vectors of a model are indexed. If they should be, indexing starts in the background.
fn has_index(storage: &PostgresStorage, pgvector: &Pgvector, vector: &Vector) -> Result<bool, MemoryError> {
    let Pgvector { schema, indexed } = pgvector;
    let (model, dimensions) = (&vector.model, vector.values.len());
    let key = (model.clone(), dimensions);
    {
        let mut indexed = lock(indexed);
        let has_looked = indexed.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS);
        if indexed.models.contains(&key) || has_looked || dimensions > MOST_DIMENSIONS {
            return Ok(indexed.models.contains(&key));
        }
        indexed.looked = Some(Instant::now());
    }
    let name = index_name(model, dimensions);
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('hone.{name}') AND indisvalid) AS there, \
         (SELECT count(*) FROM (SELECT 1 FROM hone.vectors WHERE tenant = current_user AND model = $1 \
         LIMIT {INDEXED_FROM}) AS counted) AS n"
    );
    let mut arguments = PgArguments::default();
    add(&mut arguments, model.clone())?;
    let rows = storage.rows(sql, arguments, LONGEST_ANSWER)?;
    let Some(row) = rows.first() else { return Ok(false) };
    if storage.column(row, "there")? {
        lock(indexed).models.insert(key);
        return Ok(true);
    }
    if storage.column::<i64>(row, "n")? >= INDEXED_FROM && lock(indexed).tried.insert(key) {
        create_index(storage, schema, model, dimensions);
    }
    Ok(false)
}

/// Creates the index on a connection of its own, without blocking writes. A role that does not own the table lacks the
/// permission, and then compares all vectors; so does every role until the index exists.
fn create_index(storage: &PostgresStorage, schema: &str, model: &str, dimensions: usize) {
    let name = index_name(model, dimensions);
    let created = format!(
        "CREATE INDEX CONCURRENTLY {name} ON hone.vectors USING hnsw \
         ((\"values\"::{schema}.vector({dimensions})) {schema}.vector_ip_ops) \
         WHERE model = {} AND cardinality(\"values\") = {dimensions}",
        quoted(model)
    );
    // Creation waits for other writes, and the leftovers of an interrupted attempt would block it.
    let statements =
        ["SET lock_timeout = 0".to_owned(), format!("DROP INDEX CONCURRENTLY IF EXISTS hone.{name}"), created];
    let options = storage.connections.options();
    connection::spawn(async move {
        let create = async {
            let mut connection = PgConnection::connect_with(&options).await?;
            for statement in statements {
                sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await?;
            }
            connection.close().await
        };
        match create.await {
            Ok(()) => tracing::info!("the vectors in the database are indexed"),
            Err(error) => tracing::info!(%error, "the vectors in the database are not indexed by this process"),
        }
    });
}

/// A name for the index of a model: its letters, and a sum, because different names may have the same letters.
fn index_name(model: &str, dimensions: usize) -> String {
    let letters: String = model.chars().filter(char::is_ascii_alphanumeric).take(24).collect();
    format!("vectors_of_{}_{dimensions}_{:08x}", letters.to_lowercase(), crc32fast::hash(model.as_bytes()))
}

/// A text as an SQL literal. The index has the model's name, which an argument would hide.
fn quoted(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The `n` texts that match a question best, with the formula of [`words`]. The database provides the number of texts
/// with each word and the texts with most of them; those texts are read and scored here.
pub(super) fn best_by_words(
    storage: &PostgresStorage,
    question: &str,
    n: usize,
) -> Result<Vec<WordMatch>, MemoryError> {
    let asked: Vec<String> = words::asked(question).into_iter().collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let (collection, n_with) = frequencies(storage, &asked)?;
    let rarity: Vec<f32> = n_with.iter().map(|n_with| collection.rarity(*n_with)).collect();
    let all: f32 = rarity.iter().sum();
    let sql = "SELECT sequence, fields::text AS fields FROM hone.texts_like($1, $2, $3)";
    let n_read = i32::try_from(n * TEXTS_PER_RESULT).unwrap_or(i32::MAX);
    let mut arguments = PgArguments::default();
    add(&mut arguments, asked.iter().map(|word| lexeme(word)).collect::<Vec<_>>())?;
    add(&mut arguments, rarity.clone())?;
    add(&mut arguments, n_read)?;
    let mut found = Vec::new();
    for row in storage.rows(sql.to_owned(), arguments, LONGEST_ANSWER)? {
        let (sequence, fields): (i64, String) = (storage.column(&row, "sequence")?, storage.column(&row, "fields")?);
        let engram: Engram = from_json("an engram", fields.as_bytes())?;
        let counts = words::counts(&engram.text());
        let n_words = Some(counts.values().sum());
        let mut matched = WordMatch { sequence: sequence.cast_unsigned(), score: 0.0, share: 0.0 };
        for (word, rarity) in asked.iter().zip(&rarity) {
            if let Some(count) = counts.get(word) {
                matched.score += rarity * collection.saturated(*count, n_words);
                matched.share += rarity / all;
            }
        }
        found.push(matched);
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.sequence.cmp(&a.sequence)));
    found.truncate(n);
    Ok(found)
}

/// The numbers of texts and words, and the number of texts with each of these words.
fn frequencies(storage: &PostgresStorage, asked: &[String]) -> Result<(Collection, Vec<u64>), MemoryError> {
    let sql = "SELECT n_texts, n_words, hone.texts_with($1) AS n_with FROM hone.heads WHERE tenant = current_user";
    let mut arguments = PgArguments::default();
    add(&mut arguments, asked.iter().map(|word| lexeme(word)).collect::<Vec<_>>())?;
    let rows = storage.rows(sql.to_owned(), arguments, LONGEST_ANSWER)?;
    let Some(row) = rows.first() else { return Ok((Collection { n_texts: 0, n_words: 0 }, vec![0; asked.len()])) };
    let count = |name: &str| storage.column::<i64>(row, name).map(|n| u64::try_from(n).unwrap_or_default());
    let collection = Collection { n_texts: count("n_texts")?, n_words: count("n_words")? };
    let n_with: Vec<i64> = storage.column(row, "n_with")?;
    Ok((collection, n_with.into_iter().map(|n| u64::try_from(n).unwrap_or_default()).collect()))
}

/// A word as a query of PostgreSQL's index.
fn lexeme(word: &str) -> String {
    format!("'{}'", word.replace('\\', "\\\\").replace('\'', "''"))
}
