//! Which engrams wait for their meaning to be extracted, and whether this is the time.

use std::collections::{HashSet, VecDeque};

use hone_protocol::{QueryId, RespondentId};

/// How many engrams wait at most; the oldest stays without intent and entities.
pub(crate) const CAPACITY: usize = 100;

/// The engrams that wait, and the questions that are being answered meanwhile.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// The respondents who answer a question.
    respondents: Vec<RespondentId>,
    /// Whether an engram waits for its grade.
    waits_for_grades: bool,
    /// Oldest first.
    waiting: VecDeque<Job>,
    unanswered: HashSet<(QueryId, RespondentId)>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    query_id: QueryId,
    is_stored: bool,
    is_graded: bool,
}

impl Jobs {
    pub(crate) fn new(respondents: Vec<RespondentId>, waits_for_grades: bool) -> Self {
        Jobs { respondents, waits_for_grades, waiting: VecDeque::new(), unanswered: HashSet::new() }
    }

    /// A question was asked; `correlation_id` is the id under which it was received.
    pub(crate) fn asked(&mut self, correlation_id: QueryId) {
        self.unanswered.extend(self.respondents.iter().map(|respondent| (correlation_id, *respondent)));
    }

    /// A respondent has answered a question, or will not.
    pub(crate) fn answered(&mut self, correlation_id: QueryId, respondent: RespondentId) {
        self.unanswered.remove(&(correlation_id, respondent));
    }

    /// An engram is in memory.
    pub(crate) fn stored(&mut self, query_id: QueryId) {
        self.job(query_id).is_stored = true;
    }

    /// An engram has its grade, or an explicit null.
    pub(crate) fn graded(&mut self, query_id: QueryId) {
        self.job(query_id).is_graded = true;
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn is_answering(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// The next engram, when nobody waits for an answer.
    pub(crate) fn next(&mut self) -> Option<QueryId> {
        if self.is_answering() {
            return None;
        }
        let is_ready = |job: &Job| job.is_stored && (job.is_graded || !self.waits_for_grades);
        let index = self.waiting.iter().position(is_ready)?;
        self.waiting.remove(index).map(|job| job.query_id)
    }

    /// Puts an engram back that `next` gave, to be the first again.
    pub(crate) fn put_back(&mut self, query_id: QueryId) {
        self.waiting.push_front(Job { query_id, is_stored: true, is_graded: true });
        self.waiting.truncate(CAPACITY);
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
        let mut jobs = Jobs::new(vec![RespondentId::A], true);
        jobs.stored(id(1));
        jobs.graded(id(2));
        assert_eq!(jobs.next(), None);
        jobs.graded(id(1));
        jobs.stored(id(2));
        assert_eq!([jobs.next(), jobs.next(), jobs.next()], [Some(id(1)), Some(id(2)), None]);
        let mut jobs = Jobs::new(vec![RespondentId::A], false);
        jobs.stored(id(1));
        assert_eq!(jobs.next(), Some(id(1)));
    }

    #[test]
    fn nothing_is_begun_while_somebody_waits_for_an_answer() {
        let mut jobs = Jobs::new(vec![RespondentId::A, RespondentId::B], false);
        jobs.stored(id(1));
        jobs.asked(id(2));
        assert_eq!(jobs.next(), None);
        jobs.answered(id(2), RespondentId::A);
        assert_eq!(jobs.next(), None, "B still answers");
        jobs.answered(id(2), RespondentId::B);
        assert_eq!(jobs.next(), Some(id(1)));
        jobs.stored(id(3));
        jobs.put_back(id(1));
        assert_eq!([jobs.next(), jobs.next()], [Some(id(1)), Some(id(3))]);
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut jobs = Jobs::new(vec![RespondentId::A], false);
        (0..=CAPACITY).for_each(|number| jobs.stored(id(number)));
        jobs.put_back(id(CAPACITY + 7));
        let taken: Vec<Option<QueryId>> = (0..=CAPACITY).map(|_| jobs.next()).collect();
        let mut expected = vec![Some(id(CAPACITY + 7))];
        expected.extend((1..CAPACITY).map(|number| Some(id(number))));
        expected.push(None);
        assert_eq!(taken, expected);
    }
}
