//! The queue of engrams whose intent and entities are to be extracted.

use std::collections::VecDeque;

use hone_protocol::QueryId;

/// The most waiting engrams; the oldest stays without intent and entities until a later session.
pub(crate) const CAPACITY: usize = 100;

/// The waiting engrams.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// Whether an engram waits for its grade first.
    waits_for_grades: bool,
    /// Oldest first.
    waiting: VecDeque<Job>,
    /// Engrams of earlier sessions, which come after all others.
    backlog: Vec<QueryId>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    query_id: QueryId,
    is_stored: bool,
    is_graded: bool,
}

impl Jobs {
    pub(crate) fn new(waits_for_grades: bool) -> Self {
        Jobs { waits_for_grades, waiting: VecDeque::new(), backlog: Vec::new() }
    }

    /// Records that an engram was stored.
    pub(crate) fn stored(&mut self, query_id: QueryId) {
        self.job(query_id).is_stored = true;
    }

    /// Records that an engram was graded, perhaps without a score.
    pub(crate) fn graded(&mut self, query_id: QueryId) {
        self.job(query_id).is_graded = true;
    }

    /// Adds engrams left over from earlier sessions; the last of them comes first.
    pub(crate) fn left_over(&mut self, query_ids: impl IntoIterator<Item = QueryId>) {
        let is_waiting = |id: &QueryId| self.waiting.iter().any(|job| job.query_id == *id);
        let left_over: Vec<QueryId> = query_ids.into_iter().filter(|id| !is_waiting(id)).collect();
        self.backlog.extend(left_over);
    }

    /// Returns the engram that was taken last to the queue.
    pub(crate) fn put_back(&mut self, query_id: QueryId) {
        self.waiting.push_front(Job { query_id, is_stored: true, is_graded: true });
        self.waiting.truncate(CAPACITY);
    }

    /// Whether there is an engram to be taken.
    pub(crate) fn has_next(&self) -> bool {
        self.waiting.iter().any(|job| self.is_ready(job)) || !self.backlog.is_empty()
    }

    /// Takes the next engram.
    pub(crate) fn next(&mut self) -> Option<QueryId> {
        match self.waiting.iter().position(|job| self.is_ready(job)) {
            Some(index) => self.waiting.remove(index).map(|job| job.query_id),
            None => self.backlog.pop(),
        }
    }

    fn is_ready(&self, job: &Job) -> bool {
        job.is_stored && (job.is_graded || !self.waits_for_grades)
    }

    fn job(&mut self, query_id: QueryId) -> &mut Job {
        let index = self.waiting.iter().position(|job| job.query_id == query_id).unwrap_or_else(|| {
            if self.waiting.len() >= CAPACITY {
                self.waiting.pop_front();
            }
            self.waiting.push_back(Job { query_id, is_stored: false, is_graded: false });
            self.waiting.len() - 1
        });
        &mut self.waiting[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> QueryId {
        QueryId::from_bits(number as u128)
    }

    #[test]
    fn an_engram_waits_for_memory_and_its_grade_in_either_order() {
        let mut jobs = Jobs::new(true);
        jobs.stored(id(1));
        jobs.graded(id(2));
        assert_eq!(jobs.next(), None);
        jobs.graded(id(1));
        jobs.stored(id(2));
        assert_eq!([jobs.next(), jobs.next(), jobs.next()], [Some(id(1)), Some(id(2)), None]);
        let mut jobs = Jobs::new(false);
        jobs.stored(id(1));
        assert_eq!(jobs.next(), Some(id(1)));
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut jobs = Jobs::new(true);
        [1, 2].iter().for_each(|number| jobs.stored(id(*number)));
        [1, 2].iter().for_each(|number| jobs.graded(id(*number)));
        let taken = jobs.next();
        assert_eq!(taken, Some(id(1)));
        taken.into_iter().for_each(|taken| jobs.put_back(taken));
        assert!(jobs.has_next());
        assert_eq!([jobs.next(), jobs.next()], [Some(id(1)), Some(id(2))]);
        assert!(!jobs.has_next());
    }

    #[test]
    fn what_was_left_over_comes_last_and_once() {
        let mut jobs = Jobs::new(false);
        jobs.stored(id(3));
        jobs.left_over([id(1), id(2), id(3)]);
        assert_eq!([jobs.next(), jobs.next(), jobs.next(), jobs.next()], [Some(id(3)), Some(id(2)), Some(id(1)), None]);
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut jobs = Jobs::new(false);
        (0..=CAPACITY).for_each(|number| jobs.stored(id(number)));
        let taken: Vec<Option<QueryId>> = (0..=CAPACITY).map(|_| jobs.next()).collect();
        let mut expected: Vec<Option<QueryId>> = (1..=CAPACITY).map(|number| Some(id(number))).collect();
        expected.push(None);
        assert_eq!(taken, expected);
    }
}
