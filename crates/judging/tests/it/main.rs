//! Tests of judges and juries through the public interface, over scripted models.
#![allow(clippy::unwrap_used)]

mod agreement;
mod comparing;
mod decisions;
mod grading;
mod jury;
mod manipulation;
mod profiles;
mod standing;
mod support;
