//! `hone grade --due`: the answers in memory whose grades, or comparisons, are due.
//!
//! Each answer is claimed before it is judged, so another hone that works off the same backlog judges others; answers
//! claimed elsewhere are waited for, since their process may have been killed. Every verdict is stored before the next
//! is waited for: a stopped run resumes where it was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use hone_app::judging::{Completed, JudgeSession};
use hone_judging::{CompareTask, GradeTask};
use hone_memory::{BacklogEntry, Engram, Filters, Holder, MemoryStore};
use hone_protocol::prospect::ALONE;
use hone_protocol::{
    ComparedAnswer, Comparison, Envelope, Grade, GradedAnswer, Judging, Payload, Preference, Prospect, QueryId,
    RespondentId,
};
use serde::Serialize;

use super::outcome;
use crate::arguments::GradeArguments;
use crate::failure::Outcome;
use crate::invocation::Invocation;
use crate::terminal::interrupt;
use crate::terminal::progress::Steps;

/// Answers that are claimed at once: enough to keep the judge busy, and few enough to leave some to others.
const CLAIMED_AT_ONCE: usize = 8;

/// Maximum number of attempts at an answer if the judge fails.
const MOST_TRIES: usize = 2;

/// Polling interval for answers that another process holds.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum wait for answers that another process holds, after the last of them was judged or freed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The sender in the event log.
const SENDER: &str = "grade";

/// The result of working off the backlog.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// Answers with something due.
    due: usize,
    /// Answers that have a grade now.
    graded: usize,
    /// Pairs that are compared now.
    compared: usize,
    /// Answers that stay without a score, for a reason that is final.
    ungraded: usize,
    /// Answers with something still due.
    still_due: usize,
    /// Answers still due that another process works on.
    held: usize,
    /// Graded answers that have a score.
    #[serde(skip)]
    scored: usize,
    /// The mean of the scores, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_score: Option<f64>,
    /// Whether the user stopped it.
    interrupted: bool,
    /// Why the last answer with something still due was not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Judges the due answers.
pub(super) fn run(app: &Invocation, arguments: &GradeArguments) -> anyhow::Result<Outcome> {
    let store = app.memory_to_write()?;
    if arguments.regrade_null {
        make_due(&store, arguments)?;
    }
    let entries = wanted(&store, arguments)?;
    let mut summary = Summary { due: entries.len(), ..Summary::default() };
    if !entries.is_empty() {
        let session = JudgeSession::open_for_backlog(app, interrupt::install()?)?;
        let steps = Steps::new(app.output, "answers");
        let holder = Holder::new(&store)?;
        let mut work =
            Work { app, arguments, store: &store, session, holder, summary, steps, failures: BTreeMap::new() };
        let worked = work.work_off();
        work.steps.clear();
        worked?;
        summary = work.finish()?;
    }
    tell(app, arguments, &summary)?;
    Ok(match (summary.interrupted, summary.still_due, arguments.at_least) {
        (true, _, _) => Outcome::Interrupted,
        (false, 0, None) => Outcome::Done,
        (false, _, None) => Outcome::Failed,
        (false, _, Some(_)) => outcome(summary.mean_score, arguments.at_least),
    })
}

/// Makes the grades of all finished answers without a score due, whatever the reason.
fn make_due(store: &MemoryStore, arguments: &GradeArguments) -> anyhow::Result<()> {
    let filters = Filters { scored: Some(false), finished: Some(true), since: arguments.since, ..Filters::default() };
    let engrams = store.list(&filters, usize::MAX)?;
    let judgeable = engrams.iter().filter(|engram| !engram.answer.trim().is_empty());
    let ids: Vec<QueryId> = judgeable.map(|engram| engram.query_id).collect();
    store.make_due(&ids)?;
    Ok(())
}

fn wanted(store: &MemoryStore, arguments: &GradeArguments) -> anyhow::Result<Vec<BacklogEntry>> {
    let mut entries = store.backlog()?;
    entries.retain(|entry| arguments.since.is_none_or(|since| entry.at >= since));
    Ok(entries)
}

fn tell(app: &Invocation, arguments: &GradeArguments, summary: &Summary) -> anyhow::Result<()> {
    let Summary { due, graded, compared, ungraded, still_due, held, mean_score, interrupted, failure, .. } = summary;
    if let Some(failure) = failure.as_ref().filter(|_| !interrupted && *still_due > 0) {
        app.output
            .error(&format!("{still_due} of {due} stay due, the last one: {failure}; the same command tries again"));
    } else if *held > 0 && !interrupted {
        app.output.error(&format!("{held} of {due} are held by another hone; the same command tries again"));
    }
    if arguments.json.json {
        return app.output.print_json(summary);
    }
    if *due == 0 {
        return app.output.print_line("nothing is due");
    }
    let mut text = format!("{graded} of {due} graded");
    let mut add = |count: usize, what: &str| {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    };
    add(*compared, "compared");
    add(*ungraded, "without a score for good");
    add(*still_due, "still due");
    text.extend(mean_score.map(|mean| format!(", mean {mean:.2}")));
    if *interrupted {
        text.push_str(", stopped: the same command continues from here");
    }
    app.output.print_line(&text)
}

/// The backlog while it is worked off.
struct Work<'a> {
    app: &'a Invocation,
    arguments: &'a GradeArguments,
    store: &'a MemoryStore,
    session: JudgeSession,
    holder: Holder,
    summary: Summary,
    steps: Steps,
    /// How often the judge has failed at answers.
    failures: BTreeMap<QueryId, usize>,
}

impl Work<'_> {
    /// Judges until nothing that can be judged is due, or the user stops it.
    fn work_off(&mut self) -> anyhow::Result<()> {
        let interrupt = self.session.interrupt().clone();
        let _throughout = interrupt.listen();
        let mut last_news = Instant::now();
        let mut n_held_before = 0;
        loop {
            let (held, free): (Vec<_>, Vec<_>) = self.left()?.into_iter().partition(|entry| entry.is_held);
            let is_news = !free.is_empty() || held.len() != n_held_before;
            if held.is_empty() && free.is_empty() || !is_news && last_news.elapsed() > PATIENCE {
                return Ok(());
            }
            if is_news {
                last_news = Instant::now();
            }
            let n_free = free.len();
            for chunk in self.in_chunks(free) {
                let claimed = self.holder.claim(chunk.iter().map(|entry| entry.query_id).collect())?;
                if self.judge(claimed)? == Completed::UntilInterrupt {
                    self.summary.interrupted = true;
                    return Ok(());
                }
            }
            if n_free == 0 {
                if n_held_before == 0 {
                    self.app.output.note(&format!("another hone works on {}: waiting for it", held.len()));
                }
                n_held_before = held.len();
                if self.is_stopped_while_waiting() {
                    self.summary.interrupted = true;
                    return Ok(());
                }
            }
        }
    }

    /// The answers in portions to judge: several at once, and then, each alone, those at which the judge has failed. A
    /// judge that was too slow for one among others may have the time for it alone.
    fn in_chunks(&self, free: Vec<BacklogEntry>) -> Vec<Vec<BacklogEntry>> {
        let (failed, fresh): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|entry| self.failures.contains_key(&entry.query_id));
        match fresh.is_empty() {
            true => failed.into_iter().map(|entry| vec![entry]).collect(),
            false => fresh.chunks(CLAIMED_AT_ONCE).map(<[_]>::to_vec).collect(),
        }
    }

    fn left(&self) -> anyhow::Result<Vec<BacklogEntry>> {
        let mut entries = wanted(self.store, self.arguments)?;
        entries.retain(|entry| self.failures.get(&entry.query_id).is_none_or(|count| *count < MOST_TRIES));
        Ok(entries)
    }

    fn is_stopped_while_waiting(&self) -> bool {
        let listening = self.session.interrupt().listen();
        listening.pressed().recv_timeout(LOOK_INTERVAL) != Err(RecvTimeoutError::Timeout)
    }

    fn judge(&mut self, claimed: Vec<Engram>) -> anyhow::Result<Completed> {
        // The model that answered replaces a judge that is not installed.
        let mut by_model: BTreeMap<String, Vec<Engram>> = BTreeMap::new();
        claimed.into_iter().for_each(|engram| by_model.entry(engram.model.clone()).or_default().push(engram));
        for (model, engrams) in by_model {
            if self.grade(&model, &engrams)? == Completed::UntilInterrupt
                || self.compare(&model, &engrams)? == Completed::UntilInterrupt
            {
                return Ok(Completed::UntilInterrupt);
            }
        }
        Ok(Completed::All)
    }

    fn grade(&mut self, model: &str, engrams: &[Engram]) -> anyhow::Result<Completed> {
        let due: Vec<&Engram> = engrams.iter().filter(|it| it.due.as_ref().is_some_and(|due| due.grade)).collect();
        let task = |it: &&Engram| GradeTask { query: it.query.clone(), answer: it.answer.clone(), reference: None };
        let tasks: Vec<GradeTask> = due.iter().map(task).collect();
        let Work { session, store, summary, steps, failures, .. } = self;
        session.judge_all(&tasks, model, steps, |index, grade: Grade| {
            let engram = due[index];
            store.update_score(engram.query_id, &grade)?;
            summary.count(&grade);
            if is_failed(&grade.judging) {
                *failures.entry(engram.query_id).or_default() += 1;
            }
            let critique = GradedAnswer { query: engram.query.clone(), answer: engram.answer.clone(), grade };
            record(store, engram, Payload::CritiqueResult(critique));
            steps.show(summary.graded + summary.ungraded, summary.due, &summary.remark());
            Ok(())
        })
    }

    fn compare(&mut self, model: &str, engrams: &[Engram]) -> anyhow::Result<Completed> {
        let mut pairs = Vec::new();
        for b in engrams.iter().filter(|it| it.due.as_ref().is_some_and(|due| due.comparison)) {
            match self.store.other_answer(b)? {
                Some(a) => pairs.push((a, b)),
                None => self.tell_alone(b)?,
            }
        }
        let task = |(a, b): &(Engram, &Engram)| CompareTask {
            query: b.query.clone(),
            answer_a: a.answer.clone(),
            answer_b: b.answer.clone(),
        };
        let tasks: Vec<CompareTask> = pairs.iter().map(task).collect();
        let Work { session, store, summary, steps, failures, .. } = self;
        session.judge_all(&tasks, model, steps, |index, preference: Preference| {
            let (a, b) = &pairs[index];
            match &preference.judging.failure {
                None => summary.compared += 1,
                Some(failure) => summary.failure = Some(failure.clone()),
            }
            if is_failed(&preference.judging) {
                *failures.entry(b.query_id).or_default() += 1;
            }
            // Their grades may have been given just now.
            let [a, b_now] = [a, *b].map(|engram| store.get(engram.query_id));
            tell_comparison(
                store,
                b,
                Comparison::new(
                    compared(a?.as_ref(), b.correlation_id),
                    compared(b_now?.as_ref(), b.query_id),
                    preference,
                ),
            )
        })
    }

    fn tell_alone(&self, b: &Engram) -> anyhow::Result<()> {
        let preference = Preference { judging: Judging::failed(ALONE), ..Preference::default() };
        let [a, compared_b] = [compared(None, b.correlation_id), compared(Some(b), b.query_id)];
        tell_comparison(self.store, b, Comparison::new(a, compared_b, preference))
    }

    /// Completes the summary when the work has ended.
    fn finish(self) -> anyhow::Result<Summary> {
        let Work { store, arguments, holder, summary, .. } = self;
        drop(holder);
        let left = wanted(store, arguments)?;
        let held = left.iter().filter(|entry| entry.is_held).count();
        Ok(Summary { still_due: left.len(), held, ..summary })
    }
}

impl Summary {
    fn count(&mut self, grade: &Grade) {
        match (grade.score, grade.judging.prospect()) {
            (Some(score), _) => {
                let sum = self.mean_score.unwrap_or_default() * self.scored as f64 + f64::from(score);
                self.graded += 1;
                self.scored += 1;
                self.mean_score = Some(sum / self.scored as f64);
            }
            (None, None) => self.graded += 1,
            (None, Some(Prospect::Final)) => self.ungraded += 1,
            (None, _) => self.failure.clone_from(&grade.judging.failure),
        }
    }

    fn remark(&self) -> String {
        self.mean_score.map(|mean| format!("mean {mean:.2}")).unwrap_or_default()
    }
}

/// Whether the judge failed.
fn is_failed(judging: &Judging) -> bool {
    judging.prospect() == Some(Prospect::Failed)
}

/// An answer as part of a comparison; a removed one has only its id.
fn compared(engram: Option<&Engram>, query_id: QueryId) -> ComparedAnswer<'_> {
    let model = engram.map_or("", |engram| engram.model.as_str());
    ComparedAnswer { query_id, model, grade: engram.and_then(|engram| engram.grade.as_ref()) }
}

fn tell_comparison(store: &MemoryStore, b: &Engram, comparison: Comparison) -> anyhow::Result<()> {
    store.annotate_pairwise(&comparison)?;
    let a = Engram { query_id: b.correlation_id, respondent_id: RespondentId::A, ..b.clone() };
    record(store, &a, Payload::PairwiseResult(comparison));
    Ok(())
}

/// Adds a verdict to the event log, which a repair reads. The verdict itself is stored already.
fn record(store: &MemoryStore, engram: &Engram, payload: Payload) {
    let Engram { session_id, owner, query_id, correlation_id, respondent_id, .. } = *engram;
    let envelope = Envelope::new(SENDER, session_id, payload).owned_by(owner);
    let envelope = envelope.about(query_id, correlation_id, respondent_id);
    if let Err(error) = store.append_event(&envelope) {
        tracing::warn!("an event is not in the log: {error}");
    }
}
