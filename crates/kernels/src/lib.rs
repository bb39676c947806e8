//! Quantized matrix products, attention and norms for the CPU.
