//! How answers are graded and compared: rubrics, the judge's prompts, and what becomes of what the judge writes.
//!
//! A [`Judge`] is a model (any [`Generate`](hone_protocol::Generate)), its settings and a rubric. It turns a question and an
//! answer into a request, and the events that come back into a [`Grade`](hone_protocol::Grade); two answers into two
//! requests, one for each order, and a [`Preference`](hone_protocol::Preference). There is no thread here: whoever grades
//! takes the events from a channel and hands them on, and can so wait for other things beside them.
//!
//! A judge that is missing, slow or talks nonsense is no error. Its grade has no score and says why.

mod comparing;
mod fence;
mod grading;
mod judge;
mod neutralize;
mod probabilities;
mod prompt;
mod rubric;
mod run;
mod settings;
mod shorten;
mod suspicion;
mod verdict;

pub use comparing::Comparing;
pub use fence::FenceKey;
pub use grading::Grading;
pub use judge::{CompareTask, GradeTask, Judge};
pub use neutralize::neutralized;
pub use prompt::{fill, has_place};
pub use rubric::{InvalidRubric, Rubric};
pub use settings::{CriticSettings, Fallback, InvalidSettings, Templates};
pub use suspicion::suspicion;
pub use verdict::{parse_score, parse_winner};
