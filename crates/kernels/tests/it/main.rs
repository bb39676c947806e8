//! Tests of the kernels from outside: on every instruction set that this machine has, against the simplest arithmetic and
//! against what ggml has computed.

#![allow(clippy::unwrap_used)]

mod dequantization;
mod products;
