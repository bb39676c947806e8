//! Judges on the real program: the built-in model is examined, measured and asked for verdicts under every profile. It
//! reads several hundred answers, which takes minutes, so `scripts/check.sh judges` runs these tests, and
//! `scripts/test.sh` leaves them out.

mod commands;
mod eval;
mod standing;
