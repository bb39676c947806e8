//! Judges and critics on the real program: the built-in model is examined, measured, asked for verdicts under every
//! profile, and grades what is due. It reads several hundred answers, which takes minutes, so `scripts/check.sh judges`
//! runs these tests, and `scripts/test.sh` leaves them out.

#[cfg(unix)]
mod backlog;
mod commands;
mod critic;
mod critique;
mod decisions;
mod eval;
mod standing;
