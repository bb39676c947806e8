//! The judge of a worker.

use std::sync::Arc;

use anyhow::bail;
use crossbeam_channel::Receiver;
use hone_judging::{CompareTask, GradeTask, Jury};
use hone_protocol::{
    AnswersToCompare, ComparedAnswer, Comparison, Envelope, Generate, GradedAnswer, Judging, Payload, Prospect,
    QueryId, Response,
};

use crate::app::App;
use crate::elsewhere::GRADE;
use crate::interrupt::Interrupt;
use crate::judging::{permit, verdict_on, who_grades};

/// A judge that grades answers from other machines.
#[derive(Clone)]
pub struct FleetJudge {
    jury: Jury,
    name: String,
}

impl FleetJudge {
    /// The configured judge, on an engine that runs.
    ///
    /// # Errors
    /// When it cannot be made, or may not grade: it is missing, or has not passed its examination.
    pub fn new(app: &App, generator: Arc<dyn Generate>) -> anyhow::Result<FleetJudge> {
        let jury = app.jury(generator)?;
        permit(app, &jury, "")?;
        let name = who_grades(app, &jury);
        Ok(FleetJudge { jury, name })
    }

    /// The name of the judge.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Replies to a message with the grade of the answer in it, or the better one of the two answers in it. `None` if
    /// it has no answer, or something comes from `stop` first.
    ///
    /// # Errors
    /// The reason why the judge cannot judge now.
    pub fn answer(&self, message: &Envelope, stop: &Receiver<()>) -> anyhow::Result<Option<JudgedElsewhere>> {
        let jury = self.jury.clone().of_owner(message.owner);
        let interrupt = Interrupt::from_channel(stop.clone());
        let judged = match &message.payload {
            Payload::ResponseGeneration(response) => grade(&jury, response, &interrupt)?,
            Payload::PairwiseAsked(pair) => compare(&jury, pair, message.correlation_id, &interrupt)?,
            _ => None,
        };
        let Some((payload, judging)) = judged else { return Ok(None) };
        if let (Some(Prospect::Failed), Some(failure)) = (judging.prospect(), &judging.failure) {
            bail!("{failure}");
        }
        Ok(Some(JudgedElsewhere { message: message.reply(GRADE, payload), judging }))
    }
}

/// A judge's verdict on answers from other machines.
pub struct JudgedElsewhere {
    /// The message for the process that asked.
    pub message: Envelope,
    /// The judge and how it judged.
    pub judging: Judging,
}

fn grade(jury: &Jury, response: &Response, interrupt: &Interrupt) -> anyhow::Result<Option<(Payload, Judging)>> {
    let Response { query, answer, model, .. } = response.clone();
    let task = GradeTask { query: query.clone(), answer: answer.clone(), reference: None };
    let grade = verdict_on(jury, task, &model, interrupt)?;
    Ok(grade.map(|grade| {
        let judging = grade.judging.clone();
        (Payload::CritiqueResult(GradedAnswer { query, answer, grade }), judging)
    }))
}

fn compare(
    jury: &Jury,
    pair: &AnswersToCompare,
    asked: Option<QueryId>,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<(Payload, Judging)>> {
    let AnswersToCompare { query, answer_a, answer_b, model_a } = pair.clone();
    let preference = verdict_on(jury, CompareTask { query, answer_a, answer_b }, &model_a, interrupt)?;
    // The asker knows the answers and their grades.
    let side = ComparedAnswer { query_id: asked.unwrap_or(QueryId::from_bits(0)), model: "", grade: None };
    Ok(preference.map(|preference| {
        let judging = preference.judging.clone();
        (Payload::PairwiseResult(Comparison::new(side, side, preference)), judging)
    }))
}
