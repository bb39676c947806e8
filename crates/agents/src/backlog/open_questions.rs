//! The questions with waiting callers: from the moment they are asked until their answers are graded.

use std::collections::BTreeMap;

use hone_protocol::{Envelope, Payload, QueryId, RespondentId, SessionId};

use crate::topic::Topic;

/// The questions with waiting callers.
#[derive(Debug, Default)]
pub(crate) struct OpenQuestions {
    sessions: BTreeMap<QueryId, SessionId>,
}

impl OpenQuestions {
    /// Processes a message; returns whether it opens a question.
    pub(crate) fn take(&mut self, envelope: &Envelope) -> bool {
        if let Payload::SessionClosed(_) = envelope.payload {
            self.sessions.retain(|_, session| *session != envelope.session_id);
        }
        let Some(topic) = Topic::of(envelope) else { return false };
        match envelope.payload {
            Payload::QueryReceived(_) => {
                self.sessions.insert(topic.correlation_id, topic.session_id);
                return true;
            }
            Payload::ResponseFailed(_) | Payload::CritiqueResult(_) if topic.respondent_id == RespondentId::A => {
                self.sessions.remove(&topic.correlation_id);
            }
            _ => {}
        }
        false
    }

    /// Closes a question that no caller waits for any more.
    pub(crate) fn close(&mut self, topic: &Topic) {
        self.sessions.remove(&topic.correlation_id);
    }

    /// Whether no caller waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::{GenerateError, Grade, GradedAnswer, Nothing, Query};

    use super::*;

    fn query() -> Payload {
        Payload::QueryReceived(Query::new("why?", "m"))
    }

    fn graded() -> Payload {
        Payload::CritiqueResult(GradedAnswer { query: String::new(), answer: String::new(), grade: Grade::default() })
    }

    #[test]
    fn a_question_is_open_until_its_answer_is_graded() {
        let mut open = OpenQuestions::default();
        let mut check = |session: u128, about: u128, who, payload, expected: (bool, bool)| {
            let [id, asked] = [about, about / 10 * 10].map(QueryId::from_bits);
            let envelope = Envelope::new("test", SessionId::from_bits(session), payload).about(id, asked, who);
            assert_eq!((open.take(&envelope), open.is_empty()), expected, "{envelope:?}");
        };
        let (a, b) = (RespondentId::A, RespondentId::B);
        check(1, 10, a, query(), (true, false));
        check(1, 11, b, graded(), (false, false));
        check(1, 20, a, query(), (true, false));
        check(1, 10, a, graded(), (false, false));
        check(1, 20, a, Payload::ResponseFailed(GenerateError::Stopped), (false, true));
        check(1, 30, a, query(), (true, false));
        check(2, 40, a, query(), (true, false));
        check(1, 10, a, Payload::SessionClosed(Nothing {}), (false, false));
        check(2, 10, a, Payload::SessionClosed(Nothing {}), (false, true));
    }
}
