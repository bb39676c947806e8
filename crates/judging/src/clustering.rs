//! Merges texts with the same meaning, by the vectors of an embedding model.
//!
//! The leader algorithm (Hartigan, 1975, "Clustering algorithms", chapter 3): the texts are taken in order, the most
//! frequent first; each joins the group with the most similar leader if the similarity suffices, and otherwise leads a
//! new group. A group is represented by its leader's text, written by a person or a judge, so nothing needs to be
//! summarized.

/// Minimum cosine similarity of a text to the leader of its group. Sentence embedders put paraphrases above it, and
/// sentences about the same subject with different meanings below it.
const SIMILAR: f32 = 0.7;

/// Merges texts with the same meaning. `texts` are in order, the most frequent first, each with its count; `vectors`
/// have length 1, in the order of the texts. Returns the leaders' texts with the counts of their groups, the largest
/// first.
pub fn clustered(texts: &[(String, usize)], vectors: &[Vec<f32>]) -> Vec<(String, usize)> {
    let mut leaders: Vec<(usize, usize)> = Vec::new();
    for (index, ((_, count), vector)) in texts.iter().zip(vectors).enumerate() {
        let similarity = |(leader, _): &(usize, usize)| cosine(&vectors[*leader], vector);
        let nearest =
            leaders.iter_mut().map(|leader| (similarity(leader), leader)).max_by(|(a, _), (b, _)| a.total_cmp(b));
        match nearest {
            Some((similarity, (_, total))) if similarity >= SIMILAR => *total += count,
            _ => leaders.push((index, *count)),
        }
    }
    // Stable, so that among equal counts the earlier text comes first.
    leaders.sort_by_key(|(_, total)| std::cmp::Reverse(*total));
    leaders.into_iter().map(|(leader, total)| (texts[leader].0.clone(), total)).collect()
}

/// The cosine of two vectors of length 1.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector of length 1 at an angle in degrees.
    fn at(degrees: f32) -> Vec<f32> {
        let angle = degrees.to_radians();
        vec![angle.cos(), angle.sin()]
    }

    #[track_caller]
    fn check(texts: &[(&str, usize, f32)], expected: &[(&str, usize)]) {
        let vectors: Vec<Vec<f32>> = texts.iter().map(|(_, _, degrees)| at(*degrees)).collect();
        let texts: Vec<(String, usize)> = texts.iter().map(|(text, count, _)| ((*text).to_owned(), *count)).collect();
        let found = clustered(&texts, &vectors);
        let found: Vec<(&str, usize)> = found.iter().map(|(text, count)| (text.as_str(), *count)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn texts_that_say_the_same_are_counted_together_under_the_commonest() {
        check(&[], &[]);
        check(
            &[("add tests", 3, 0.0), ("write tests", 2, 20.0), ("be brief", 1, 90.0)],
            &[("add tests", 5), ("be brief", 1)],
        );
        check(&[("a", 3, 0.0), ("b", 2, 90.0), ("b again", 2, 80.0)], &[("b", 4), ("a", 3)]);
    }

    #[test]
    fn a_text_joins_the_nearest_leader_and_never_a_chain() {
        check(&[("a", 3, 0.0), ("b", 3, 70.0), ("nearer to b", 1, 40.0)], &[("b", 4), ("a", 3)]);
        // 60 is near 30, which is not a leader.
        check(&[("a", 3, 0.0), ("a too", 2, 30.0), ("other", 1, 60.0)], &[("a", 5), ("other", 1)]);
    }
}
