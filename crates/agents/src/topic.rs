//! The question that a message is about, and withdrawals of questions.

use hone_bus::Bus;
use hone_memory::Engram;
use hone_protocol::{Envelope, OwnerId, Payload, QueryId, RespondentId, SessionId, prospect};

/// A question to one respondent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) session_id: SessionId,
    /// The owner of the question.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) query_id: QueryId,
    /// The question as received, shared by both respondents' answers to it.
    pub(crate) correlation_id: QueryId,
    pub(crate) respondent_id: RespondentId,
}

impl Topic {
    /// The question that a message is about; `None` if it names none. A message without a respondent means A.
    pub(crate) fn of(envelope: &Envelope) -> Option<Topic> {
        let query_id = envelope.query_id?;
        Some(Topic {
            session_id: envelope.session_id,
            owner: envelope.owner,
            query_id,
            correlation_id: envelope.correlation_id.unwrap_or(query_id),
            respondent_id: envelope.respondent_id.unwrap_or(RespondentId::A),
        })
    }

    /// The question that an answer in memory answers.
    pub(crate) fn of_engram(engram: &Engram) -> Topic {
        let Engram { session_id, owner, query_id, correlation_id, respondent_id, .. } = *engram;
        Topic { session_id, owner, query_id, correlation_id, respondent_id }
    }

    /// Whether this is the message that asked the question.
    pub(crate) fn was_received_in(&self, message: &Envelope) -> bool {
        matches!(message.payload, Payload::QueryReceived(_)) && message.query_id == Some(self.correlation_id)
    }

    /// Publishes a message about this question. Messages lost by other mailboxes are only logged.
    pub(crate) fn publish(&self, bus: &Bus, sender: &str, payload: Payload) {
        let envelope = Envelope::new(sender, self.session_id, payload).owned_by(self.owner);
        if let Err(overloaded) = bus.publish(envelope.about(self.query_id, self.correlation_id, self.respondent_id)) {
            tracing::warn!(sender, "{overloaded}");
        }
    }
}

/// The withdrawal of a question or a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The question with this id: A's id means both respondents, B's only B.
    Query(QueryId),
    /// Every question of the conversation.
    Session(SessionId),
}

impl Withdrawal {
    /// The withdrawal in a message, if any.
    pub(crate) fn of(envelope: &Envelope) -> Option<Withdrawal> {
        match envelope.payload {
            Payload::QueryCancelled(_) => envelope.query_id.map(Withdrawal::Query),
            Payload::SessionClosed(_) => Some(Withdrawal::Session(envelope.session_id)),
            _ => None,
        }
    }

    /// Whether it withdraws the question.
    pub(crate) fn concerns(self, topic: &Topic) -> bool {
        match self {
            Withdrawal::Query(id) => id == topic.query_id || id == topic.correlation_id,
            Withdrawal::Session(id) => id == topic.session_id,
        }
    }

    /// The reason for the missing grade.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Withdrawal::Query(_) => prospect::CANCELLED,
            Withdrawal::Session(_) => prospect::SESSION_CLOSED,
        }
    }
}

#[cfg(test)]
mod tests {
    use hone_protocol::Nothing;

    use super::*;

    #[test]
    fn a_withdrawal_concerns_its_question_or_its_whole_session() {
        let [first, second, third] = [1, 2, 3].map(QueryId::from_bits);
        let [here, there] = [1, 2].map(SessionId::from_bits);
        let topic = |session_id, query_id, correlation_id| {
            let respondent_id = if query_id == correlation_id { RespondentId::A } else { RespondentId::B };
            Topic { session_id, owner: None, query_id, correlation_id, respondent_id }
        };
        let (a, b, other) = (topic(here, first, first), topic(here, second, first), topic(there, third, third));
        let check = |payload: Payload, query_id: QueryId, expected: [bool; 3]| {
            let envelope = Envelope::new("tester", here, payload).about(query_id, first, RespondentId::A);
            let withdrawal = Withdrawal::of(&envelope);
            let concerned = [a, b, other].map(|topic| withdrawal.is_some_and(|withdrawal| withdrawal.concerns(&topic)));
            assert_eq!(concerned, expected, "{envelope:?}");
        };
        check(Payload::QueryCancelled(Nothing {}), first, [true, true, false]);
        check(Payload::QueryCancelled(Nothing {}), second, [false, true, false]);
        check(Payload::SessionClosed(Nothing {}), third, [true, true, false]);
        check(Payload::MemoryStored(hone_protocol::Stored { sequence: 1 }), first, [false; 3]);
    }
}
