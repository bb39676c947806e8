//! Work that other machines do for this one: graders, models that answer, and models that turn texts into vectors.

mod embedding;
mod generating;
mod graders;
mod models;
mod process;

pub(crate) use self::embedding::embedder_of;
pub(crate) use self::generating::RoutedGenerator;
pub(crate) use self::graders::FleetGraders;
pub(crate) use self::models::{FleetModels, KnownFleet};
pub use self::process::own_state;

/// The work of a grader.
pub const GRADE: &str = "grade";
/// The work of a generator, for one model.
pub const GENERATE: &str = "generate";
/// The work of an embedder, for one model.
pub const EMBED: &str = "embed";
