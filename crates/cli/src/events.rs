//! Events of the bus as readable lines.

use hone_app::describe::{moment, on_one_line, rating};
use hone_protocol::{CritiqueLevel, Envelope, Payload, Preference, WorkStep};

use crate::badge;

/// An event on one line: the time, the subject, the respondent, and its content in a few words.
pub(crate) fn event_line(envelope: &Envelope) -> String {
    let (at, subject) = (moment(envelope.at), envelope.subject());
    let respondent = envelope.respondent_id.map_or_else(|| " ".to_string(), |respondent| respondent.to_string());
    let summary = on_one_line(&summary(&envelope.payload));
    format!("{at}  {subject:<19} {respondent}  {summary}").trim_end().to_string()
}

/// An event's content in a few words.
fn summary(payload: &Payload) -> String {
    match payload {
        Payload::QueryReceived(query) => query.query.clone(),
        Payload::ResponseGeneration(response) => response.answer.clone(),
        Payload::ResponseFailed(failure) => failure.to_string(),
        Payload::MemoryRecalled(recall) => {
            let queries: Vec<&str> = recall.engrams.iter().map(|engram| engram.query.as_str()).collect();
            format!("{} recalled: {}", queries.len(), queries.join(" | "))
        }
        Payload::MemoryStored(stored) => format!("engram {}", stored.sequence),
        Payload::CritiqueResult(critique) => {
            let judging = &critique.grade.judging;
            match &judging.failure {
                Some(failure) => format!("not graded: {failure}"),
                None => {
                    let verdict = badge::text(&critique.grade).unwrap_or_else(|| "no mark".to_owned());
                    format!("{verdict} {}", critique.grade.feedback)
                }
            }
        }
        Payload::PairwiseAsked(pair) => format!("two answers to: {}", pair.query),
        Payload::PairwiseResult(comparison) => {
            let Preference { winner, reason, judging, .. } = &comparison.preference;
            let mark = badge::mark(Some(judging));
            match (winner, &judging.failure) {
                (_, Some(failure)) => format!("not compared: {failure}"),
                (Some(winner), None) => format!("{mark} {winner} is better: {reason}"),
                (None, None) => format!("{mark} a tie: {reason}"),
            }
        }
        Payload::UserFeedback(feedback) => feedback.rating.map_or("taken back", rating).to_string(),
        Payload::RewardEvent(reward) => serde_json::to_string(reward).unwrap_or_default(),
        Payload::EvaluationStarted(step) | Payload::OptimizationStarted(step) => work_step(step),
        Payload::EvaluationCompleted(evaluated) | Payload::EvaluationFailed(evaluated) => {
            let score = evaluated.score.map_or("no score".to_string(), |score| format!("{score:.2}"));
            let failed = evaluated.results.iter().filter(|result| result.is_failed());
            let failed: Vec<&str> = failed.map(|result| result.evaluator.as_str()).collect();
            let failed = if failed.is_empty() { String::new() } else { format!(", failed: {}", failed.join(", ")) };
            format!("{}: {score}{failed}", work_step(&evaluated.step))
        }
        Payload::EscalationRequired(decided)
        | Payload::TaskAccepted(decided)
        | Payload::TaskRetried(decided)
        | Payload::TaskReassigned(decided)
        | Payload::TaskEscalated(decided) => format!("{}: {}", work_step(&decided.step), decided.decision.reason),
        Payload::CriticPassed(decision) | Payload::CriticBlocked(decision) | Payload::CriticAbstained(decision) => {
            let level = decision.level.map_or("no verdict", CritiqueLevel::name);
            format!("{}, {level}, {} ({}): {}", decision.content_type, decision.state, decision.mode, decision.reason)
        }
        Payload::CriticReviewed(ruling) => {
            format!("the block was {}: {}", if ruling.is_right { "right" } else { "wrong" }, ruling.state)
        }
        Payload::CriticOverridden(set) => {
            set.mode.map_or("every gate as configured".to_owned(), |mode| format!("every gate {mode}"))
        }
        Payload::QueryCancelled(_) | Payload::SessionClosed(_) | Payload::ResponseChunk(_) => String::new(),
    }
}

/// An attempt at a phase in a few words.
fn work_step(step: &WorkStep) -> String {
    format!("{} attempt {} by {}", step.phase, step.attempt, step.agent)
}
