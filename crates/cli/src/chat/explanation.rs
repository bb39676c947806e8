//! Why an answer got its grade, from this chat's messages and from memory.
//!
//! Memory knows answers of earlier sessions, and grades that another process has given since.

use hone_agents::{Exchange, RespondentReply};
use hone_app::{Stack, describe};
use hone_memory::{Engram, EventFilter, Filters, MemoryError, MemoryStore};
use hone_protocol::{
    GenerateError, Grade, GradedAnswer, Judging, Payload, Preference, QueryId, Rating, RecalledEngram, RespondentId,
    Response, Subject, remarks_in_words,
};

use crate::badge;

/// Why an answer got its grade.
#[derive(Debug, PartialEq)]
pub(crate) struct Explanation {
    /// Named facts.
    pub(crate) rows: Vec<Vec<String>>,
    /// The judge's feedback.
    pub(crate) feedback: Option<String>,
    /// The answer, if a judge has reached a verdict.
    pub(crate) judged: Option<JudgedAnswer>,
}

/// An answer with a verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JudgedAnswer {
    /// The answer and its grade.
    pub(crate) graded: GradedAnswer,
    /// The model that answered.
    pub(crate) model: String,
}

/// Why an answer got its grade, what was recalled for it, and how it compared. `exchange` holds this chat's messages
/// about it.
///
/// # Errors
/// When memory cannot be read and this chat has received no message about the answer.
pub(crate) fn explain(id: QueryId, exchange: Option<&Exchange>, stack: &Stack) -> anyhow::Result<Explanation> {
    let [a, b] = match remembered(id, exchange, stack.store()) {
        Err(error) if exchange.is_none() => return Err(error.into()),
        found => found.unwrap_or_default(),
    };
    let heard = |respondent| exchange.map(|exchange| exchange.reply(respondent));
    let mut rows = Rows::default();
    let grade = best_grade(heard(RespondentId::A), a.as_ref());
    match &grade {
        Some(grade) => rows.add_grade(grade),
        None => rows.add("grade", why_ungraded(a.as_ref(), exchange.is_some(), stack)),
    }
    if let Some(rating) = rating_of(exchange, || a.as_ref()?.user_feedback) {
        rows.add("your rating", describe::rating(rating).to_owned());
    }
    if let Some(text) = text_of_b(heard(RespondentId::B), b.as_ref(), grade.as_ref()) {
        rows.add("respondent B", text);
    }
    if let Some(preference) = best_preference(exchange, a.as_ref()) {
        rows.add("compared", comparison_text(&preference));
        for juror in &preference.jury {
            rows.add(&format!("juror {}", badge::juror_name(juror)), badge::juror_preference(juror));
        }
        rows.add("reason", preference.reason);
    }
    for recalled in recalled(id, exchange, stack.store()) {
        let (mark, score) = scored(recalled.score, &judging_of(&recalled));
        rows.add("recalled", format!("{:.2} {mark} {score} {}", recalled.similarity, recalled.query));
    }
    let feedback = grade.as_ref().map(|grade| grade.feedback.clone()).filter(|feedback| !feedback.is_empty());
    let grade = grade.filter(Grade::is_verdict);
    let judged = grade.and_then(|grade| judged(grade, heard(RespondentId::A), a));
    Ok(Explanation { rows: rows.0, feedback, judged })
}

/// The grade of an answer, from this chat or memory.
pub(crate) fn grade(id: QueryId, exchange: Option<&Exchange>, stack: &Stack) -> Option<Grade> {
    let [a, _] = remembered(id, exchange, stack.store()).unwrap_or_default();
    best_grade(exchange.map(|exchange| exchange.reply(RespondentId::A)), a.as_ref())
}

/// The user's rating of an answer, from this chat or memory.
pub(crate) fn rating_of(exchange: Option<&Exchange>, remembered: impl FnOnce() -> Option<Rating>) -> Option<Rating> {
    exchange.and_then(Exchange::rating).or_else(remembered)
}

fn judged(grade: Grade, heard: Option<&RespondentReply>, remembered: Option<Engram>) -> Option<JudgedAnswer> {
    let heard = heard
        .and_then(|reply| reply.response.clone())
        .map(|Response { query, answer, model, .. }| (query, answer, model));
    let remembered = remembered.map(|Engram { query, answer, model, .. }| (query, answer, model));
    let (query, answer, model) = remembered.or(heard)?;
    Some(JudgedAnswer { graded: GradedAnswer { query, answer, grade }, model })
}

/// The engrams of both answers to a question, if they exist.
fn remembered(
    id: QueryId,
    exchange: Option<&Exchange>,
    store: Option<&MemoryStore>,
) -> Result<[Option<Engram>; 2], MemoryError> {
    let Some(store) = store else { return Ok([None, None]) };
    let a = store.get(id)?;
    let compared = a.as_ref().and_then(|a| Some(a.compared.as_ref()?.with));
    let b = match (exchange, &a) {
        (Some(exchange), _) => exchange.reply(RespondentId::B).query_id.map(|id| store.get(id)).transpose()?.flatten(),
        (None, Some(a)) => match compared {
            Some(id) => store.get(id)?,
            None => answer_of_b(store, a)?,
        },
        (None, None) => None,
    };
    Ok([a, b])
}

/// Respondent B's answer to the same question, for an answer that was not compared.
fn answer_of_b(store: &MemoryStore, a: &Engram) -> Result<Option<Engram>, MemoryError> {
    let (session, respondent) = (Some(a.session_id), Some(RespondentId::B));
    let filters = Filters { session, respondent, ..Filters::default() };
    let answers = store.list(&filters, usize::MAX)?;
    Ok(answers.into_iter().find(|b| b.correlation_id == a.correlation_id))
}

/// The grade of an answer: the more complete one, and memory's before this chat's.
fn best_grade(heard: Option<&RespondentReply>, remembered: Option<&Engram>) -> Option<Grade> {
    let heard = heard.and_then(|reply| reply.grade.clone());
    let remembered = remembered.and_then(|engram| engram.grade.clone());
    [remembered, heard].into_iter().flatten().min_by_key(Grade::lack)
}

/// The verdict of a comparison: a verdict before a failure, and memory's before this chat's.
fn best_preference(exchange: Option<&Exchange>, a: Option<&Engram>) -> Option<Preference> {
    let heard = exchange.and_then(Exchange::comparison).map(|comparison| comparison.preference.clone());
    let known = [a.and_then(preference_on), heard];
    known.into_iter().flatten().min_by_key(|preference| preference.judging.failure.is_some())
}

/// The comparison stored on respondent A's engram; `None` if there was none.
fn preference_on(a: &Engram) -> Option<Preference> {
    let compared = a.compared.clone()?;
    let winner = a.pairwise_winner.map(|is_better| if is_better { RespondentId::A } else { RespondentId::B });
    let judging = compared.judging();
    Some(Preference {
        winner,
        log_odds: compared.log_odds,
        consistent: compared.consistent,
        reason: compared.reason,
        jury: compared.jury,
        judging,
    })
}

fn why_ungraded(a: Option<&Engram>, is_heard: bool, stack: &Stack) -> String {
    let due = a.and_then(|a| a.due.as_ref()).filter(|due| due.grade);
    match due.map(|due| due.reason.as_deref()) {
        Some(Some(reason)) => format!("not graded yet ({reason})"),
        Some(None) => "not graded yet".to_owned(),
        None if stack.expected().grades && is_heard => "not graded yet".to_owned(),
        None if stack.store().is_none() && !is_heard => "unknown: memory is off (--memory)".to_owned(),
        None if a.is_none() && !is_heard => "unknown: memory does not hold this answer".to_owned(),
        None => "not graded: grading is off (--grade)".to_owned(),
    }
}

/// Respondent B's score, if the same judge gave both; `None` if there is no second respondent.
fn text_of_b(heard: Option<&RespondentReply>, b: Option<&Engram>, grade_a: Option<&Grade>) -> Option<String> {
    if let Some(failure) = heard.and_then(|reply| reply.failure.as_ref()) {
        return Some(no_answer_b(failure));
    }
    let has_answered = b.is_some() || heard.is_some_and(|reply| reply.response.is_some());
    let Some(grade) = best_grade(heard, b) else { return has_answered.then(|| "not graded yet".to_owned()) };
    let judge = badge::judge_name(&grade.judging);
    Some(match grade_a.filter(|a| a.score.is_some() && grade.score.is_some()) {
        Some(a) if !a.is_comparable(&grade) => {
            format!("graded by {judge} for {}: its score is not comparable", grade.rubric)
        }
        _ if grade.judging.judge.is_empty() => badge::in_words(&grade),
        _ => format!("{} by {judge}", badge::in_words(&grade)),
    })
}

/// The recollections for respondent A, in search order.
pub(super) fn recalled(id: QueryId, exchange: Option<&Exchange>, store: Option<&MemoryStore>) -> Vec<RecalledEngram> {
    if let Some(exchange) = exchange {
        return exchange.recalls().iter().flat_map(|recall| recall.engrams.clone()).collect();
    }
    let filter = EventFilter { subjects: vec![Subject::MemoryRecalled], query: Some(id), ..EventFilter::default() };
    let events = store.and_then(|store| store.events(&filter, None).ok()).unwrap_or_default();
    let of_a = events.into_iter().filter(|(_, event)| event.respondent_id == Some(RespondentId::A));
    let recalls = of_a.filter_map(|(_, event)| match event.payload {
        Payload::MemoryRecalled(recall) => Some(recall.engrams),
        _ => None,
    });
    recalls.flatten().collect()
}

fn judging_of(recalled: &RecalledEngram) -> Judging {
    Judging { self_graded: recalled.self_graded, method: recalled.judging_method, ..Judging::default() }
}

/// A score with its mark.
fn scored(score: Option<u8>, judging: &Judging) -> (&'static str, String) {
    match score {
        Some(score) => (badge::mark(Some(judging)), format!("{score}/5")),
        None => (" ", "no grade".to_owned()),
    }
}

/// Why there is no second answer.
pub(crate) fn no_answer_b(error: &GenerateError) -> String {
    format!("respondent B gave no answer: {error}")
}

/// How an answer compares with the second respondent's.
pub(crate) fn comparison_text(preference: &Preference) -> String {
    let Preference { winner, log_odds, consistent, judging, .. } = preference;
    if let Some(failure) = &judging.failure {
        return format!("not compared: {failure}");
    }
    let comparison = match winner {
        Some(RespondentId::A) => "better than respondent B's",
        Some(_) => "worse than respondent B's",
        None => "as good as respondent B's",
    };
    format!("{comparison} ({})", badge::grounds_of_preference(judging, *log_odds, *consistent).join(", "))
}

/// The mean of a jury's scores and their spread; empty for a single judge.
fn mean_of_jury(grade: &Grade) -> String {
    let mean = grade.expected_score.zip(grade.spread);
    mean.map(|(mean, spread)| format!(" (mean {mean:.2}, spread {spread})")).unwrap_or_default()
}

/// Named facts, without empty ones.
#[derive(Default)]
struct Rows(Vec<Vec<String>>);

impl Rows {
    fn add(&mut self, name: &str, value: String) {
        if !value.is_empty() {
            self.0.push(vec![name.to_owned(), value]);
        }
    }

    fn add_grade(&mut self, grade: &Grade) {
        let judging = &grade.judging;
        self.add("grade", format!("{}{}", badge::in_words(grade), mean_of_jury(grade)));
        if let (Some(expected), Some(entropy)) = (grade.expected_score, grade.entropy) {
            self.add("expected score", format!("{expected:.2} (entropy {entropy:.2} nats)"));
        }
        self.add("suspicious", grade.suspicious.as_ref().map(ToString::to_string).unwrap_or_default());
        self.add("remarks", remarks_in_words(&grade.remarks));
        for juror in &grade.jury {
            self.add(&format!("juror {}", badge::juror_name(juror)), badge::juror_grade(juror));
        }
        // If no judge had begun, there is nothing more to report.
        if judging.judge.is_empty() {
            return;
        }
        self.add("judge", badge::judge_name(judging));
        self.add("rubric", grade.rubric.clone());
        let waited = match judging.queue_seconds >= 0.1 {
            true => format!(", {:.1} s of it waiting", judging.queue_seconds),
            false => String::new(),
        };
        let concluded = if judging.concluded_early { ", concluded early to stay within the time limit" } else { "" };
        self.add("time", format!("{:.1} s{waited}, {} tokens{concluded}", judging.seconds, judging.tokens));
    }
}

#[cfg(test)]
mod tests {
    use hone_agents::{Load, MemoryParts, TeamParts};
    use hone_memory::MemoryOptions;
    use hone_protocol::{ComparedAnswer, Comparison, Envelope, JudgingMethod, Recall, RecallMode, SessionId};
    use tempfile::TempDir;

    use super::*;
    use hone_app::config::Config;
    use hone_app::scripted::{saying, stack};

    const A: QueryId = QueryId::from_bits(1);
    const B: QueryId = QueryId::from_bits(2);
    const SESSION: SessionId = SessionId::from_bits(9);

    fn grade(score: u8, judge: &str, self_graded: bool) -> Grade {
        let judging = Judging { judge: judge.into(), self_graded, tokens: 7, seconds: 0.5, ..Judging::default() };
        let (feedback, rubric) = ("Because.".to_owned(), "default".to_owned());
        Grade {
            score: Some(score),
            feedback,
            expected_score: Some(3.5),
            entropy: Some(0.25),
            rubric,
            judging,
            ..Grade::default()
        }
    }

    fn preference() -> Preference {
        let judging = Judging { judge: "j".into(), ..Judging::default() };
        let reason = "It is shorter.".to_owned();
        Preference { winner: Some(RespondentId::A), log_odds: 1.5, reason, judging, ..Preference::default() }
    }

    /// A memory with both answers to a question, and agents that have it; as in a chat that was resumed.
    fn with_memory() -> (TempDir, MemoryStore, Stack) {
        let folder = tempfile::tempdir().unwrap();
        let store = MemoryStore::open(folder.path(), MemoryOptions::default()).unwrap();
        let response = Response::new("why?", "so", "m");
        store.remember(Engram::new(A, SESSION, &response), None).unwrap();
        let b = Engram { correlation_id: A, respondent_id: RespondentId::B, ..Engram::new(B, SESSION, &response) };
        store.remember(b, None).unwrap();
        let settings = Config::defaults().unwrap().memory.settings;
        let (store_of_team, remembers, grades_due) = (store.clone(), true, false);
        let memory = MemoryParts { store: store_of_team, embedder: None, settings, remembers, grades_due };
        let generator = saying(&[]);
        let (respondent_b, judge, memory, works_off_backlog) = (None, None, Some(memory), false);
        let parts = TeamParts {
            generator,
            respondent_b,
            judge,
            graders: None,
            memory,
            works_off_backlog,
            critic: None,
            load: Load::PERSON,
        };
        (folder, store, Stack::start(parts).unwrap())
    }

    /// Two cells a row, as text.
    #[track_caller]
    fn check(explanation: &Explanation, expected: &[[&str; 2]]) {
        let rows: Vec<Vec<String>> = expected.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        assert_eq!(explanation.rows, rows);
    }

    #[test]
    fn what_this_chat_has_heard_is_explained() {
        let stack = stack(&saying(&[]));
        let mut exchange = Exchange::new(A);
        check(&explain(A, Some(&exchange), &stack).unwrap(), &[["grade", "not graded: grading is off (--grade)"]]);
        let mut hear = |payload, respondent| {
            let id = if respondent == RespondentId::A { A } else { B };
            exchange.take(&Envelope::new("critic", SESSION, payload).about(id, A, respondent));
        };
        let critique =
            |grade| Payload::CritiqueResult(GradedAnswer { query: "why?".into(), answer: "so".into(), grade });
        hear(critique(grade(4, "j", false)), RespondentId::A);
        hear(critique(grade(2, "j", false)), RespondentId::B);
        let answer = |query_id| ComparedAnswer { query_id, model: "m", grade: None };
        let comparison = Comparison::new(answer(A), answer(B), preference());
        hear(Payload::PairwiseResult(comparison), RespondentId::A);
        let explanation = explain(A, Some(&exchange), &stack).unwrap();
        let expected = [
            ["grade", "● 4/5"],
            ["expected score", "3.50 (entropy 0.25 nats)"],
            ["judge", "j"],
            ["rubric", "default"],
            ["time", "0.5 s, 7 tokens"],
            ["respondent B", "● 2/5 by j"],
            ["compared", "better than respondent B's (82 % for A, the orders disagree, by j)"],
            ["reason", "It is shorter."],
        ];
        check(&explanation, &expected);
        assert_eq!(explanation.feedback.as_deref(), Some("Because."));
    }

    #[test]
    fn what_was_graded_and_compared_since_is_found_in_memory() {
        let (_folder, store, stack) = with_memory();
        let ungraded = ["grade", "not graded: grading is off (--grade)"];
        check(&explain(A, None, &stack).unwrap(), &[ungraded, ["respondent B", "not graded yet"]]);
        store.make_due(&[A]).unwrap();
        check(&explain(A, None, &stack).unwrap(), &[["grade", "not graded yet"], ["respondent B", "not graded yet"]]);
        // As `hone grade --due` does in a process of its own.
        store.update_score(A, &grade(4, "m", true)).unwrap();
        store.update_score(B, &grade(2, "m", true)).unwrap();
        let answer = |query_id| ComparedAnswer { query_id, model: "m", grade: None };
        let mut by_itself = preference();
        by_itself.judging.judge = "m".into();
        store.annotate_pairwise(&Comparison::new(answer(A), answer(B), by_itself)).unwrap();
        let recalled = RecalledEngram {
            query_id: B,
            query: "Is it?".into(),
            answer: "It is.".into(),
            score: Some(3),
            similarity: 0.75,
            relevance: 0.75,
            self_graded: true,
            judging_method: JudgingMethod::Likelihood,
            words: 0.0,
            is_fact: false,
            is_unreviewed: false,
        };
        let recall = Recall { mode: RecallMode::Context, search: "why?".into(), engrams: vec![recalled] };
        let envelope = Envelope::new("memory", SESSION, Payload::MemoryRecalled(recall));
        store.append_event(&envelope.about(A, A, RespondentId::A)).unwrap();
        let explanation = explain(A, None, &stack).unwrap();
        let expected = [
            ["grade", "○ 4/5"],
            ["expected score", "3.50 (entropy 0.25 nats)"],
            ["judge", "m (self-graded)"],
            ["rubric", "default"],
            ["time", "0.5 s, 7 tokens"],
            ["respondent B", "○ 2/5 by m (self-graded)"],
            ["compared", "better than respondent B's (82 % for A, the orders disagree, by m (self-graded))"],
            ["reason", "It is shorter."],
            ["recalled", "0.75 ◇ 3/5 Is it?"],
        ];
        check(&explanation, &expected);
        // A chat that has heard only of a failure sees the grade that came later.
        let mut exchange = Exchange::new(A);
        let failed = GradedAnswer { query: "why?".into(), answer: "so".into(), grade: Grade::unscored("timeout") };
        exchange.take(&Envelope::new("critic", SESSION, Payload::CritiqueResult(failed)).about(A, A, RespondentId::A));
        check(
            &Explanation { rows: explain(A, Some(&exchange), &stack).unwrap().rows[..1].to_vec(), ..explanation },
            &expected[..1],
        );
    }

    #[test]
    fn scores_of_two_judges_are_not_put_side_by_side() {
        let (_folder, store, stack) = with_memory();
        store.update_score(A, &grade(4, "j", false)).unwrap();
        store.update_score(B, &grade(2, "m", true)).unwrap();
        let explanation = explain(A, None, &stack).unwrap();
        let of_b = explanation.rows.last().unwrap();
        assert_eq!(of_b[1], "graded by m (self-graded) for default: its score is not comparable");
        let (a, b) = (store.get(A).unwrap().unwrap(), store.get(B).unwrap().unwrap());
        let answer = |engram: &Engram| engram.grade.clone();
        let (grade_a, grade_b) = (answer(&a), answer(&b));
        let compared = |query_id, grade| ComparedAnswer { query_id, model: "m", grade };
        let comparison = Comparison::new(compared(A, grade_a.as_ref()), compared(B, grade_b.as_ref()), preference());
        assert_eq!((comparison.score_a, comparison.score_b), (None, None));
        let comparison = Comparison::new(compared(A, grade_a.as_ref()), compared(B, grade_a.as_ref()), preference());
        assert_eq!((comparison.score_a, comparison.score_b), (Some(4), Some(4)));
    }

    #[test]
    fn an_answer_that_memory_does_not_hold_is_not_explained() {
        let (_folder, _store, stack) = with_memory();
        let unknown = ["grade", "unknown: memory does not hold this answer"];
        check(&explain(QueryId::from_bits(7), None, &stack).unwrap(), &[unknown]);
    }
}
