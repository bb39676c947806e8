//! Measurements on sets, and searches through many answers, with the real models. They take minutes, so
//! `scripts/check.sh judges` runs these tests, and `scripts/test.sh` leaves them out.

mod isolation;
mod recall;
