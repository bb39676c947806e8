//! What is measured on sets, or searched for in many answers, with the real models. It takes minutes, so
//! `scripts/check.sh judges` runs these tests, and `scripts/test.sh` leaves them out.

mod isolation;
mod recall;
