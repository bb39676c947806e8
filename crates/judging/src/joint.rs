//! Combines the verdicts of a jury's members into one.
//!
//! Members without a verdict have no vote; their failures are kept with the other verdicts.

use hone_protocol::prospect::NO_VERDICT;
use hone_protocol::{Grade, Judging, JudgingMethod, Juror, Preference, Prospect, RespondentId};

use crate::comparing::winner;
use crate::review::Review;
use crate::settings::JudgeSettings;
use crate::task::{Verdict, without_verdict};

/// A verdict that several judges can give together.
pub trait JointVerdict: Verdict + Clone {
    /// The joint verdict of several jurors that each have one, without its cost.
    fn joint(votes: &[&Juror<Self>], limits: DisagreementLimits) -> Self;

    /// Whether these jurors disagree.
    fn is_disputed(votes: &[&Juror<Self>], limits: DisagreementLimits) -> bool;

    /// The members of the jury that gave it; empty for a single judge.
    fn members(&self) -> &[Juror<Self>];

    /// Keeps the verdicts of the jury's members with their joint verdict.
    fn keep(&mut self, members: Vec<Juror<Self>>, limits: DisagreementLimits);
}

/// The limits from which verdicts count as different.
#[derive(Clone, Copy, Debug)]
pub struct DisagreementLimits {
    disagreement: u8,
    tie_margin: f64,
}

impl DisagreementLimits {
    /// The configured limits.
    pub(crate) fn of(settings: &JudgeSettings) -> DisagreementLimits {
        DisagreementLimits { disagreement: settings.disagreement, tie_margin: settings.tie_margin }
    }
}

/// The jurors that have a verdict, without the stronger judge.
pub(crate) fn votes<V: Verdict>(members: &[Juror<V>]) -> Vec<&Juror<V>> {
    members.iter().filter(|member| !member.is_stronger && has_verdict(member)).collect()
}

/// The verdict of a jury: the stronger judge's if it was asked and has one, otherwise the joint verdict of the jurors.
pub(crate) fn verdict_of<V: JointVerdict>(members: Vec<Juror<V>>, limits: DisagreementLimits) -> V {
    let stronger = members.iter().find(|member| member.is_stronger && has_verdict(member));
    let mut verdict = stronger.map_or_else(|| verdict_of_jurors(&members, limits), |member| member.verdict.clone());
    let cost = total(members.iter());
    let judging = verdict.judging_mut();
    (judging.tokens, judging.seconds, judging.queue_seconds) = (cost.tokens, cost.seconds, cost.queue_seconds);
    verdict.keep(members, limits);
    verdict
}

/// The reason why none of these judges gives a verdict. Its prospect is the most hopeful one among the reasons.
pub(crate) fn joint_failure(reasons: &[(&str, &str)]) -> String {
    if let [(_, first), others @ ..] = reasons
        && others.iter().all(|(_, reason)| reason == first)
    {
        return (*first).to_owned();
    }
    let told: Vec<String> = reasons.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let told = told.join("; ");
    let are_all = |prospects: &[Prospect]| reasons.iter().all(|(_, reason)| prospects.contains(&Prospect::of(reason)));
    match () {
        () if are_all(&[Prospect::Final]) => told,
        () if are_all(&[Prospect::Final, Prospect::Doubtful]) => format!("{NO_VERDICT} ({told})"),
        () => format!("no juror gave a verdict ({told})"),
    }
}

fn verdict_of_jurors<V: JointVerdict>(members: &[Juror<V>], limits: DisagreementLimits) -> V {
    match votes(members).as_slice() {
        [] => no_verdict_of(members),
        [only] => only.verdict.clone(),
        votes => {
            let mut verdict = V::joint(votes, limits);
            *verdict.judging_mut() = total(votes.iter().copied());
            verdict
        }
    }
}

/// The failure of a jury without votes. `members` must not be empty.
fn no_verdict_of<V: JointVerdict>(members: &[Juror<V>]) -> V {
    let failures = members.iter().map(|member| member.verdict.judging().failure.as_deref().unwrap_or_default());
    let reasons: Vec<(&str, &str)> = members.iter().map(|member| member.name.as_str()).zip(failures).collect();
    let mut verdict = members[0].verdict.clone();
    *verdict.judging_mut() = total(members.iter());
    without_verdict(verdict, &joint_failure(&reasons))
}

fn has_verdict<V: Verdict>(member: &Juror<V>) -> bool {
    member.verdict.judging().failure.is_none()
}

/// The total cost of the members, and the names of the members that had begun.
fn total<'a, V: Verdict + 'a>(members: impl Iterator<Item = &'a Juror<V>> + Clone) -> Judging {
    let judgings = || members.clone().map(|member| member.verdict.judging());
    let begun = members.clone().filter(|member| !member.verdict.judging().judge.is_empty());
    let names: Vec<&str> = begun.map(|member| member.name.as_str()).collect();
    Judging {
        judge: names.join(", "),
        self_graded: judgings().all(|judging| judging.self_graded),
        tokens: judgings().map(|judging| judging.tokens).sum(),
        seconds: judgings().map(|judging| judging.seconds).sum(),
        queue_seconds: judgings().map(|judging| judging.queue_seconds).sum(),
        concluded_early: judgings().any(|judging| judging.concluded_early),
        method: JudgingMethod::Prompted,
        failure: None,
    }
}

impl JointVerdict for Grade {
    /// The mean of the scores, with the reasons of the juror nearest to it.
    fn joint(votes: &[&Juror<Grade>], _: DisagreementLimits) -> Grade {
        let value = |vote: &Juror<Grade>| vote.verdict.expected_score.or(vote.verdict.score.map(f64::from));
        let Some((mean, nearest)) = nearest_to_mean(votes, value) else { return Grade::default() };
        let Grade { rubric, feedback, suspicious, .. } = nearest.verdict.clone();
        let (score, expected_score) = (Some(mean.round() as u8), Some(mean));
        Grade { score, expected_score, rubric, feedback, suspicious, ..Grade::default() }
    }

    fn is_disputed(votes: &[&Juror<Grade>], limits: DisagreementLimits) -> bool {
        spread(votes).is_some_and(|spread| spread >= limits.disagreement)
    }

    fn members(&self) -> &[Juror<Grade>] {
        &self.jury
    }

    fn keep(&mut self, members: Vec<Juror<Grade>>, limits: DisagreementLimits) {
        let votes = votes(&members);
        (self.spread, self.disputed) = (spread(&votes), Grade::is_disputed(&votes, limits));
        self.jury = members;
    }
}

/// Reviews are written by one judge. Where there are several, the first one's review stands.
impl JointVerdict for Review {
    fn joint(votes: &[&Juror<Self>], _: DisagreementLimits) -> Self {
        votes.first().map(|vote| vote.verdict.clone()).unwrap_or_default()
    }

    fn is_disputed(_: &[&Juror<Self>], _: DisagreementLimits) -> bool {
        false
    }

    fn members(&self) -> &[Juror<Self>] {
        &[]
    }

    fn keep(&mut self, _: Vec<Juror<Self>>, _: DisagreementLimits) {}
}

impl JointVerdict for Preference {
    /// The majority winner, or otherwise the winner by the mean of the jurors' log-odds.
    fn joint(votes: &[&Juror<Preference>], limits: DisagreementLimits) -> Preference {
        let log_odds = votes.iter().map(|vote| vote.verdict.log_odds).sum::<f64>() / votes.len() as f64;
        let majority = |winner: &Option<RespondentId>| 2 * n_votes(votes, *winner) > votes.len();
        let winner = [Some(RespondentId::A), Some(RespondentId::B), None]
            .into_iter()
            .find(majority)
            .unwrap_or_else(|| winner(log_odds, limits.tie_margin));
        let agreeing: Vec<&Juror<Preference>> =
            votes.iter().copied().filter(|vote| vote.verdict.winner == winner).collect();
        let speakers = if agreeing.is_empty() { votes } else { agreeing.as_slice() };
        let speaker = nearest_to_mean(speakers, |vote| Some(vote.verdict.log_odds));
        let reason = speaker.map_or_else(String::new, |(_, vote)| vote.verdict.reason.clone());
        let consistent = votes.iter().all(|vote| vote.verdict.consistent);
        Preference { winner, log_odds, consistent, reason, ..Preference::default() }
    }

    fn is_disputed(votes: &[&Juror<Preference>], _: DisagreementLimits) -> bool {
        [RespondentId::A, RespondentId::B].iter().all(|winner| n_votes(votes, Some(*winner)) > 0)
    }

    fn members(&self) -> &[Juror<Preference>] {
        &self.jury
    }

    fn keep(&mut self, members: Vec<Juror<Preference>>, _: DisagreementLimits) {
        self.jury = members;
    }
}

/// The highest score minus the lowest, for two votes or more.
fn spread(votes: &[&Juror<Grade>]) -> Option<u8> {
    let scores = || votes.iter().filter_map(|vote| vote.verdict.score);
    (votes.len() > 1).then(|| Some(scores().max()? - scores().min()?)).flatten()
}

fn n_votes(votes: &[&Juror<Preference>], winner: Option<RespondentId>) -> usize {
    votes.iter().filter(|vote| vote.verdict.winner == winner).count()
}

/// The mean of the votes' values, and the first of the votes nearest to it.
fn nearest_to_mean<'a, V>(
    votes: &[&'a Juror<V>],
    value: impl Fn(&Juror<V>) -> Option<f64>,
) -> Option<(f64, &'a Juror<V>)> {
    let values: Vec<(f64, &Juror<V>)> = votes.iter().filter_map(|vote| Some((value(vote)?, *vote))).collect();
    let mean = values.iter().map(|(value, _)| value).sum::<f64>() / values.len() as f64;
    let distance = |(value, _): &&(f64, &Juror<V>)| (value - mean).abs();
    let nearest = values.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some((mean, nearest.1))
}
