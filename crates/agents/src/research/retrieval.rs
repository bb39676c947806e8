//! Finds the passages that may answer a question, by meaning and by words.
//!
//! Both rankings are merged by reciprocal rank fusion, as in memory recall.

use std::collections::{BTreeMap, HashSet};

use hone_memory::words::WordIndex;

use super::document::Passage;

/// The constant of reciprocal rank fusion, as set by its authors.
const FUSION: f32 = 60.0;

/// The vectors of a question and of passages; all have length 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassageVectors {
    /// The question's vector.
    pub question: Vec<f32>,
    /// The passages' vectors.
    pub passages: Vec<Vec<f32>>,
}

/// The `n` best passages for the question, best first, each text once. Without vectors, only words are compared.
pub fn best_passages(question: &str, passages: &[Passage], vectors: Option<&PassageVectors>, n: usize) -> Vec<Passage> {
    let mut fused: BTreeMap<usize, f32> = BTreeMap::new();
    let by_words = by_words(question, passages);
    let by_meaning = vectors.map(by_meaning).unwrap_or_default();
    for ranking in [by_words, by_meaning] {
        for (rank, index) in ranking.into_iter().enumerate() {
            *fused.entry(index).or_default() += 1.0 / (FUSION + 1.0 + rank as f32);
        }
    }
    let mut ranked: Vec<(usize, f32)> = fused.into_iter().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut seen = HashSet::new();
    let passages = ranked.into_iter().filter_map(|(index, _)| passages.get(index));
    passages.filter(|passage| seen.insert(passage.text.as_str())).take(n).cloned().collect()
}

fn by_words(question: &str, passages: &[Passage]) -> Vec<usize> {
    let mut index = WordIndex::default();
    for (number, passage) in passages.iter().enumerate() {
        index.set(number as u64, Some(&passage.text));
    }
    index.best(question, passages.len()).into_iter().map(|found| found.sequence as usize).collect()
}

fn by_meaning(vectors: &PassageVectors) -> Vec<usize> {
    let similarity = |vector: &Vec<f32>| vector.iter().zip(&vectors.question).map(|(a, b)| a * b).sum::<f32>();
    let mut ranked: Vec<(usize, f32)> = vectors.passages.iter().map(similarity).enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::document::PassagePlace;

    fn passages(texts: &[&str]) -> Vec<Passage> {
        let place = |line| PassagePlace::Lines { file: "a".to_owned(), first: line, last: line };
        texts.iter().enumerate().map(|(line, text)| Passage { place: place(line), text: (*text).to_owned() }).collect()
    }

    #[track_caller]
    fn check(texts: &[&str], vectors: Option<&PassageVectors>, expected: &[&str]) {
        let found = best_passages("When was the mill built?", &passages(texts), vectors, 2);
        assert_eq!(found.iter().map(|passage| passage.text.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn words_and_meaning_find_passages_and_each_text_comes_once() {
        let texts = ["The weather is fine.", "The mill was built in 1792.", "The mill.", "The mill was built in 1792."];
        check(&texts, None, &["The mill was built in 1792.", "The mill."]);
        check(&["The weather is fine."], None, &[]);
        let passages = [0.1, 0.9, 0.2].map(|value| vec![value, 0.0]).to_vec();
        let vectors = PassageVectors { question: vec![1.0, 0.0], passages };
        let texts = ["It rains.", "Anna erected it.", "Stones."];
        check(&texts, Some(&vectors), &["Anna erected it.", "Stones."]);
    }
}
