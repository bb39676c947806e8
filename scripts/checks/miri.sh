#!/usr/bin/env bash
# Runs the kernels' tests, with fewer and smaller cases, on the portable kernels under Miri, which finds undefined behaviour:
# reads past an end, races, references that outlive what they point to. Takes some minutes. Needs rustup; arguments go to
# `cargo miri test`.
set -euo pipefail

cd "$(dirname "$0")/../.."
rustup component list --toolchain nightly --installed 2>/dev/null | grep -q '^miri' \
    || rustup toolchain install nightly --profile minimal --component miri --component rust-src
# Without this flag Miri rounds the same exponential differently each time, and equal computations give different bits.
export MIRIFLAGS="-Zmiri-deterministic-floats ${MIRIFLAGS:-}"
cargo +nightly miri test --locked -p hone-kernels "$@"
