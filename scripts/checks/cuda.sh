#!/usr/bin/env bash
# Compiles hone with CUDA on a machine that has neither a GPU nor a CUDA toolkit: the compiler comes from PyPI. It shows
# that the CUDA build compiles, not that it runs, and that no kernel spills registers on the cards of CUDA_COMPUTE_CAP (90). Takes
# some minutes.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/cuda-toolkit.sh
. scripts/lib/cuda-toolkit.sh
use_cuda_toolkit
cargo check --locked --features cuda "$@"
report=$(nvcc -std=c++17 -O3 -arch="sm_$CUDA_COMPUTE_CAP" -Xptxas -v -cubin -o /dev/null crates/kernels-cuda/cuda/kernels.cu 2>&1)
python3 scripts/lib/kernel-registers.py <<<"$report"
