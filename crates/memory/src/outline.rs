//! Answers without their texts, for statistics over a whole history.
//!
//! An engram in JSON is mostly text. An outline is read straight from the stored bytes and skips everything else, so a
//! report over 100 000 answers reads them once and copies almost nothing.

use std::borrow::Cow;
use std::fmt;

use hone_protocol::{Judging, JudgingMethod, Likely, OwnerId, QueryId, Rating, RespondentId, Timestamp};
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::engram::EngramKind;
use crate::error::MemoryError;
use crate::filters::Whose;
use crate::question_type::QuestionType;
use crate::records::damaged;

/// An answer without its texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// Its id.
    pub query_id: QueryId,
    /// The time of the answer.
    pub at: Timestamp,
    /// The respondent.
    pub respondent_id: RespondentId,
    /// The model that answered.
    pub model: String,
    /// Its temperature.
    pub temperature: f32,
    /// Whether it reasoned first.
    pub thinking: bool,
    /// The type of the question.
    pub question_type: QuestionType,
    /// The user's rating.
    pub rating: Option<Rating>,
    /// The length of the answer in characters.
    pub n_characters: usize,
    /// Its grade; `None` until it is graded.
    pub grade: Option<GradeOutline>,
    /// Whether it was the better of two answers; `None` if it was not compared, or the comparison was a tie.
    pub pairwise_winner: Option<bool>,
    /// Its comparison with another answer; `None` if there is no verdict.
    pub compared: Option<ComparedOutline>,
}

/// A grade and its judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradeOutline {
    /// 1 to 5; `None` is unscored.
    pub score: Option<u8>,
    /// The likelihood judge's probability that the answer is right. This judge gives no score.
    #[serde(default)]
    pub probability: Option<f64>,
    /// The likelihood judge's mark; `None` if it could not tell.
    #[serde(default)]
    pub likely: Option<Likely>,
    /// The rubric.
    pub rubric: String,
    /// The judge's reasons; empty unless requested.
    pub feedback: String,
    /// The model that judged.
    pub judge: String,
    /// Whether it judged its own answer.
    pub self_graded: bool,
    /// The method of judging.
    pub method: JudgingMethod,
}

/// A comparison and its judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedOutline {
    /// The engram of the other answer.
    pub with: QueryId,
    /// Whether the judge preferred the same answer in both orders.
    pub consistent: bool,
    /// The model that judged.
    pub judge: String,
    /// Whether it also gave one of the answers.
    pub self_graded: bool,
    /// The method of judging.
    pub method: JudgingMethod,
}

impl GradeOutline {
    /// The judge, as a verdict names it.
    pub fn judging(&self) -> Judging {
        judging(&self.judge, self.self_graded, self.method)
    }
}

impl ComparedOutline {
    /// The judge, as a verdict names it.
    pub fn judging(&self) -> Judging {
        judging(&self.judge, self.self_graded, self.method)
    }
}

fn judging(judge: &str, self_graded: bool, method: JudgingMethod) -> Judging {
    Judging { judge: judge.to_owned(), self_graded, method, ..Judging::default() }
}

/// The outline of a stored engram; `None` for a fact, and for another owner's engram.
///
/// # Errors
/// When the bytes are not an engram.
pub(crate) fn outline_of(bytes: &[u8], whose: Whose, with_feedback: bool) -> Result<Option<Outline>, MemoryError> {
    let stored: Stored = serde_json::from_slice(bytes).map_err(|error| damaged("an engram", &error.to_string()))?;
    let is_wanted = stored.kind == EngramKind::Episodic && whose.includes(stored.owner);
    Ok(is_wanted.then(|| stored.into_outline(with_feedback)))
}

/// The fields that are read, as [`crate::Engram`] writes them.
#[derive(Deserialize)]
struct Stored<'a> {
    query_id: QueryId,
    #[serde(rename = "type", default)]
    kind: EngramKind,
    at: Timestamp,
    #[serde(default)]
    owner: Option<OwnerId>,
    respondent_id: RespondentId,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(default)]
    sampling: Temperature,
    #[serde(default)]
    thinking: bool,
    #[serde(borrow)]
    query: Cow<'a, str>,
    answer: Length,
    #[serde(default)]
    user_feedback: Option<Rating>,
    #[serde(default)]
    critic_score: Option<u8>,
    #[serde(default)]
    probability: Option<f64>,
    #[serde(default)]
    likely: Option<Likely>,
    #[serde(default, borrow)]
    judge: Option<Cow<'a, str>>,
    #[serde(default)]
    self_graded: Option<bool>,
    #[serde(default)]
    judging_method: Option<JudgingMethod>,
    #[serde(default, borrow)]
    rubric: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    feedback: Option<Cow<'a, str>>,
    #[serde(default)]
    pairwise_winner: Option<bool>,
    #[serde(default, borrow)]
    compared: Option<StoredComparison<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Temperature {
    temperature: f32,
}

#[derive(Deserialize)]
struct StoredComparison<'a> {
    with: QueryId,
    consistent: bool,
    #[serde(borrow)]
    judge: Cow<'a, str>,
    #[serde(default)]
    self_graded: bool,
    #[serde(default)]
    method: JudgingMethod,
    #[serde(default)]
    failure: Option<IgnoredAny>,
}

impl Stored<'_> {
    fn into_outline(self, with_feedback: bool) -> Outline {
        let Stored { critic_score, probability, likely, self_graded, judging_method, rubric, feedback, .. } = self;
        let grade = self.judge.map(|judge| GradeOutline {
            score: critic_score,
            probability,
            likely,
            rubric: rubric.unwrap_or_default().into_owned(),
            feedback: feedback.filter(|_| with_feedback).unwrap_or_default().into_owned(),
            judge: judge.into_owned(),
            self_graded: self_graded.unwrap_or_default(),
            method: judging_method.unwrap_or_default(),
        });
        let compared = self.compared.filter(|compared| compared.failure.is_none());
        Outline {
            query_id: self.query_id,
            at: self.at,
            respondent_id: self.respondent_id,
            model: self.model.into_owned(),
            temperature: self.sampling.temperature,
            thinking: self.thinking,
            question_type: QuestionType::of(&self.query),
            rating: self.user_feedback,
            n_characters: self.answer.0,
            grade,
            pairwise_winner: self.pairwise_winner,
            compared: compared.map(|compared| ComparedOutline {
                with: compared.with,
                consistent: compared.consistent,
                judge: compared.judge.into_owned(),
                self_graded: compared.self_graded,
                method: compared.method,
            }),
        }
    }
}

/// The length of a text in characters, without the text.
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        struct Counter;

        impl Visitor<'_> for Counter {
            type Value = Length;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Length, E> {
                Ok(Length(text.chars().count()))
            }
        }

        deserializer.deserialize_str(Counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engram::tests::example;
    use crate::engram::{Compared, Engram};

    fn read(engram: &Engram, with_feedback: bool) -> Option<Outline> {
        let bytes = serde_json::to_vec(engram).unwrap();
        outline_of(&bytes, Whose::Everyones, with_feedback).unwrap()
    }

    #[test]
    fn an_outline_says_what_its_engram_says() {
        for number in [2, 3] {
            let engram = Engram { answer: "„Äh“,\n\"is\" it.".to_owned(), ..example(number) };
            let outline = read(&engram, true).unwrap();
            let (grade, compared) = (engram.grade, engram.compared);
            assert_eq!((outline.temperature, outline.rating), (engram.sampling.temperature, engram.user_feedback));
            assert_eq!(outline.question_type, QuestionType::of(&engram.query));
            assert_eq!((outline.query_id, outline.at, outline.model), (engram.query_id, engram.at, engram.model));
            assert_eq!((outline.respondent_id, outline.n_characters), (engram.respondent_id, 14));
            assert_eq!(outline.pairwise_winner, engram.pairwise_winner);
            let said = grade.as_ref().map(|grade| (grade.score, grade.rubric.clone(), grade.feedback.clone()));
            let read = outline.grade.as_ref().map(|grade| (grade.score, grade.rubric.clone(), grade.feedback.clone()));
            assert_eq!(read, said);
            let said = grade.as_ref().map(|grade| (grade.probability, grade.likely));
            assert_eq!(outline.grade.as_ref().map(|grade| (grade.probability, grade.likely)), said);
            let is_by_same = |(read, said): (Judging, Judging)| assert!(read.is_by_same_judge(&said), "{read:?}");
            outline.grade.map(|it| it.judging()).zip(grade.map(|it| it.judging)).into_iter().for_each(is_by_same);
            assert_eq!(outline.compared.as_ref().map(|it| it.with), compared.as_ref().map(|it| it.with));
            let judges = outline.compared.map(|it| it.judging()).zip(compared.map(|it| it.judging()));
            judges.into_iter().for_each(is_by_same);
        }
    }

    #[test]
    fn facts_what_others_asked_and_failed_comparisons_are_left_out() {
        let bytes = serde_json::to_vec(&example(3)).unwrap();
        assert_eq!(outline_of(&bytes, Whose::Of(None), false).unwrap(), None);
        assert_eq!(read(&Engram { kind: EngramKind::Fact, ..example(3) }, false), None);
        let outline = read(&example(3), false).unwrap();
        assert_eq!(outline.grade.unwrap().feedback, "", "feedback that nobody wants is not copied");
        let failed = Compared { failure: Some("timeout".to_owned()), ..example(3).compared.unwrap() };
        assert_eq!(read(&Engram { compared: Some(failed), ..example(3) }, false).unwrap().compared, None);
        assert!(outline_of(b"{}", Whose::Everyones, false).is_err());
    }
}
