//! Judges and juries from outside, over models that the tests script.
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
