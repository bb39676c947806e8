//! The head at the end of a model: one or two products that turn a pooled state into a number for each label.

use candle_core::{Device, Result as CandleResult, Tensor};
use hone_protocol::with_causes;

use super::HEAD;
use crate::encoder::HeadActivation;
use crate::encoder::tensors::{Linear, Norm, Norms, n_rows};
use crate::gguf::Gguf;

const DENSE: &str = "cls";
const NORM: &str = "cls.norm";

/// The labels of a head whose score is a probability.
const YES: &str = "yes";
const NO: &str = "no";

pub(crate) struct Head {
    dense: Option<Linear>,
    activation: HeadActivation,
    norm: Option<Norm>,
    output: Linear,
    labels: Vec<String>,
}

impl Head {
    /// Reads the head of a model whose states have this width, and whose norms add `epsilon`.
    ///
    /// # Errors
    /// When it has another shape than the labels say.
    pub(crate) fn read(gguf: &Gguf, width: usize, epsilon: f32, activation: HeadActivation) -> Result<Head, String> {
        let linear = |name: &str, shape: [usize; 2]| Linear::read(gguf, name, shape, false);
        let labels = labels(gguf)?;
        let n_inner = n_rows(gguf, &format!("{DENSE}.weight"));
        let inner = n_inner.unwrap_or(width);
        let has_norm = gguf.tensor(&format!("{NORM}.weight")).is_some();
        let norm = || Norm::read(gguf, NORM, inner, Norms::Layer { has_bias: false }, epsilon);
        Ok(Head {
            dense: n_inner.map(|inner| linear(DENSE, [inner, width])).transpose()?,
            activation,
            norm: has_norm.then(norm).transpose()?,
            output: linear(HEAD, [labels.len().max(1), inner])?,
            labels,
        })
    }

    /// The names of the outputs, if the file has any.
    pub(crate) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The outputs for each of these states.
    pub(crate) fn outputs(&self, states: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, String> {
        let outputs = self.computed(states).map_err(|error| error.to_string())?;
        match outputs.iter().flatten().all(|output| output.is_finite()) {
            true => Ok(outputs),
            false => Err("an output is not a number: the weights are damaged".to_owned()),
        }
    }

    fn computed(&self, states: &[Vec<f32>]) -> CandleResult<Vec<Vec<f32>>> {
        let width = states.first().map_or(0, Vec::len);
        let mut rows = Tensor::from_vec(states.concat(), (states.len(), width), &Device::Cpu)?;
        if let Some(dense) = &self.dense {
            let inner = dense.apply(&rows)?;
            rows = match self.activation {
                HeadActivation::Tanh => inner.tanh()?,
                HeadActivation::Gelu => inner.gelu_erf()?,
            };
        }
        if let Some(norm) = &self.norm {
            rows = norm.apply(&rows)?;
        }
        self.output.apply(&rows)?.to_vec2()
    }

    /// The number that orders texts: the first output, or the probability of yes where the labels are yes and no.
    pub(crate) fn score(&self, outputs: &[f32]) -> f32 {
        let first = outputs.first().copied().unwrap_or_default();
        match self.yes() {
            // The softmax of two numbers.
            Some(yes) => (1.0 + (outputs[1 - yes] - outputs[yes]).exp()).recip(),
            None => first,
        }
    }

    /// The place of yes, if the labels are yes and no.
    pub(crate) fn yes(&self) -> Option<usize> {
        let [one, other] = self.labels.as_slice() else { return None };
        match (one.as_str(), other.as_str()) {
            (YES, NO) => Some(0),
            (NO, YES) => Some(1),
            _ => None,
        }
    }
}

/// The names of the outputs; empty if the file has none.
pub(super) fn labels(gguf: &Gguf) -> Result<Vec<String>, String> {
    let failed = |error| with_causes(&error);
    let architecture = gguf.string("general.architecture").map_err(failed)?.unwrap_or_default();
    let labels = gguf.strings(&format!("{architecture}.classifier.output_labels")).map_err(failed)?;
    Ok(labels.unwrap_or_default().into_iter().map(str::to_owned).collect())
}
