//! Graded answers that wait for the other respondent's answer to the same question.

use std::collections::VecDeque;

use crate::topic::{Topic, Withdrawal};

/// The most questions that wait; the oldest is evicted to make room.
pub(crate) const CAPACITY: usize = 100;

/// An answer and its score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graded {
    pub(crate) topic: Topic,
    pub(crate) query: String,
    pub(crate) answer: String,
    pub(crate) model: String,
    pub(crate) score: Option<u8>,
}

/// Both respondents' answers to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) a: Graded,
    pub(crate) b: Graded,
}

/// The waiting answers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PairBuffer {
    waiting: VecDeque<Graded>,
}

impl PairBuffer {
    /// Adds an answer; returns the pair that it completes. It does not matter which of the two comes first. A later
    /// answer of the same respondent to the same question replaces the earlier one.
    pub(crate) fn take(&mut self, graded: Graded) -> Option<Pair> {
        let same_question = |other: &Graded| other.topic.correlation_id == graded.topic.correlation_id;
        let earlier = self.waiting.iter().position(same_question).and_then(|index| self.waiting.remove(index));
        match earlier {
            Some(earlier) if earlier.topic.respondent_id < graded.topic.respondent_id => {
                Some(Pair { a: earlier, b: graded })
            }
            Some(earlier) if earlier.topic.respondent_id > graded.topic.respondent_id => {
                Some(Pair { a: graded, b: earlier })
            }
            _ => {
                self.waiting.push_back(graded);
                if self.waiting.len() > CAPACITY {
                    self.waiting.pop_front();
                }
                None
            }
        }
    }

    /// Removes withdrawn answers.
    pub(crate) fn withdraw(&mut self, withdrawal: Withdrawal) {
        self.waiting.retain(|graded| !withdrawal.concerns(&graded.topic));
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{QueryId, RespondentId, SessionId};

    use super::*;

    fn graded(respondent_id: RespondentId, question: usize) -> Graded {
        let correlation_id = QueryId::from_bits(question as u128);
        let query_id = if respondent_id == RespondentId::A { correlation_id } else { QueryId::fresh() };
        let topic = Topic { session_id: SessionId::from_bits(1), query_id, correlation_id, respondent_id };
        let [query, answer, model] = ["why?", "so", "m"].map(str::to_owned);
        Graded { topic, query, answer, model, score: Some(4) }
    }

    fn questions_of(pair: Option<Pair>) -> Option<QueryId> {
        pair.map(|pair| {
            assert_eq!((pair.a.topic.respondent_id, pair.b.topic.respondent_id), (RespondentId::A, RespondentId::B));
            assert_eq!(pair.a.topic.correlation_id, pair.b.topic.correlation_id);
            pair.a.topic.correlation_id
        })
    }

    /// Checks which pair each of these answers completes.
    #[track_caller]
    fn check(answers: &[(RespondentId, usize)], expected: &[Option<usize>]) {
        let mut buffer = PairBuffer::default();
        let completed: Vec<Option<QueryId>> = answers
            .iter()
            .map(|(respondent, question)| questions_of(buffer.take(graded(*respondent, *question))))
            .collect();
        let expected: Vec<Option<QueryId>> =
            expected.iter().map(|question| question.map(|question| QueryId::from_bits(question as u128))).collect();
        assert_eq!(completed, expected);
    }

    #[test]
    fn a_pair_is_complete_in_either_order() {
        use RespondentId::{A, B};
        check(&[(A, 1), (B, 1)], &[None, Some(1)]);
        check(&[(B, 1), (A, 1)], &[None, Some(1)]);
        check(&[(A, 1), (A, 2), (B, 2), (B, 1), (B, 1)], &[None, None, Some(2), Some(1), None]);
        check(&[(A, 1), (A, 1), (B, 1), (B, 1)], &[None, None, Some(1), None]);
    }

    #[test]
    fn the_oldest_makes_room() {
        use RespondentId::{A, B};
        let mut answers: Vec<_> = (0..=CAPACITY).map(|question| (A, question)).collect();
        let mut expected = vec![None; answers.len()];
        answers.extend([(B, 0), (B, 2), (B, CAPACITY)]);
        // B's answer to the evicted question 0 now waits, and evicts question 1.
        expected.extend([None, Some(2), Some(CAPACITY)]);
        check(&answers, &expected);
        answers.push((B, 1));
        expected.push(None);
        check(&answers, &expected);
    }

    #[test]
    fn what_is_withdrawn_is_forgotten() {
        let mut buffer = PairBuffer::default();
        buffer.take(graded(RespondentId::A, 1));
        buffer.take(graded(RespondentId::A, 2));
        buffer.withdraw(Withdrawal::Query(QueryId::from_bits(1)));
        assert_eq!(questions_of(buffer.take(graded(RespondentId::B, 1))), None);
        assert_eq!(questions_of(buffer.take(graded(RespondentId::B, 2))), Some(QueryId::from_bits(2)));
        buffer.take(graded(RespondentId::A, 3));
        buffer.withdraw(Withdrawal::Session(SessionId::from_bits(1)));
        assert!(buffer.waiting.is_empty());
    }
}
