//! Consolidation: exchanges that belong together are summarized. They stay unchanged, whatever happens to the summary.

use std::collections::{HashMap, HashSet};

use hone_judging::{PurposeDecider, fill};
use hone_memory::{Engram, EngramKind, MemoryError, WithVector};
use hone_protocol::{Constraint, ContentType, CriticMode, QueryId, VettingState, with_causes};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::clusters::{Clusters, Division};
use super::contradictions::{Contradiction, StatedFact, contradiction, cosine};
use super::vetting::context_of;
use super::{ModelWriter, NoteError, NoteSettings, day, quoted};
use crate::gatekeeping::{Decided, Gatekeeper};
use crate::remembering::Rememberer;
use crate::settings::{MemorySettings, RecallPolicy, shortened};

/// Engrams that are read at once.
const PAGE: usize = 64;
/// A day, in milliseconds.
const DAY: f64 = 24.0 * 60.0 * 60.0 * 1_000.0;
/// The most characters of a title.
const TITLE: usize = 80;
/// The fewest characters per token in English.
const CHARACTERS_PER_TOKEN: usize = 2;

/// Summarizes related exchanges.
pub struct Consolidator<'a> {
    /// Where summaries are remembered.
    pub rememberer: &'a Rememberer,
    /// The model.
    pub writer: ModelWriter<'a>,
    /// The gatekeeper for the summaries.
    pub gatekeeper: Gatekeeper<'a>,
    /// How they are written.
    pub settings: &'a NoteSettings,
    /// The settings for which exchanges may be consolidated, and which statements have the same topic.
    pub memory: &'a MemorySettings,
    /// The model that decides which statements contradict each other, if one has passed for it; otherwise rules do.
    pub decider: Option<PurposeDecider>,
}

/// The outcome of a consolidation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Consolidated {
    /// Exchanges that were not consolidated before.
    pub exchanges: usize,
    /// Groups of them.
    pub clusters: usize,
    /// Groups that were summarized, with summaries of an earlier run whose verdict was missing.
    pub written: usize,
    /// Summaries that count as long-term memory.
    pub reviewed: usize,
    /// Summaries that the critic has blocked.
    pub blocked: usize,
    /// Summaries without a verdict that counts.
    pub unreviewed: usize,
    /// Groups for which the model wrote no summary.
    pub failed: usize,
    /// Exchanges that a later one of their group repeats.
    pub duplicates: usize,
    /// Facts that were stated differently at different times.
    pub contradictions: Vec<Contradiction>,
    /// Why groups remain; `None` if none do.
    pub stopped: Option<String>,
}

/// The model's reply.
#[derive(Deserialize)]
struct SaidNote {
    title: String,
    summary: String,
}

/// Pending work.
struct ConsolidationPlan {
    exchanges: usize,
    clusters: Vec<Vec<QueryId>>,
    /// Facts by the exchange that they were stated in.
    facts: HashMap<QueryId, Vec<QueryId>>,
    /// Summaries of an earlier run that ended before their verdicts came.
    undecided: Vec<QueryId>,
}

impl Consolidator<'_> {
    /// Consolidates the exchanges that were not consolidated before. `before_each` gets the number of finished groups
    /// and of all groups; it may wait, and returns whether to continue. Finished summaries are kept if the process
    /// ends.
    ///
    /// # Errors
    /// When memory fails.
    pub fn run(&self, before_each: &mut dyn FnMut(usize, usize) -> bool) -> Result<Consolidated, NoteError> {
        let plan = self.plan()?;
        let total = plan.undecided.len() + plan.clusters.len();
        let mut consolidated =
            Consolidated { exchanges: plan.exchanges, clusters: plan.clusters.len(), ..Consolidated::default() };
        let undecided = plan.undecided.iter().map(ConsolidationStep::Undecided);
        for (done, work) in
            undecided.chain(plan.clusters.iter().map(|cluster| ConsolidationStep::Cluster(cluster))).enumerate()
        {
            if !before_each(done, total) {
                consolidated.stopped = Some(NoteError::Stopped.to_string());
                break;
            }
            if let Some(reason) = self.work_on(&work, &plan, &mut consolidated)? {
                consolidated.stopped = Some(reason);
                break;
            }
        }
        Ok(consolidated)
    }

    /// Processes one group; returns a reason if no others should follow.
    fn work_on(
        &self,
        work: &ConsolidationStep<'_>,
        plan: &ConsolidationPlan,
        consolidated: &mut Consolidated,
    ) -> Result<Option<String>, NoteError> {
        let mode = self.gatekeeper.mode(ContentType::Consolidation)?;
        if mode == CriticMode::Hard
            && let Some(refusal) = self.gatekeeper.refusal(ContentType::Consolidation)?
        {
            return Ok(Some(refusal.reason));
        }
        let decided = match work {
            ConsolidationStep::Undecided(id) => self.decide_again(**id)?,
            ConsolidationStep::Cluster(cluster) => match self.consolidate(cluster, plan, consolidated) {
                Ok(decided) => decided,
                Err(NoteError::Model { model, reason }) => {
                    tracing::warn!("a group is left: {model} has written no summary: {reason}");
                    consolidated.failed += 1;
                    None
                }
                Err(NoteError::Stopped) => return Ok(Some(NoteError::Stopped.to_string())),
                Err(other) => return Err(other),
            },
        };
        let Some(decided) = decided else { return Ok(None) };
        consolidated.written += 1;
        match decided.state {
            VettingState::Reviewed => consolidated.reviewed += 1,
            VettingState::Blocked => consolidated.blocked += 1,
            VettingState::Unreviewed => consolidated.unreviewed += 1,
        }
        let stops = decided.is_critics_fault() && decided.mode == CriticMode::Hard;
        Ok(decided.reason.filter(|_| stops))
    }

    fn decide_again(&self, id: QueryId) -> Result<Option<Decided>, NoteError> {
        let store = self.gatekeeper.store;
        let Some(note) = store.get(id)? else { return Ok(None) };
        let context = context_of(store, &note)?;
        Ok(Some(self.gatekeeper.decide(&note, ContentType::Consolidation, &context)?))
    }

    /// Groups exchanges that were not consolidated before. Memory is read a few engrams at a time; ids are kept.
    fn plan(&self) -> Result<ConsolidationPlan, NoteError> {
        let (mut used, mut undecided) = (HashSet::new(), Vec::new());
        self.walk(|(engram, _)| {
            if engram.kind == EngramKind::Consolidation {
                let is_undecided =
                    engram.vetting.state == VettingState::Unreviewed && engram.vetting.critique.is_none();
                undecided.extend(is_undecided.then_some(engram.query_id));
                used.extend(engram.sources);
            }
        })?;
        let mut clusters = Clusters::new(Division {
            similarity: self.settings.cluster_similarity,
            gap: (self.settings.cluster_days * DAY) as u64,
            most: self.settings.cluster_size,
        });
        let mut facts: HashMap<QueryId, Vec<QueryId>> = HashMap::new();
        let mut exchanges = 0;
        self.walk(|(engram, vector)| match (engram.kind, engram.source, vector) {
            (EngramKind::Fact, Some(source), _) => facts.entry(source).or_default().push(engram.query_id),
            (EngramKind::Episodic, _, Some(vector)) if self.is_wanted(&engram) && !used.contains(&engram.query_id) => {
                exchanges += 1;
                clusters.add(engram.query_id, engram.at, &vector);
            }
            _ => {}
        })?;
        Ok(ConsolidationPlan { exchanges, clusters: clusters.finish(self.settings.cluster_least), facts, undecided })
    }

    fn walk(&self, mut visit: impl FnMut(WithVector)) -> Result<(), MemoryError> {
        let mut after = Some(0);
        while let Some(from) = after {
            let (engrams, next) = self.gatekeeper.store.walk(from, PAGE)?;
            engrams.into_iter().for_each(&mut visit);
            after = next;
        }
        Ok(())
    }

    /// Whether an exchange may be consolidated: it is the person's own, worth recalling, and reviewed if that is
    /// required.
    fn is_wanted(&self, engram: &Engram) -> bool {
        let is_allowed = self.memory.recall == RecallPolicy::UnreviewedMarked || engram.is_reviewed();
        engram.owner.is_none() && engram.scope.is_none() && engram.is_worth_recalling() && is_allowed
    }

    fn consolidate(
        &self,
        cluster: &[QueryId],
        plan: &ConsolidationPlan,
        consolidated: &mut Consolidated,
    ) -> Result<Option<Decided>, NoteError> {
        let members = self.gatekeeper.store.these(cluster)?;
        if members.len() < self.settings.cluster_least {
            return Ok(None);
        }
        let facts: Vec<QueryId> = cluster.iter().filter_map(|id| plan.facts.get(id)).flatten().copied().collect();
        let contradictions = self.contradictions_in(&self.gatekeeper.store.these(&facts)?);
        let shown: Vec<&Engram> = without_duplicates(&members, self.memory.duplicate);
        let memories: Vec<String> = shown.iter().map(|engram| self.described(engram)).collect();
        let memories = memories.join("\n\n");
        let named = named(&contradictions);
        let places = [("memories", memories.as_str()), ("contradictions", named.as_str())];
        let prompt = fill(&self.settings.consolidation_prompt, &places);
        let completion = self.writer.write(&prompt, self.settings.consolidation_tokens, Some(self.form()))?;
        let said: SaidNote = serde_json::from_str(&completion.text).map_err(|_| NoteError::Model {
            model: self.writer.model.clone(),
            reason: "it did not come to an end within notes.consolidation_tokens".to_owned(),
        })?;
        let text = if named.is_empty() { said.summary } else { format!("{}\n\n{named}", said.summary) };
        let note = self.writer.note(EngramKind::Consolidation, said.title, &text, completion.timings, cluster.to_vec());
        self.rememberer.remember(note.clone(), None)?;
        consolidated.duplicates += members.len() - shown.len();
        consolidated.contradictions.extend(contradictions);
        Ok(Some(self.gatekeeper.decide(&note, ContentType::Consolidation, &memories)?))
    }

    /// Every pair of facts that contradict each other, in order of time.
    fn contradictions_in(&self, facts: &[WithVector]) -> Vec<Contradiction> {
        let mut stated: Vec<StatedFact> = facts.iter().map(stated).collect();
        stated.sort_by_key(|fact| fact.at);
        let pairs = stated
            .iter()
            .enumerate()
            .flat_map(|(index, earlier)| stated[index + 1..].iter().map(move |later| (earlier, later)));
        pairs.filter_map(|(earlier, later)| self.contradiction(earlier, later)).collect()
    }

    /// Whether two statements contradict each other. A model is asked about those that are about the same thing.
    fn contradiction(&self, earlier: &StatedFact, later: &StatedFact) -> Option<Contradiction> {
        let by_rules = contradiction(earlier, later, self.memory);
        let is_near = cosine(&earlier.vector, &later.vector) >= self.memory.changed_statement;
        let is_asked = (is_near || by_rules.is_some()) && !(self.writer.is_stopped)();
        let Some(decider) = self.decider.as_ref().filter(|_| is_asked) else { return by_rules };
        match decider.decide(&earlier.text, &later.text, self.writer.is_stopped) {
            Ok(true) => Some(Contradiction { earlier: earlier.text.clone(), later: later.text.clone() }),
            Ok(false) => None,
            Err(error) => {
                tracing::warn!("{} has not decided about two statements: {}", decider.model, with_causes(&error));
                by_rules
            }
        }
    }

    fn form(&self) -> Constraint {
        let most = self.settings.consolidation_tokens.saturating_mul(CHARACTERS_PER_TOKEN).max(1);
        let text = |most: usize| json!({"type": "string", "minLength": 1, "maxLength": most});
        Constraint::JsonSchema(json!({
            "type": "object",
            "properties": {"title": text(TITLE), "summary": text(most)},
            "required": ["title", "summary"],
            "additionalProperties": false,
        }))
    }

    fn described(&self, engram: &Engram) -> String {
        let checked = if engram.is_reviewed() { "" } else { ", not checked" };
        format!(
            "{}{checked}:\n{}",
            day(engram.at),
            quoted(&shortened(&engram.text(), self.settings.cluster_characters))
        )
    }
}

/// A summary without a verdict, or exchanges without a summary.
enum ConsolidationStep<'a> {
    Undecided(&'a QueryId),
    Cluster(&'a [QueryId]),
}

/// The exchanges without those that a later one repeats.
fn without_duplicates(members: &[WithVector], duplicate: f32) -> Vec<&Engram> {
    let repeats = |(a, va): &WithVector, (b, vb): &WithVector| {
        a.text() == b.text() || va.as_ref().zip(vb.as_ref()).is_some_and(|(a, b)| cosine(a, b) >= duplicate)
    };
    let is_last =
        |(index, member): &(usize, &WithVector)| !members[index + 1..].iter().any(|later| repeats(member, later));
    members.iter().enumerate().filter(is_last).map(|(_, (engram, _))| engram).collect()
}

fn stated((engram, vector): &WithVector) -> StatedFact {
    let vector = vector.clone().unwrap_or_default();
    StatedFact { text: engram.query.clone(), at: engram.at, is_update: engram.is_update, vector }
}

/// The contradictions as text; both statements are named, and the later one prevails.
fn named(contradictions: &[Contradiction]) -> String {
    if contradictions.is_empty() {
        return String::new();
    }
    let line = |it: &Contradiction| format!("- \"{}\" was said before \"{}\", which stands.", it.earlier, it.later);
    format!("What has changed:\n{}", contradictions.iter().map(line).collect::<Vec<_>>().join("\n"))
}
