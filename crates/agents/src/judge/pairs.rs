//! Answers that wait for the other respondent's answer to the same question, and pairs that wait to be compared.
//!
//! The buffer outlives an agent that panics: the next agent resumes the comparison that the last one was working on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hone_bus::Bus;
use hone_judging::CompareTask;
use hone_memory::Engram;
use hone_protocol::{ComparedAnswer, Comparison, Grade, GradedAnswer, Payload, Preference, RespondentId};

use crate::topic::{Topic, Withdrawal};

/// The most answers that wait for the other one, which may never come; the oldest is evicted to make room. The limit
/// exceeds the number of open questions: an answer evicted while the other one is still being written would never be
/// compared.
pub(crate) const CAPACITY: usize = 4096;

/// The most attempts at a comparison.
const MOST_ATTEMPTS: usize = 2;

/// An answer and its grade, if any.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Graded {
    pub(crate) topic: Topic,
    pub(crate) query: String,
    pub(crate) answer: String,
    pub(crate) model: String,
    pub(crate) grade: Option<Grade>,
}

impl Graded {
    /// An answer in memory.
    pub(crate) fn of_engram(engram: &Engram) -> Graded {
        let Engram { query, answer, model, grade, .. } = engram.clone();
        Graded { topic: Topic::of_engram(engram), query, answer, model, grade }
    }

    /// Publishes the answer's grade, or why it has none.
    pub(crate) fn tell(&self, bus: &Bus, sender: &str, grade: Grade) {
        if let Some(failure) = &grade.judging.failure {
            tracing::info!(query_id = %self.topic.query_id, "an answer stays unscored: {failure}");
        }
        let graded = GradedAnswer { query: self.query.clone(), answer: self.answer.clone(), grade };
        self.topic.publish(bus, sender, Payload::CritiqueResult(graded));
    }

    /// Publishes why an answer of respondent B is not compared with that of A, if A's is not at hand.
    pub(crate) fn tell_uncompared(&self, bus: &Bus, sender: &str, reason: &str) {
        let preference = Preference::failed(reason);
        let topic = Topic { query_id: self.topic.correlation_id, respondent_id: RespondentId::A, ..self.topic };
        let a = ComparedAnswer { query_id: topic.query_id, model: "", grade: None };
        topic.publish(bus, sender, Payload::PairwiseResult(Comparison::new(a, self.compared(), preference)));
    }

    fn compared(&self) -> ComparedAnswer<'_> {
        ComparedAnswer { query_id: self.topic.query_id, model: &self.model, grade: self.grade.as_ref() }
    }
}

/// Both respondents' answers to one question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerPair {
    pub(crate) a: Graded,
    pub(crate) b: Graded,
}

impl AnswerPair {
    /// The judge's task.
    pub(crate) fn task(&self) -> CompareTask {
        let (query, [answer_a, answer_b]) =
            (self.a.query.clone(), [&self.a, &self.b].map(|graded| graded.answer.clone()));
        CompareTask { query, answer_a, answer_b }
    }

    /// Publishes the preference between the two, or the reason for its absence.
    pub(crate) fn tell(&self, bus: &Bus, sender: &str, preference: Preference) {
        if let Some(failure) = &preference.judging.failure {
            tracing::info!(query_id = %self.a.topic.correlation_id, "two answers stay uncompared: {failure}");
        }
        let comparison = Comparison::new(self.a.compared(), self.b.compared(), preference);
        self.a.topic.publish(bus, sender, Payload::PairwiseResult(comparison));
    }

    /// Publishes why there is no preference.
    pub(crate) fn tell_uncompared(&self, bus: &Bus, sender: &str, reason: &str) {
        self.tell(bus, sender, Preference::failed(reason));
    }
}

/// The pair buffer shared by all judge agents of a team.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedPairs(Arc<Mutex<PairBuffer>>);

impl SharedPairs {
    /// Discards answers that are no longer wanted, and publishes that they are not compared. The comparison may still
    /// be due in memory.
    pub(crate) fn withdraw(&self, withdrawal: Withdrawal, bus: &Bus, sender: &str) {
        let (alone, pairs) = self.lock().take_withdrawn(withdrawal);
        pairs.iter().for_each(|pair| pair.tell_uncompared(bus, sender, withdrawal.reason()));
        let of_b = alone.iter().filter(|graded| graded.topic.respondent_id == RespondentId::B);
        of_b.for_each(|b| b.tell_uncompared(bus, sender, withdrawal.reason()));
    }

    /// Locks the buffer, which is consistent even after an agent's panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, PairBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waiting answers and pairs, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PairBuffer {
    waiting: VecDeque<Graded>,
    complete: VecDeque<AnswerPair>,
    /// The pair that is being compared, and the number of attempts.
    current: Option<(AnswerPair, usize)>,
}

/// The next action for a pair.
#[derive(Debug, PartialEq)]
pub(crate) enum NextPair {
    /// It is compared.
    Compare(AnswerPair),
    /// It stays uncompared: judge agents have failed at it.
    GiveUp(AnswerPair),
}

impl PairBuffer {
    /// Adds an answer; a pair that it completes waits to be compared.
    pub(crate) fn add(&mut self, graded: Graded) {
        let complete = self.pair(graded);
        self.complete.extend(complete);
    }

    /// The pair to compare now: the one at which a judge agent has failed, or else the next one.
    pub(crate) fn begin(&mut self) -> Option<NextPair> {
        let (pair, attempts) = self.current.take().or_else(|| Some((self.complete.pop_front()?, 0)))?;
        if attempts == MOST_ATTEMPTS {
            return Some(NextPair::GiveUp(pair));
        }
        self.current = Some((pair.clone(), attempts + 1));
        Some(NextPair::Compare(pair))
    }

    /// Marks the current comparison as finished.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }

    /// Takes out every complete pair.
    pub(crate) fn take_complete(&mut self) -> Vec<AnswerPair> {
        self.complete.drain(..).collect()
    }

    /// The pair that an answer completes, whichever of the two comes first. Another answer of the same respondent to
    /// the same question replaces the earlier one.
    fn pair(&mut self, graded: Graded) -> Option<AnswerPair> {
        let same_question = |other: &Graded| other.topic.correlation_id == graded.topic.correlation_id;
        let earlier = self.waiting.iter().position(same_question).and_then(|index| self.waiting.remove(index));
        match earlier {
            Some(earlier) if earlier.topic.respondent_id < graded.topic.respondent_id => {
                Some(AnswerPair { a: earlier, b: graded })
            }
            Some(earlier) if earlier.topic.respondent_id > graded.topic.respondent_id => {
                Some(AnswerPair { a: graded, b: earlier })
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

    /// Takes out the answers and the pairs that are no longer wanted.
    fn take_withdrawn(&mut self, withdrawal: Withdrawal) -> (Vec<Graded>, Vec<AnswerPair>) {
        let alone = take_out(&mut self.waiting, |graded| withdrawal.concerns(&graded.topic));
        let pairs = take_out(&mut self.complete, |pair| withdrawal.concerns(&pair.a.topic));
        (alone, pairs)
    }
}

fn take_out<T>(queue: &mut VecDeque<T>, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
    let (taken, kept) = queue.drain(..).partition(is_meant);
    *queue = kept;
    Vec::from(taken)
}

#[cfg(test)]
mod tests {
    use hone_protocol::{QueryId, SessionId};

    use super::*;

    fn graded(respondent_id: RespondentId, question: usize) -> Graded {
        let correlation_id = QueryId::from_bits(question as u128);
        let query_id = if respondent_id == RespondentId::A { correlation_id } else { QueryId::fresh() };
        let topic = Topic { session_id: SessionId::from_bits(1), owner: None, query_id, correlation_id, respondent_id };
        let [query, answer, model] = ["why?", "so", "m"].map(str::to_owned);
        Graded { topic, query, answer, model, grade: None }
    }

    fn questions_of(pair: Option<AnswerPair>) -> Option<QueryId> {
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
            .map(|(respondent, question)| questions_of(buffer.pair(graded(*respondent, *question))))
            .collect();
        let expected: Vec<Option<QueryId>> =
            expected.iter().map(|question| question.map(|question| QueryId::from_bits(question as u128))).collect();
        assert_eq!(completed, expected);
    }

    #[test]
    fn a_pair_is_complete_in_either_order() {
        const A: RespondentId = RespondentId::A;
        const B: RespondentId = RespondentId::B;
        check(&[(A, 1), (B, 1)], &[None, Some(1)]);
        check(&[(B, 1), (A, 1)], &[None, Some(1)]);
        check(&[(A, 1), (A, 2), (B, 2), (B, 1), (B, 1)], &[None, None, Some(2), Some(1), None]);
        check(&[(A, 1), (A, 1), (B, 1), (B, 1)], &[None, None, Some(1), None]);
    }

    #[test]
    fn a_comparison_is_begun_twice_at_most() {
        const A: RespondentId = RespondentId::A;
        const B: RespondentId = RespondentId::B;
        let mut buffer = PairBuffer::default();
        [(A, 1), (B, 1), (A, 2), (B, 2)].into_iter().for_each(|(who, question)| buffer.add(graded(who, question)));
        let begun = |next: Option<NextPair>| match next {
            Some(NextPair::Compare(pair)) => (questions_of(Some(pair)), true),
            Some(NextPair::GiveUp(pair)) => (questions_of(Some(pair)), false),
            None => (None, false),
        };
        let question = |question| Some(QueryId::from_bits(question));
        assert_eq!(begun(buffer.begin()), (question(1), true));
        assert_eq!(begun(buffer.begin()), (question(1), true), "the judge agent has panicked");
        assert_eq!(begun(buffer.begin()), (question(1), false));
        assert_eq!(begun(buffer.begin()), (question(2), true));
        buffer.end();
        assert_eq!(begun(buffer.begin()), (None, false));
    }

    #[test]
    fn the_oldest_makes_room() {
        const A: RespondentId = RespondentId::A;
        const B: RespondentId = RespondentId::B;
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
        buffer.pair(graded(RespondentId::A, 1));
        buffer.pair(graded(RespondentId::A, 2));
        buffer.take_withdrawn(Withdrawal::Query(QueryId::from_bits(1)));
        assert_eq!(questions_of(buffer.pair(graded(RespondentId::B, 1))), None);
        assert_eq!(questions_of(buffer.pair(graded(RespondentId::B, 2))), Some(QueryId::from_bits(2)));
        buffer.pair(graded(RespondentId::A, 3));
        buffer.take_withdrawn(Withdrawal::Session(SessionId::from_bits(1)));
        assert!(buffer.waiting.is_empty());
    }
}
