//! The memory agent: writes engrams, and what is learnt about them later.
//!
//! It subscribes before the agents that react to answers, so that an answer is in its mailbox before the answer's grade can
//! be. Whatever the store refuses (a full disk, say) is logged, and the agent goes on with the next message. Before it stops
//! it deals with everything that has reached its mailbox.

pub(crate) mod states;

use std::sync::Arc;

use crossbeam_channel::select_biased;
use hone_bus::{Agent, Bus, Inbox};
use hone_memory::{Engram, MemoryError, MemoryStore};
use hone_protocol::{Embed, Envelope, Feedback, Payload, Rating, Response, Reward, Stored, Subject, with_causes};

use self::states::{Action, State, TABLE};
use crate::machine::{IllegalTransition, Machine};
use crate::topic::Topic;

/// The agent's name.
pub(crate) const NAME: &str = "memory";

/// What the agent listens to.
pub(crate) const SUBJECTS: [Subject; 4] =
    [Subject::ResponseGeneration, Subject::CritiqueResult, Subject::PairwiseResult, Subject::UserFeedback];

/// The text that stands for an exchange where texts are compared by meaning. A model that reads only the beginning of a
/// text reads the question.
pub fn text_to_embed(query: &str, answer: &str) -> String {
    format!("{query}\n{answer}")
}

/// The agent's state.
pub(crate) struct MemoryAgent {
    bus: Bus,
    store: MemoryStore,
    embedder: Option<Arc<dyn Embed>>,
    pub(crate) machine: Machine<State, Action>,
}

impl MemoryAgent {
    pub(crate) fn new(bus: Bus, store: MemoryStore, embedder: Option<Arc<dyn Embed>>) -> Self {
        MemoryAgent { bus, store, embedder, machine: Machine::new(&TABLE) }
    }

    fn receive(&mut self, message: &Envelope) -> Result<(), IllegalTransition> {
        let Some(topic) = Topic::of(message) else { return Ok(()) };
        let (store, id) = (self.store.clone(), topic.query_id);
        match &message.payload {
            Payload::ResponseGeneration(response) if !is_nothing(response) => {
                self.perform(Action::Write, |agent| agent.write(&topic, message, response))
            }
            Payload::CritiqueResult(critique) if critique.grade.score.is_some() => {
                self.perform(Action::UpdateScore, |_| store.update_score(id, &critique.grade).map(drop))
            }
            Payload::PairwiseResult(comparison) if comparison.preference.judging.failure.is_none() => {
                self.perform(Action::AnnotatePairwise, |_| store.annotate_pairwise(comparison).map(drop))
            }
            Payload::UserFeedback(feedback) => {
                self.perform(Action::AnnotateFeedback, |agent| agent.take_feedback(&topic, *feedback))
            }
            _ => Ok(()),
        }
    }

    /// Does something with the store, in the state that stands for it.
    fn perform(
        &mut self,
        action: Action,
        work: impl FnOnce(&Self) -> Result<(), MemoryError>,
    ) -> Result<(), IllegalTransition> {
        self.machine.begin(action)?;
        if let Err(error) = work(self) {
            tracing::error!(?action, "memory has not kept something: {}", with_causes(&error));
            self.machine.act(Action::Fail)?;
        }
        self.machine.act(Action::Reset)
    }

    fn write(&self, topic: &Topic, message: &Envelope, response: &Response) -> Result<(), MemoryError> {
        let engram = Engram {
            at: message.at,
            respondent_id: topic.respondent_id,
            correlation_id: topic.correlation_id,
            ..Engram::new(topic.query_id, topic.session_id, response)
        };
        let vector = self.vector_of(&engram);
        let sequence = self.store.remember(engram, vector)?;
        topic.publish(&self.bus, NAME, Payload::MemoryStored(Stored { sequence }));
        Ok(())
    }

    /// The engram's vector; without one it is remembered all the same, and cannot be found by its meaning.
    fn vector_of(&self, engram: &Engram) -> Option<Vec<f32>> {
        let embedder = self.embedder.as_ref()?;
        match embedder.embed(&[&text_to_embed(&engram.query, &engram.answer)]) {
            Ok(vectors) => vectors.into_iter().next(),
            Err(error) => {
                tracing::error!("an engram is remembered without its vector: {}", with_causes(&error));
                None
            }
        }
    }

    fn take_feedback(&self, topic: &Topic, feedback: Feedback) -> Result<(), MemoryError> {
        self.store.annotate_feedback(topic.query_id, feedback.rating)?;
        let model = self.store.get(topic.query_id)?.map(|engram| engram.model).unwrap_or_default();
        let reward = match feedback.rating {
            Rating::Good => 1.0,
            Rating::Bad => -1.0,
        };
        topic.publish(&self.bus, NAME, Payload::RewardEvent(Reward { reward, model }));
        Ok(())
    }
}

impl Agent for MemoryAgent {
    type Event = Arc<Envelope>;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event> {
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok(),
        }
    }

    fn handle_event(&mut self, message: Self::Event, inbox: &mut Inbox) {
        inbox.take_up(&message);
        // An illegal transition has been logged, and the message's work was not begun or is done.
        let _ = self.receive(&message);
        inbox.put_down();
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        while let Ok(message) = inbox.messages().try_recv() {
            self.handle_event(message, inbox);
        }
    }

    fn recover(&mut self, message: &Envelope) {
        tracing::error!(subject = %message.subject(), query_id = ?message.query_id, "memory has lost a message");
    }
}

/// Whether an answer was cancelled before anything came of it.
fn is_nothing(response: &Response) -> bool {
    response.finish_reason.is_none() && response.answer.trim().is_empty()
}
