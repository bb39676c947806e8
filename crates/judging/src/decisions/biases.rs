//! A bounded cache of models' responses to questions without a text.

use std::collections::{HashMap, VecDeque};

use hone_protocol::DecisionRequest;
use sha2::{Digest, Sha256};

use super::asked::Asked;
use super::distribution::OptionLogarithms;

/// Maximum number of remembered biases; the oldest one is dropped first. A bias with 255 options takes 4 KiB.
const MOST: usize = 4096;

/// A digest of everything that a bias depends on. It includes the owner: otherwise a faster answer could reveal another
/// owner's questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BiasKey([u8; 32]);

impl BiasKey {
    pub(super) fn new(request: &DecisionRequest, asked: &Asked) -> BiasKey {
        let owner = request.owner.map(|owner| owner.to_string()).unwrap_or_default();
        let mut sha256 = Sha256::new();
        for part in [&request.model, &request.identity, &owner, &*asked.text, asked.answer()] {
            sha256.update((part.len() as u64).to_le_bytes());
            sha256.update(part);
        }
        BiasKey(sha256.finalize().into())
    }
}

/// The known biases.
#[derive(Debug, Default)]
pub(super) struct Biases {
    known: HashMap<BiasKey, OptionLogarithms>,
    /// In order of insertion, the oldest first.
    order: VecDeque<BiasKey>,
}

impl Biases {
    pub(super) fn get(&self, key: &BiasKey) -> Option<OptionLogarithms> {
        self.known.get(key).cloned()
    }

    pub(super) fn insert(&mut self, key: BiasKey, bias: OptionLogarithms) {
        if self.known.insert(key, bias).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_biases_are_forgotten() {
        let mut biases = Biases::default();
        let key = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
            BiasKey(bytes)
        };
        (0..MOST + 10).for_each(|number| biases.insert(key(number), vec![(0, number as f64)]));
        biases.insert(key(MOST), vec![(0, 0.5)]);
        assert_eq!((biases.known.len(), biases.order.len()), (MOST, MOST));
        assert_eq!((biases.get(&key(9)), biases.get(&key(10))), (None, Some(vec![(0, 10.0)])));
        assert_eq!(biases.get(&key(MOST)), Some(vec![(0, 0.5)]));
    }
}
