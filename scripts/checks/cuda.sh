#!/usr/bin/env bash
# Compiles hone with CUDA on a machine that has neither a GPU nor a CUDA toolkit: the compiler comes from PyPI. It shows
# that the CUDA build compiles, not that it runs. Takes some minutes.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/cuda-toolkit.sh
. scripts/lib/cuda-toolkit.sh
use_cuda_toolkit
cargo check --locked --features cuda "$@"
