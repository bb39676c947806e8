#!/usr/bin/env bash
# Compiles hone with CUDA on a machine that has neither a GPU nor a CUDA toolkit: the compiler comes from PyPI. It shows
# that the CUDA build compiles, not that it runs. Takes some minutes, and a gigabyte in target/cuda-toolkit.
set -euo pipefail

cd "$(dirname "$0")/../.."
toolkit=$PWD/target/cuda-toolkit
# The newest that cudarc accepts.
version='13.0.*'

if [ ! -x "$toolkit/nvidia/cu13/bin/nvcc" ]; then
    packages=()
    for part in nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl; do
        packages+=("$part==$version")
    done
    python3 -m pip install --quiet --disable-pip-version-check --target "$toolkit" "${packages[@]}"
fi

export CUDA_HOME=$toolkit/nvidia/cu13
export PATH=$CUDA_HOME/bin:$PATH
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}
cargo check --locked --features cuda "$@"
