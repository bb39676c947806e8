//! The backends against other programs' models, against definitions, and on models that are broken.

mod architectures;
#[cfg(target_os = "linux")]
mod cuda;
mod head;
mod model_mutation;
