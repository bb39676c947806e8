//! The interface of all loaded models.

use hone_protocol::TextLength;

/// A model that turns texts into vectors.
pub(super) trait Vectors: Send + Sync {
    /// Number of tokens of each text that are used.
    fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, String>;

    /// The vectors of texts, each of length 1.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, String>;
}

/// The vector with the same direction and the length 1.
pub(super) fn normalized(vector: Vec<f32>) -> Result<Vec<f32>, String> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return Err(format!("the vector of a text has the length {length}: the weights are damaged"));
    }
    Ok(vector.into_iter().map(|value| value / length).collect())
}
