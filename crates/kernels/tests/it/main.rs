//! Tests of the kernels from outside: on every instruction set of this machine, against the simplest arithmetic and
//! against ggml's results.

#![allow(clippy::unwrap_used)]

mod dequantization;
mod products;
