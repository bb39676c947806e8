//! The server's metrics for Prometheus.
//!
//! Metrics of answers and grades are folded from the bus, so every API counts alike; only requests are counted as they
//! pass. Labels have few values: the router's paths and the installed models.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response as HttpResponse;
use hone_app::fleet::FleetOverview;
use hone_bus::{Mailbox, Overload, Subscription};
use hone_protocol::{GradedAnswer, Lane, Likely, Payload, Response, Subject, Timings};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;

use crate::Shared;
use crate::answering::was_cut;

/// Maximum number of messages waiting to be counted.
const CAPACITY: usize = 4096;
/// The path label of requests that the router does not know.
const UNKNOWN_PATH: &str = "other";
/// The lowest bound of the histograms, in seconds; each further bound is twice as high.
const SHORTEST: f64 = 0.005;
/// The number of bounds in the histograms: up to 5.5 minutes.
const N_LIMITS: u16 = 17;

/// The metrics.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    answers: Family<AnswerLabels, Counter>,
    failures: Counter,
    tokens: Family<TokenLabels, Counter>,
    cache_hits: Family<ModelLabels, Counter>,
    grades: Family<GradeLabels, Counter>,
    queue: Durations,
    first_token: Durations,
    total: Durations,
    in_progress: Gauge,
    /// Whether the bus is connected.
    connected: Gauge,
    /// Workers on the bus, open pieces of work, and abandoned ones, as of the last connection.
    fleet: [Gauge; 3],
}

/// Durations of one kind, by lane and model.
type Durations = Family<LaneLabels, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    model: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GradeLabels {
    score: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: &'static str,
    model: String,
}

impl Metrics {
    /// All metrics at zero.
    pub(crate) fn new() -> Metrics {
        let durations = || Durations::new_with_constructor(histogram);
        let mut metrics = Metrics {
            registry: Registry::with_prefix("hone"),
            requests: Family::default(),
            answers: Family::default(),
            failures: Counter::default(),
            tokens: Family::default(),
            cache_hits: Family::default(),
            grades: Family::default(),
            queue: durations(),
            first_token: durations(),
            total: durations(),
            in_progress: Gauge::default(),
            connected: Gauge::default(),
            fleet: Default::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("http_requests", "Requests by path and status", self.requests.clone());
        registry.register("answers", "Answers by model, and how they ended", self.answers.clone());
        registry.register("failures", "Questions without an answer", self.failures.clone());
        registry.register("tokens", "Tokens of prompts, cached and generated ones", self.tokens.clone());
        registry.register("cache_hits", "Answers whose prompt was partly in the KV cache", self.cache_hits.clone());
        registry.register(
            "grades",
            "Grades by score; right, wrong or undecided without one, none if there was no verdict",
            self.grades.clone(),
        );
        registry.register("queue_seconds", "Seconds in the queue", self.queue.clone());
        registry.register("first_token_seconds", "Seconds to the first token", self.first_token.clone());
        registry.register("duration_seconds", "Seconds to the end of an answer or a grade", self.total.clone());
        registry.register("questions_in_progress", "Questions in progress", self.in_progress.clone());
        let [workers, open, dead] = self.fleet.clone();
        registry.register("fleet_connected", "Whether the bus is connected (1) or not", self.connected.clone());
        registry.register("fleet_workers", "Workers on the bus", workers);
        registry.register("fleet_open", "Pieces of work on the bus that wait or are worked on", open);
        registry.register("fleet_dead", "Pieces of work that were given up", dead);
    }

    /// The metrics in Prometheus's text format.
    ///
    /// # Errors
    /// When a metric cannot be written.
    pub(crate) fn text(&self, n_questions: usize, fleet: Option<&FleetOverview>) -> Result<String, fmt::Error> {
        self.in_progress.set(i64::try_from(n_questions).unwrap_or(i64::MAX));
        self.connected.set(fleet.is_some_and(|fleet| fleet.is_connected).into());
        if let Some(FleetOverview { workers, queues, is_connected: true, .. }) = fleet {
            let counts = [workers.len() as u64, queues.open, queues.dead];
            for (gauge, count) in self.fleet.iter().zip(counts) {
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn take(&self, payload: &Payload) {
        match payload {
            Payload::ResponseGeneration(response) => self.take_answer(response),
            Payload::CritiqueResult(critique) => self.take_grade(critique),
            Payload::ResponseFailed(_) => drop(self.failures.inc()),
            _ => {}
        }
    }

    fn take_answer(&self, response: &Response) {
        let Response { timings, model, .. } = response;
        self.answers.get_or_create(&AnswerLabels { model: model.clone(), outcome: outcome(response) }).inc();
        for (kind, count) in tokens(timings) {
            self.tokens.get_or_create(&TokenLabels { model: model.clone(), kind }).inc_by(count as u64);
        }
        if timings.cached_tokens > 0 {
            self.cache_hits.get_or_create(&ModelLabels { model: model.clone() }).inc();
        }
        let labels = LaneLabels { lane: Lane::Interactive.name(), model: model.clone() };
        let to_first_token = timings.queue_seconds + timings.prompt_seconds;
        self.queue.get_or_create(&labels).observe(timings.queue_seconds);
        self.first_token.get_or_create(&labels).observe(to_first_token);
        self.total.get_or_create(&labels).observe(to_first_token + timings.generation_seconds);
    }

    fn take_grade(&self, critique: &GradedAnswer) {
        let (score, judging) = (critique.grade.score, &critique.grade.judging);
        let undecided = if critique.grade.is_verdict() { "undecided" } else { "none" };
        let likely = || critique.grade.likely.map_or(undecided, Likely::word).to_owned();
        let score = score.map_or_else(likely, |score| score.to_string());
        self.grades.get_or_create(&GradeLabels { score }).inc();
        if judging.failure.is_none() {
            let labels = LaneLabels { lane: Lane::Background.name(), model: judging.judge.clone() };
            self.queue.get_or_create(&labels).observe(judging.queue_seconds);
            self.total.get_or_create(&labels).observe(judging.seconds);
        }
    }
}

fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(SHORTEST, 2.0, N_LIMITS))
}

/// How an answer ended, as a label.
fn outcome(response: &Response) -> &'static str {
    match response.finish_reason {
        None => "cancelled",
        reason if was_cut(reason) => "length",
        Some(_) => "stop",
    }
}

fn tokens(timings: &Timings) -> [(&'static str, usize); 3] {
    [("prompt", timings.prompt_tokens), ("cached", timings.cached_tokens), ("generated", timings.generation_tokens)]
}

/// Counts bus messages until it is dropped.
pub(crate) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts counting bus messages.
pub(crate) fn follow(shared: &Arc<Shared>) -> Following {
    let mailbox = shared.parts.bus.subscribe(Subscription {
        name: "metrics".to_owned(),
        subjects: vec![Subject::ResponseGeneration, Subject::ResponseFailed, Subject::CritiqueResult],
        sessions: None,
        capacity: CAPACITY,
        overload: Overload::DropOldest,
    });
    Following(tokio::spawn(take_all(mailbox, Arc::clone(shared))))
}

async fn take_all(mailbox: Mailbox, shared: Arc<Shared>) {
    while let Some(envelope) = poll_fn(|context| mailbox.poll_next(context)).await {
        shared.metrics.take(&envelope.payload);
    }
}

/// Counts a request.
pub(crate) async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> HttpResponse {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let path = path.unwrap_or_else(|| UNKNOWN_PATH.to_owned());
    shared.metrics.requests.get_or_create(&RequestLabels { path, status: response.status().as_u16() }).inc();
    response
}

#[cfg(test)]
mod tests {
    use hone_protocol::{FinishReason, GenerateError, Grade, Judging};

    use super::*;

    fn answer(finish_reason: Option<FinishReason>, timings: Timings) -> Payload {
        Payload::ResponseGeneration(Response { finish_reason, timings, ..Response::new("why?", "because", "m") })
    }

    fn grade(score: Option<u8>) -> Payload {
        let failure = score.is_none().then(|| "timeout".to_owned());
        let judging =
            Judging { judge: "j".to_owned(), seconds: 3.0, queue_seconds: 1.0, failure, ..Judging::default() };
        let grade = Grade { score, judging, ..Grade::default() };
        Payload::CritiqueResult(GradedAnswer { query: "why?".to_owned(), answer: "because".to_owned(), grade })
    }

    #[test]
    fn messages_become_figures() {
        let metrics = Metrics::new();
        let cached = Timings { prompt_tokens: 9, cached_tokens: 4, generation_tokens: 2, ..Timings::default() };
        metrics.take(&answer(Some(FinishReason::Stop), cached));
        metrics.take(&answer(Some(FinishReason::Length), Timings { prompt_seconds: 0.5, ..Timings::default() }));
        metrics.take(&answer(None, Timings::default()));
        metrics.take(&Payload::ResponseFailed(GenerateError::Stopped));
        [Some(4), Some(4), Some(2), None].map(grade).iter().for_each(|grade| metrics.take(grade));
        let text = metrics.text(3, None).unwrap();
        let expected = [
            "hone_answers_total{model=\"m\",outcome=\"stop\"} 1",
            "hone_answers_total{model=\"m\",outcome=\"length\"} 1",
            "hone_answers_total{model=\"m\",outcome=\"cancelled\"} 1",
            "hone_failures_total 1",
            "hone_tokens_total{model=\"m\",kind=\"cached\"} 4",
            "hone_cache_hits_total{model=\"m\"} 1",
            "hone_first_token_seconds_sum{lane=\"interactive\",model=\"m\"} 0.5",
            "hone_grades_total{score=\"4\"} 2",
            "hone_grades_total{score=\"2\"} 1",
            "hone_grades_total{score=\"none\"} 1",
            "hone_duration_seconds_sum{lane=\"background\",model=\"j\"} 9.0",
            "hone_queue_seconds_count{lane=\"background\",model=\"j\"} 3",
            "hone_questions_in_progress 3",
        ];
        for line in expected {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
