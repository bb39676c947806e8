//! Tests of the work on tasks through the public interface: the gate, the rules, the output of tools, and reviews by
//! scripted models.
#![allow(clippy::unwrap_used)]

mod gate;
mod mutations;
mod reading;
mod reviewing;
