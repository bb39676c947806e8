//! Statistics of critiques, and whether they meet the expectations for a critic.

use std::collections::BTreeMap;

use hone_judging::Share;
use hone_memory::{CritiqueRecord, Engram, MemoryError, MemoryStore, Whose};
use hone_protocol::{CriticMode, CritiqueResult, QueryId, Timestamp, VettingState};
use serde::Serialize;

/// The share of blocks above which the writer needs improvement rather than the critic.
pub const MOST_BLOCKED: f64 = 0.05;
/// The minimum share of reviewed blocks that were right.
pub const LEAST_RIGHT: f64 = 0.8;

/// Critique statistics, in the form of the critic's specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CriticStatistics {
    /// Critiques that were stored.
    pub total_critiques: usize,
    /// Critiques by level.
    pub by_level: BTreeMap<&'static str, usize>,
    /// Critiques by type of text.
    pub by_type: BTreeMap<&'static str, usize>,
    /// The share that blocked, or would have in soft mode; `None` without critiques.
    pub block_rate: Option<f64>,
    /// The mean validity, 0 to 1; `None` without critiques.
    pub average_validity: Option<f64>,
    /// The latest block.
    pub last_block: Option<LastBlock>,
    /// Blocks that a person has reviewed.
    pub reviewed_blocks: usize,
    /// The share of them that were right, with its 95 % interval.
    pub precision_of_blocks: Share,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastBlock {
    /// The engram.
    pub query_id: QueryId,
    /// When, in milliseconds since 1970.
    pub timestamp: Timestamp,
    /// The type of its text.
    pub content_type: &'static str,
    /// The critic's reason; empty if the engram was forgotten.
    pub reason: String,
}

/// A text that the critic has blocked, or would have in soft mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CriticBlock {
    /// The engram.
    pub query_id: QueryId,
    /// When.
    pub at: Timestamp,
    /// The type of its text.
    pub content_type: &'static str,
    /// How much the critic's word counted.
    pub mode: CriticMode,
    /// The engram's current state.
    pub state: VettingState,
    /// The text; empty if it was forgotten.
    pub text: String,
    /// The critic's reason; empty if it was forgotten.
    pub reason: String,
    /// The problems found in the text.
    pub challenges: Vec<String>,
    /// Whether a person confirmed the block; `None` until reviewed.
    pub right: Option<bool>,
}

impl CriticBlock {
    /// The blocks of these owners since then, newest first.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn since(store: &MemoryStore, since: Option<Timestamp>, whose: Whose) -> Result<Vec<CriticBlock>, MemoryError> {
        let mut blocks = Vec::new();
        for record in store.critiques(since)?.iter().rev().filter(|record| record.should_block) {
            let engram = store.get(record.query_id)?;
            if whose.includes(engram.as_ref().and_then(|engram| engram.owner)) {
                blocks.push(CriticBlock::of(record, engram));
            }
        }
        Ok(blocks)
    }

    fn of(record: &CritiqueRecord, engram: Option<Engram>) -> CriticBlock {
        let state = engram.as_ref().map_or(record.state, |engram| engram.vetting.state);
        let text = engram.as_ref().map(|engram| engram.answer.clone()).unwrap_or_default();
        let critique = engram.and_then(|engram| engram.vetting.critique);
        let CritiqueResult { reasoning: reason, challenges, .. } = critique.map(|it| it.result).unwrap_or_default();
        CriticBlock {
            query_id: record.query_id,
            at: record.at,
            content_type: record.content_type.name(),
            mode: record.mode,
            state,
            text,
            reason,
            challenges,
            right: record.ruling.map(|ruling| ruling.is_right),
        }
    }
}

impl CriticStatistics {
    /// The statistics of all critiques in memory.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub fn of_memory(store: &MemoryStore) -> Result<CriticStatistics, MemoryError> {
        let reason_of = |id: QueryId| {
            let critique = store.get(id).ok().flatten().and_then(|engram| engram.vetting.critique);
            critique.map(|critique| critique.result.reasoning).unwrap_or_default()
        };
        Ok(CriticStatistics::of(&store.critiques(None)?, reason_of))
    }

    /// The statistics of these critiques, oldest first. `reason_of` finds the reason of a block.
    fn of(records: &[CritiqueRecord], reason_of: impl FnOnce(QueryId) -> String) -> CriticStatistics {
        let n = records.len();
        let mut statistics = CriticStatistics { total_critiques: n, ..CriticStatistics::default() };
        for record in records {
            *statistics.by_level.entry(record.level.name()).or_default() += 1;
            *statistics.by_type.entry(record.content_type.name()).or_default() += 1;
        }
        let blocks: Vec<&CritiqueRecord> = records.iter().filter(|record| record.should_block).collect();
        if n > 0 {
            statistics.block_rate = Some(blocks.len() as f64 / n as f64);
            statistics.average_validity = Some(records.iter().map(|it| it.validity_score).sum::<f64>() / n as f64);
        }
        statistics.last_block = blocks.last().map(|block| LastBlock {
            query_id: block.query_id,
            timestamp: block.at,
            content_type: block.content_type.name(),
            reason: reason_of(block.query_id),
        });
        let rulings: Vec<bool> = blocks.iter().filter_map(|block| Some(block.ruling?.is_right)).collect();
        let right = rulings.iter().filter(|is_right| **is_right).count();
        statistics.reviewed_blocks = rulings.len();
        statistics.precision_of_blocks = Share::new(right as u64, rulings.len() as u64);
        statistics
    }
}

#[cfg(test)]
mod tests {
    use hone_memory::Ruling;
    use hone_protocol::{ContentType, CritiqueLevel};

    use super::*;

    fn record(number: u64, level: CritiqueLevel, ruling: Option<bool>) -> CritiqueRecord {
        CritiqueRecord {
            query_id: QueryId::from_bits(u128::from(number)),
            at: Timestamp(number),
            content_type: ContentType::Research,
            level,
            validity_score: 0.5,
            should_block: level == CritiqueLevel::Block,
            mode: CriticMode::Hard,
            state: VettingState::Reviewed,
            ruling: ruling.map(|is_right| Ruling { at: Timestamp(1), is_right }),
        }
    }

    #[test]
    fn figures_are_counted() {
        let block = CritiqueLevel::Block;
        let records = [
            record(1, CritiqueLevel::Pass, None),
            record(2, block, Some(true)),
            record(3, block, Some(false)),
            record(4, block, None),
            record(5, CritiqueLevel::Minor, None),
        ];
        let statistics = CriticStatistics::of(&records, |id| id.to_string());
        let json = serde_json::to_value(&statistics).unwrap();
        assert_eq!((&json["total_critiques"], &json["by_level"]["block"]), (&5.into(), &3.into()));
        assert_eq!((&json["by_type"]["research"], &json["block_rate"]), (&5.into(), &0.6.into()));
        assert_eq!((&json["reviewed_blocks"], &json["precision_of_blocks"]["share"]), (&2.into(), &0.5.into()));
        assert_eq!(json["last_block"]["timestamp"], 4);
        assert_eq!(CriticStatistics::of(&[], |_| String::new()).block_rate, None, "no share of nothing");
    }
}
