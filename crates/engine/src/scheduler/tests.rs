//! The scheduler by itself, with simulated time and cost: scenarios as text, one for every rule, and a long random run
//! that checks the invariants.

mod randomized;
mod scenario;
mod simulator;
