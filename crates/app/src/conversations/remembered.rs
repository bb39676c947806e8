//! The entries in memory that belong to a conversation.

use std::collections::HashSet;

use hone_memory::{Engram, Filters, MemoryError, MemoryStore, Whose};
use hone_protocol::QueryId;

use super::saved::SavedConversation;

/// The remembered results of a conversation: its answers in all branches, including a second respondent's, facts stated
/// in its questions, and notes derived from any of these.
///
/// # Errors
/// When memory cannot be read.
pub fn remembered_of(
    conversation: &SavedConversation,
    store: &MemoryStore,
    whose: Whose,
) -> Result<Vec<QueryId>, MemoryError> {
    let asked: HashSet<QueryId> = conversation.exchanges.all().filter_map(|exchange| exchange.query_id).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let all = store.list(&Filters { whose, facts: true, notes: true, ..Filters::default() }, usize::MAX)?;
    let came_of = |engram: &&Engram| {
        let own = [Some(engram.query_id), Some(engram.correlation_id), engram.source];
        own.iter().flatten().chain(&engram.sources).any(|id| asked.contains(id))
    };
    Ok(all.iter().filter(came_of).map(|engram| engram.query_id).collect())
}
