//! Who gave the answers that are judged.

/// Who gave the answers that are judged, and how likely it found them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Author {
    /// The model that gave the first of the answers; empty if it is unknown.
    pub model: String,
    /// The natural log-probabilities of each answer's tokens under that model, in the order of the answers; empty, or too few,
    /// where they are unknown.
    pub logprobs: Vec<Vec<f32>>,
}

impl Author {
    /// The log-probabilities of the answer with this index, if they are known.
    pub(crate) fn logprobs_of(&self, index: usize) -> Option<&[f32]> {
        self.logprobs.get(index).map(Vec::as_slice).filter(|logprobs| !logprobs.is_empty())
    }
}

impl From<&str> for Author {
    fn from(model: &str) -> Author {
        Author { model: model.to_owned(), logprobs: Vec::new() }
    }
}

impl From<&String> for Author {
    fn from(model: &String) -> Author {
        model.as_str().into()
    }
}
