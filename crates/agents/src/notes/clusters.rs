//! Exchanges that belong together, by meaning and time.
//!
//! The leader algorithm (Hartigan, 1975, "Clustering algorithms", chapter 3) over exchanges in order of time: each
//! joins the most similar open cluster, if it is similar enough to the mean of its members, and otherwise begins one. A
//! cluster closes when it is full or the next exchange comes too late for it, so only the means of open ones are kept.

use hone_protocol::{QueryId, Timestamp};

/// The limits of clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    /// The minimum cosine similarity to the mean of a cluster.
    pub(super) similarity: f32,
    /// The most milliseconds between two consecutive members.
    pub(super) gap: u64,
    /// The most members.
    pub(super) most: usize,
}

/// Growing clusters.
pub(super) struct Clusters {
    division: Division,
    open: Vec<OpenCluster>,
    closed: Vec<Vec<QueryId>>,
}

struct OpenCluster {
    members: Vec<QueryId>,
    /// The sum of the members' vectors, and its length.
    sum: Vec<f32>,
    length: f32,
    last: Timestamp,
}

impl Clusters {
    pub(super) fn new(division: Division) -> Clusters {
        Clusters { division, open: Vec::new(), closed: Vec::new() }
    }

    /// Adds the next exchange. Its vector has length 1; a vector with other dimensions than a cluster's is not similar
    /// to it.
    pub(super) fn add(&mut self, id: QueryId, at: Timestamp, vector: &[f32]) {
        self.close_before(Timestamp(at.0.saturating_sub(self.division.gap)));
        let similarity = |open: &OpenCluster| {
            if open.sum.len() == vector.len() { dot(&open.sum, vector) / open.length } else { -1.0 }
        };
        let nearest = self.open.iter().enumerate().map(|(index, open)| (index, similarity(open)));
        let nearest = nearest.max_by(|(_, a), (_, b)| a.total_cmp(b));
        match nearest {
            Some((index, similarity)) if similarity >= self.division.similarity => {
                let open = &mut self.open[index];
                open.members.push(id);
                open.sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
                open.length = dot(&open.sum, &open.sum).sqrt().max(f32::MIN_POSITIVE);
                open.last = at;
                if open.members.len() >= self.division.most {
                    let full = self.open.swap_remove(index);
                    self.closed.push(full.members);
                }
            }
            _ => self.open.push(OpenCluster { members: vec![id], sum: vector.to_vec(), length: 1.0, last: at }),
        }
    }

    fn close_before(&mut self, oldest: Timestamp) {
        let mut index = 0;
        while index < self.open.len() {
            if self.open[index].last < oldest {
                self.closed.push(self.open.swap_remove(index).members);
            } else {
                index += 1;
            }
        }
    }

    /// The members of every cluster with at least `least` of them, oldest first.
    pub(super) fn finish(mut self, least: usize) -> Vec<Vec<QueryId>> {
        self.close_before(Timestamp(u64::MAX));
        self.closed.extend(self.open.drain(..).map(|open| open.members));
        self.closed.retain(|members| members.len() >= least);
        // Ids begin with the time.
        self.closed.sort_unstable();
        self.closed
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clusters of (hour, angle in degrees), by their places.
    fn clusters(exchanges: &[(u64, f32)], most: usize) -> Vec<Vec<u128>> {
        let division = Division { similarity: 0.9, gap: 24 * 3_600_000, most };
        let mut clusters = Clusters::new(division);
        for (number, (hour, degrees)) in exchanges.iter().enumerate() {
            let angle = degrees.to_radians();
            let id = QueryId::from_bits(number as u128);
            clusters.add(id, Timestamp(hour * 3_600_000), &[angle.cos(), angle.sin()]);
        }
        let number = |id: &QueryId| u128::from_be_bytes(*id.as_bytes());
        clusters.finish(2).iter().map(|members| members.iter().map(number).collect()).collect()
    }

    #[test]
    fn what_is_similar_and_near_in_time_belongs_together() {
        assert_eq!(clusters(&[(0, 0.0), (1, 90.0), (2, 10.0), (3, 85.0), (4, 180.0)], 8), [vec![0, 2], vec![1, 3]]);
        assert_eq!(clusters(&[(0, 0.0), (23, 5.0), (47, 0.0), (72, 5.0)], 8), [vec![0, 1, 2]], "25 hours are too long");
        assert_eq!(clusters(&[(0, 0.0); 5], 2), [vec![0, 1], vec![2, 3]], "a full one is closed");
        assert_eq!(clusters(&[(0, 0.0)], 8), Vec::<Vec<u128>>::new());
    }
}
