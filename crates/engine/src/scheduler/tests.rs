//! The scheduler by itself, with simulated time and cost: scenarios as text, one for every rule, and a long random run
//! that checks what must always hold.

mod randomized;
mod scenario;
mod simulator;
