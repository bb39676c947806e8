//! The intention of a day: worthwhile work, based on the state of memory.

use hone_judging::fill;
use hone_memory::{Engram, EngramKind, Filters, Whose, WithinScope};
use hone_protocol::{Constraint, ContentType, CriticMode, Rating, VettingState};

use super::{ModelWriter, NoteError, NoteSettings, day, quoted};
use crate::gatekeeping::{Decided, Gatekeeper};
use crate::remembering::Rememberer;
use crate::settings::{SCOPE_OF_CLIENTS, on_one_line, shortened};

/// The most characters of a question or a fact in the state.
const TEXT: usize = 160;

/// Writes intentions.
pub struct Intender<'a> {
    /// The store of the intentions.
    pub rememberer: &'a Rememberer,
    /// The model.
    pub writer: ModelWriter<'a>,
    /// The gatekeeper for the intentions.
    pub gatekeeper: Gatekeeper<'a>,
    /// How they are written.
    pub settings: &'a NoteSettings,
    /// Unfinished work, one line each: tasks in progress, or waiting for a person.
    pub open_ends: &'a [String],
}

/// An intention, and the decision about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Intended {
    /// The intention.
    pub note: Engram,
    /// The decision about it.
    pub decided: Decided,
    /// The first intention, if the critic wanted to block it.
    pub first: Option<(Engram, Decided)>,
}

impl Intender<'_> {
    /// Writes the intention of today, and once more with the critic's challenges if it wants to block the first one.
    ///
    /// # Errors
    /// When memory or the model fails, or a hard gate cannot ask its critic now.
    pub fn intend(&self) -> Result<Intended, NoteError> {
        let mode = self.gatekeeper.mode(ContentType::Intention)?;
        if mode == CriticMode::Hard
            && let Some(refusal) = self.gatekeeper.refusal(ContentType::Intention)?
        {
            return Err(NoteError::Refused(refusal));
        }
        let state = self.state()?;
        let today = day((self.gatekeeper.clock)());
        let prompt = fill(&self.settings.intention_prompt, &[("state", &state.text), ("day", &today)]);
        let (note, decided) = self.attempt(&prompt, &today, &state)?;
        let Some(critique) = decided.critique.as_ref().filter(|_| decided.was_to_be_blocked()) else {
            return Ok(Intended { note, decided, first: None });
        };
        let challenges: Vec<String> = critique.challenges.iter().map(|challenge| format!("- {challenge}")).collect();
        let challenges = if challenges.is_empty() { critique.reasoning.clone() } else { challenges.join("\n") };
        let places = [("intention", quoted(&note.answer)), ("challenges", quoted(&challenges))];
        let again = fill(&self.settings.intention_again, &places.each_ref().map(|(name, text)| (*name, text.as_str())));
        let first = Some((note, decided));
        let (note, decided) = self.attempt(&format!("{prompt}\n{again}"), &today, &state)?;
        Ok(Intended { note, decided, first })
    }

    fn attempt(&self, prompt: &str, today: &str, state: &Observations) -> Result<(Engram, Decided), NoteError> {
        // At least one character, so that there is something to criticize.
        let constraint = Constraint::Regex("(?s)[^\\s].*".to_owned());
        let completion = self.writer.write(prompt, self.settings.intention_tokens, Some(constraint))?;
        let text = completion.text.trim().to_owned();
        let title = format!("What is the intention for {today}?");
        let note = self.writer.note(EngramKind::Intention, title, &text, completion.timings, state.sources.clone());
        self.rememberer.remember(note.clone(), None)?;
        let decided = self.gatekeeper.decide(&note, ContentType::Intention, &state.text)?;
        Ok((note, decided))
    }

    /// The state of memory and work: figures, unfinished work, facts that the person stated, the latest answers with
    /// their grades, and the last intention.
    fn state(&self) -> Result<Observations, NoteError> {
        let store = self.gatekeeper.store;
        let scope = WithinScope::AllBut(SCOPE_OF_CLIENTS.to_owned());
        let own = Filters { whose: Whose::Of(None), scope, worth_recalling: true, ..Filters::default() };
        let answers = store.list(&own, self.settings.intention_answers)?;
        let of_kind = |kind, n| store.list(&Filters { kind: Some(kind), ..own.clone() }, n);
        let facts = of_kind(EngramKind::Fact, self.settings.intention_facts)?;
        let last = of_kind(EngramKind::Intention, 1)?.pop();
        let figures = store.statistics(Whose::Of(None))?;
        let mut lines = vec![format!(
            "Answers in memory: {}, graded: {}, waiting for a grade: {}, blocked by the critic: {}.",
            figures.all.engrams, figures.all.scored, figures.grades_due, figures.blocked
        )];
        match &last {
            Some(last) => lines.push(format!("Last intention, of {}:\n{}", day(last.at), quoted(&last.answer))),
            None => lines.push("There was no intention before.".to_owned()),
        }
        push_list(&mut lines, "Not finished:", self.open_ends.iter().map(|end| quoted(end)));
        push_list(&mut lines, "The person's own words, the newest first:", facts.iter().map(stated));
        push_list(&mut lines, "Latest questions, the newest first:", answers.iter().map(described));
        let sources = answers.iter().chain(&facts).chain(&last).map(|engram| engram.query_id).collect();
        Ok(Observations { text: lines.join("\n"), sources })
    }
}

/// Adds a list under its title, unless it is empty.
fn push_list(lines: &mut Vec<String>, title: &str, items: impl Iterator<Item = String>) {
    let mut items = items.peekable();
    if items.peek().is_some() {
        lines.push(title.to_owned());
    }
    lines.extend(items);
}

struct Observations {
    text: String,
    sources: Vec<hone_protocol::QueryId>,
}

fn described(engram: &Engram) -> String {
    let grade = engram.score().map_or("no grade".to_owned(), |score| format!("grade {score} of 5"));
    let rated = match engram.user_feedback {
        Some(Rating::Good) => ", liked",
        Some(Rating::Bad) => ", disliked",
        None => "",
    };
    let checked = if engram.vetting.state == VettingState::Reviewed { "" } else { ", not checked" };
    quoted(&format!("{} ({grade}{rated}{checked}): {}", day(engram.at), beginning(&engram.query)))
}

fn stated(fact: &Engram) -> String {
    quoted(&format!("{}: {}", day(fact.at), beginning(&fact.query)))
}

fn beginning(text: &str) -> String {
    shortened(&on_one_line(text), TEXT)
}
