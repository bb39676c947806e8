//! Whether a judge's verdicts may be shown: only if it has passed its examination.

/// Whether the verdicts of a model, asked in the configured way, may be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// They may, whatever an examination says: it is not required, or somebody asked for this judge by name.
    #[default]
    Unchecked,
    /// They may: it has passed.
    Passed,
    /// They may not, for this reason.
    Barred(String),
}

/// The standing of the models that a judge may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standings {
    /// Of the configured judge.
    pub judge: Standing,
    /// Of the model that answers, if it grades its own answers.
    pub generator: Standing,
    /// Of the likelihood judge; [`Standing::Passed`] leaves the decision to the marks that come with its coefficients.
    pub likelihood: Standing,
}
