//! The results of examining a model's decisions, kept for this file of the model and this way of asking.

use hone_judging::{Decider, DecisionMarks, LabelledDecision, OrderBias, first_option_excess};
use hone_protocol::{
    Decision, DecisionForm, DecisionRequest, DecisionTunings, DecisionType, Generate, GenerateError, Lane,
};
use serde::{Deserialize, Serialize};

use super::marks;
use crate::app::App;
use crate::progress::Activity;

/// The marks of a model for each kind of question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExaminedDecisions {
    /// The model's name.
    pub model: String,
    /// The marks.
    pub marks: Vec<(DecisionType, DecisionMarks)>,
}

impl ExaminedDecisions {
    /// The marks of a model; `None` if it has not been examined in the way it is asked now.
    pub fn find(app: &App, model: &str) -> Option<ExaminedDecisions> {
        let is_usable =
            |(_, marks): &(DecisionType, DecisionMarks)| marks.temperature.is_finite() && marks.temperature > 0.0;
        let digests = [Decider::digest(), LabelledDecision::digest()];
        marks::find(app, model, &[&digests[0], &digests[1]], |found: &ExaminedDecisions| {
            found.marks.iter().all(is_usable)
        })
    }

    /// Saves the marks.
    ///
    /// # Errors
    /// When they cannot be written, or the model is not installed.
    pub fn keep(&self, app: &App) -> anyhow::Result<()> {
        marks::keep(app, &self.model, &[&Decider::digest(), &LabelledDecision::digest()], self)
    }

    /// Examines a model with the cases that hone ships with, in every form, and keeps the better one of each kind.
    ///
    /// # Errors
    /// When the model cannot be asked, or `is_over` says that the marks are no longer wanted.
    pub fn of(
        generator: &dyn Generate,
        model: &str,
        activity: &dyn Activity,
        is_over: &dyn Fn() -> bool,
    ) -> Result<ExaminedDecisions, GenerateError> {
        let decider = Decider::default();
        let sets = DecisionType::ALL.map(|kind| (kind, LabelledDecision::shipped(kind)));
        let passes =
            |kind: DecisionType| forms(kind).iter().map(|form| 1 + usize::from(is_ordered(kind, *form))).sum::<usize>();
        let total = sets.iter().map(|(kind, cases)| cases.len() * passes(*kind)).sum();
        let mut done = 0;
        let mut marks = Vec::new();
        for (kind, cases) in sets {
            let mut of_forms: Vec<DecisionMarks> = Vec::new();
            for form in forms(kind) {
                let mut decide = |orders: usize| {
                    let mut decisions: Vec<Decision> = Vec::with_capacity(cases.len());
                    for case in &cases {
                        activity.advance(done, total, kind.name());
                        let mut request = DecisionRequest {
                            orders,
                            lane: Lane::Batch,
                            ..DecisionRequest::new(model, case.state.clone(), vec![case.question.clone()])
                        };
                        request.tunings.of_mut(kind).form = *form;
                        decisions.extend(decider.decide(generator, &request, is_over)?.answers);
                        done += 1;
                    }
                    Ok(decisions)
                };
                let decisions = decide(DecisionRequest::ORDERS)?;
                let mut marks = DecisionMarks::of(*form, &cases, &decisions);
                if let Some(marks) = marks.as_mut().filter(|_| is_ordered(kind, *form)) {
                    let [one, averaged] =
                        [decide(1)?, decisions].map(|decisions| first_option_excess(&cases, &decisions));
                    marks.order_bias = Some(OrderBias { one_order: one, averaged });
                }
                of_forms.extend(marks);
            }
            let best = of_forms.into_iter().min_by(|one, other| one.fitted_loss.total_cmp(&other.fitted_loss));
            marks.extend(best.map(|best| (kind, best)));
        }
        Ok(ExaminedDecisions { model: model.to_owned(), marks })
    }

    /// The forms in which to ask the model.
    pub fn tunings(&self) -> DecisionTunings {
        let mut tunings = DecisionTunings::default();
        for (kind, marks) in &self.marks {
            *tunings.of_mut(*kind) = marks.tuning();
        }
        tunings
    }

    /// Whether the model is better than chance at questions of a kind.
    pub fn is_above_chance(&self, kind: DecisionType) -> bool {
        self.marks.iter().any(|(other, marks)| *other == kind && marks.is_above_chance())
    }
}

/// The forms in which a kind can be asked: for yes or no, the label is the text.
fn forms(kind: DecisionType) -> &'static [DecisionForm] {
    match kind {
        DecisionType::YesNo => &[DecisionForm::Labels],
        DecisionType::Choice | DecisionType::Score => &[DecisionForm::Labels, DecisionForm::Texts],
    }
}

/// Whether the options have labels in a meaningless order.
fn is_ordered(kind: DecisionType, form: DecisionForm) -> bool {
    kind == DecisionType::Choice && form == DecisionForm::Labels
}

#[cfg(test)]
mod tests {
    use hone_protocol::scripted::{Script, Scripted};
    use hone_protocol::{DecisionKind, Prompt, TokenLogprob, TokenLogprobs};

    use super::*;
    use crate::progress::Silent;

    /// A model that knows every answer but ignores labels: it says the right text, and yes.
    fn knows_texts() -> Scripted {
        let cases: Vec<LabelledDecision> = DecisionType::ALL.into_iter().flat_map(LabelledDecision::shipped).collect();
        Scripted::new(move |request| {
            let Prompt::Chat(messages) = &request.prompt else { panic!("{request:?}") };
            let answer = request.forced_answer.clone().unwrap_or_default();
            let is_case = |case: &&LabelledDecision| {
                let prompt = &messages[0].content;
                prompt.contains(&format!("<text>\n{}\n</text>", case.state))
                    && prompt.contains(&case.question.instructions)
            };
            let right = cases.iter().find(is_case).map(|case| match &case.question.kind {
                DecisionKind::YesNo { .. } => String::new(),
                DecisionKind::Choice(options) => options[case.answer].name.clone(),
                DecisionKind::Score(levels) => levels[case.answer].clone(),
            });
            let is_right = right.is_some_and(|right| answer == format!("{}.", right.trim_end_matches('.')));
            let named = request.logprobs.named.iter();
            let named = named.map(|text| TokenLogprob { id: 0, logprob: -3.0, text: text.clone() }).collect();
            let logprob = if is_right { -1.0 } else { -4.0 };
            let row = TokenLogprobs { text: answer.clone(), logprob, named, ..TokenLogprobs::default() };
            Script { logprobs: vec![row], ..Script::saying(&[&answer]) }
        })
    }

    #[test]
    fn the_better_form_of_each_kind_is_found() {
        let examined = ExaminedDecisions::of(&knows_texts(), "scripted", &Silent, &|| false).unwrap();
        let tunings = examined.tunings();
        assert_eq!(
            (tunings.choice.form, tunings.score.form),
            (DecisionForm::Texts, DecisionForm::Texts),
            "{examined:?}"
        );
        let is_above = DecisionType::ALL.map(|kind| examined.is_above_chance(kind));
        assert_eq!(is_above, [false, true, true], "{examined:?}");
        assert!(tunings.choice.temperature < 1.0, "it may be surer: {tunings:?}");
    }
}
