//! Whether a judge's verdicts may be shown: only if it has passed its examination.

use std::sync::Arc;

use crate::reward::RewardScale;

/// Whether the verdicts of a model, asked in the configured way, may be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// They may, regardless of the examination: it is not required, or the judge was requested by name.
    #[default]
    Unchecked,
    /// They may: the model has passed.
    Passed,
    /// They may not, for this reason.
    Barred(String),
}

/// The standing of the models that a judge may ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standings {
    /// The configured judge's standing.
    pub judge: Standing,
    /// The standing of the model that answers, if it grades its own answers.
    pub generator: Standing,
    /// The likelihood judge's standing; [`Standing::Passed`] leaves the decision to the marks that come with its
    /// coefficients.
    pub likelihood: Standing,
    /// The meaning of the judge's rewards, if it is a reward model that has been examined.
    pub reward_scale: Option<Arc<RewardScale>>,
}
