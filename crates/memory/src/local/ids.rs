//! Abbreviated ids, as users type them: the first digits of an id.
//!
//! Ids of the same hour begin alike, since they begin with the time (UUID version 7). The number of digits that
//! distinguishes an id from all others follows from its neighbours in sorted order.

use std::ops::Bound;

use hone_protocol::QueryId;

use super::opened::Opened;
use crate::error::MemoryError;
use crate::records::{engram_key, id_of};

/// The fewest digits of an abbreviated id.
const FEWEST_DIGITS: usize = 6;

/// The digits of a full id.
const ALL_DIGITS: usize = 32;

/// The most ids that an abbreviation is resolved to.
const MOST_CANDIDATES: usize = 8;

impl Opened {
    /// The engrams whose ids begin with these hexadecimal digits; dashes do not count.
    pub(super) fn ids_with_prefix(&self, prefix: &str) -> Result<Vec<QueryId>, MemoryError> {
        let (first, last) = bounds(prefix)?;
        let records = self.storage.range(engram_key(first)..=engram_key(last));
        records.take(MOST_CANDIDATES).map(|record| id_of(&record?.0[1..])).collect()
    }

    /// The number of digits that distinguishes each id from all others.
    pub(super) fn abbreviate(&self, ids: &[QueryId]) -> Result<Vec<usize>, MemoryError> {
        ids.iter().map(|id| self.digits_of(*id)).collect()
    }

    fn digits_of(&self, id: QueryId) -> Result<usize, MemoryError> {
        let key = engram_key(id);
        let before = self.storage.last(vec![b'e']..key.clone());
        let after = self.storage.first((Bound::Excluded(key), Bound::Excluded(vec![b'e' + 1])));
        let mut digits = FEWEST_DIGITS;
        for neighbour in [before, after].into_iter().flatten() {
            let neighbour = id_of(&neighbour?.0[1..])?;
            digits = digits.max(common_digits(id, neighbour) + 1);
        }
        Ok(digits.min(ALL_DIGITS))
    }
}

/// The lowest and the highest id with these first digits.
fn bounds(prefix: &str) -> Result<(QueryId, QueryId), MemoryError> {
    let refused = |reason: &str| MemoryError::Id { text: prefix.to_owned(), reason: reason.to_owned() };
    let digits: String = prefix.chars().filter(|character| *character != '-').collect();
    if digits.len() < FEWEST_DIGITS || digits.len() > ALL_DIGITS {
        return Err(refused("an id is abbreviated to 6 to 32 hexadecimal digits"));
    }
    if !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(refused("it contains characters that are not hexadecimal digits"));
    }
    let padded = |filler: &str| format!("{digits}{}", filler.repeat(ALL_DIGITS - digits.len()));
    let parsed = |text: String| u128::from_str_radix(&text, 16).map_err(|error| refused(&error.to_string()));
    Ok((QueryId::from_bits(parsed(padded("0"))?), QueryId::from_bits(parsed(padded("f"))?)))
}

fn common_digits(a: QueryId, b: QueryId) -> usize {
    let bits = |id: QueryId| u128::from_be_bytes(*id.as_bytes());
    (bits(a) ^ bits(b)).leading_zeros() as usize / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_bounds() {
        let (first, last) = bounds("0199-aB12").unwrap();
        assert_eq!(first.to_string(), "0199ab12-0000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0199ab12-ffff-ffff-ffff-ffffffffffff");
        let whole = "0199ab12-0000-7000-8000-000000000001";
        assert_eq!(bounds(whole).unwrap().0.to_string(), whole);
        assert_eq!(bounds(whole).unwrap().1.to_string(), whole);
        for wrong in ["", "0199a", "0199-a", "0199zz", "0199ab12-0000-7000-8000-0000000000011", "+12345"] {
            assert!(matches!(bounds(wrong), Err(MemoryError::Id { .. })), "{wrong}");
        }
    }

    #[test]
    fn digits_in_common_are_counted() {
        let id = |bits| QueryId::from_bits(bits);
        assert_eq!(common_digits(id(0), id(u128::MAX)), 0);
        assert_eq!(common_digits(id(0x12), id(0x13)), 31);
        assert_eq!(common_digits(id(5), id(5)), 32);
    }
}
