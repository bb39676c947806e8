//! Grading and comparison of answers: rubrics, the judge's prompts, and the parsing of the judge's output.
//!
//! A [`Judge`] is a model (any [`Generate`](hone_protocol::Generate)), its settings, its [`JudgeProfile`] and a rubric.
//! A [`JudgeTask`] is a request for a verdict. A [`GradeTask`] becomes a single request, and its events a
//! [`Grade`](hone_protocol::Grade). A [`CompareTask`] becomes two requests, one for each order, and a
//! [`Preference`](hone_protocol::Preference). Both run as a [`JudgeRun`]: events in, a verdict out. This crate starts
//! no threads: the owner of a run takes the events from channels and passes them on, so it can wait for other events at
//! the same time. Several judges form a [`Jury`], which has the interface of a single judge.
//!
//! A judge that is missing, slow or incoherent is not an error: its grade has no score and states the reason.

mod agreement;
mod attempt;
mod auc;
mod bradley_terry;
mod calibration;
mod clustering;
mod comparing;
mod critic_examination;
mod critique;
mod decision_examination;
mod decisions;
mod examination;
mod fallback;
mod fence;
mod form;
mod grading;
mod joint;
mod judge;
mod judge_run;
mod jury;
mod likelihood;
mod neutralize;
mod own_rubric;
mod probabilities;
mod profile;
mod prompt;
mod purposes;
mod random;
mod reasons;
mod report;
mod request;
mod review;
mod reward;
mod router;
mod rubric;
#[cfg(feature = "scripted")]
pub mod scripted;
mod settings;
mod shorten;
mod standing;
mod support;
mod suspicion;
mod task;
mod verdict;

pub use agreement::{
    ComparedPair, Figure, FigureUnit, GOOD, GradedAnswer, Measure, MeasurementLevel, PAIR_MEASURES, RatedUnit,
    ReliabilityBin, SCORE_MEASURES, ScoreDistribution, krippendorff_alpha, reliability,
};
pub use auc::Auc;
pub use bradley_terry::Strength;
pub use calibration::{
    Calibration, HeldOut, LEAST_RATINGS, LEAST_RATINGS_OF_EACH_KIND, RatedAnswer, TooFewRatings,
    check_number_of_ratings, cross_validated_calibration,
};
pub use clustering::clustered;
pub use comparing::CompareTask;
pub use critic_examination::{CriticMarks, PlantedFlaw};
pub use critique::{CritiqueSettings, critique_result, keeps_out};
pub use decision_examination::{DecisionMarks, Estimate, LabelledDecision, OrderBias, first_option_excess};
pub use decisions::Decider;
pub use examination::{Answers, Marks, Question, QuestionGrades, QuestionSet, examination_stages};
pub use fence::FenceKey;
pub use grading::GradeTask;
pub use joint::JointVerdict;
pub use judge::Judge;
pub use judge_run::JudgeRun;
pub use jury::{Jury, JuryRun};
pub use likelihood::{Features, Fit, LIKELIHOOD, Likelihood, features_of};
pub use neutralize::neutralized;
pub use own_rubric::OwnRubric;
pub use profile::{FeedbackMode, InvalidProfile, JudgeProfile, JudgeProfiles};
pub use prompt::{fill, has_place};
pub use purposes::{Purpose, PurposeCase, PurposeDecider, PurposeMarks};
pub use reasons::explained;
pub use report::{
    Conclusion, ConfigurationFigures, Contender, GRADES, OUTCOMES, PairOutcome, PairReport, PairRow, Period,
    QualityReport, Regression, ReportRow, ScaleReport, ScoreFigures, Share, counted, sample, share_with_interval,
};
pub use review::{Review, ReviewForm, ReviewLimits, ReviewTask, Reviewed, addressed};
pub use reward::RewardScale;
pub use router::{Arm, RoutedModel, choose};
pub use rubric::{InvalidRubric, Rubric};
pub use settings::{Fallback, InvalidJudgeSettings, JudgeSettings};
pub use standing::{Standing, Standings};
pub use support::{SupportTask, support_of};
pub use suspicion::suspicion;
pub use task::{JudgeTask, Verdict};
pub use verdict::{parse_score, parse_winner};
