//! What one question waits for after its answer: the grade, the second respondent's answer and the comparison with it.

use std::sync::Arc;

use crossbeam_channel::select_biased;
use hone_bus::Mailbox;
use hone_protocol::{Comparison, Envelope, GenerateError, Grade, Payload, QueryId, RespondentId, Response, Subject};

use crate::interrupt::Listening;
use crate::stack::Stack;

const SUBJECTS: [Subject; 4] =
    [Subject::ResponseGeneration, Subject::ResponseFailed, Subject::CritiqueResult, Subject::PairwiseResult];

/// Hears what comes of questions that are asked from now on.
pub(crate) struct VerdictWatch {
    mailbox: Mailbox,
    expected: Expected,
}

/// What comes of an answer where nothing goes wrong.
#[derive(Clone, Copy)]
struct Expected {
    grades: bool,
    respondent_b: bool,
}

/// What came of a question.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// The grade of the answer.
    pub(crate) grade: Option<Grade>,
    /// What the second respondent answered.
    pub(crate) response_b: Option<Response>,
    /// Which answer is better; none where one of them was not graded.
    pub(crate) comparison: Option<Comparison>,
    grade_b: Option<Grade>,
    /// Why the second respondent could not answer.
    pub(crate) failure_b: Option<GenerateError>,
}

impl VerdictWatch {
    /// Begins to listen.
    pub(crate) fn new(stack: &Stack) -> VerdictWatch {
        let expected = Expected { grades: stack.grades(), respondent_b: stack.has_respondent_b() };
        VerdictWatch { mailbox: stack.listen("verdicts", &SUBJECTS), expected }
    }

    /// Waits for all that comes of a question; `None` where Ctrl-C came first or nobody is left who could say anything.
    pub(crate) fn wait(&self, id: QueryId, listening: &Listening<'_>) -> Option<Verdicts> {
        let mut verdicts = Verdicts::default();
        while !verdicts.are_complete(self.expected) {
            let envelope = select_biased! {
                recv(listening.pressed()) -> _ => return None,
                recv(self.mailbox.receiver()) -> envelope => envelope.ok()?,
            };
            if envelope.correlation_id == Some(id) {
                verdicts.take(&envelope);
            }
        }
        Some(verdicts)
    }
}

impl Verdicts {
    fn take(&mut self, envelope: &Arc<Envelope>) {
        let is_b = envelope.respondent_id == Some(RespondentId::B);
        match &envelope.payload {
            Payload::CritiqueResult(critique) if is_b => self.grade_b = Some(critique.grade.clone()),
            Payload::CritiqueResult(critique) => self.grade = Some(critique.grade.clone()),
            Payload::ResponseGeneration(response) if is_b => self.response_b = Some(response.clone()),
            Payload::ResponseFailed(error) if is_b => self.failure_b = Some(error.clone()),
            Payload::PairwiseResult(comparison) => self.comparison = Some(comparison.clone()),
            _ => {}
        }
    }

    fn are_complete(&self, expected: Expected) -> bool {
        let b_has_ended = self.response_b.is_some() || self.failure_b.is_some() || !expected.respondent_b;
        match (expected.grades, b_has_ended) {
            (_, false) => false,
            (false, true) => true,
            (true, true) => self.grade.is_some() && (self.response_b.is_none() || self.is_compared()),
        }
    }

    /// Whether there is a comparison, or will be none.
    fn is_compared(&self) -> bool {
        let score = |grade: &Option<Grade>| grade.as_ref().map(|grade| grade.score);
        match (score(&self.grade), score(&self.grade_b)) {
            (Some(Some(_)), Some(Some(_))) => self.comparison.is_some(),
            (a, b) => a.is_some() && b.is_some(),
        }
    }
}
