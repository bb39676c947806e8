#!/usr/bin/env bash
# Checks hone for 64-bit ARM on a machine of another kind: everything compiles, tests included, and the tests of the
# kernels pass under an emulator. scripts/check-arm-answer.sh also runs a model there.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/arm-tools.sh
. scripts/arm-tools.sh

cargo check --workspace --tests --locked --target "$ARM"
cargo test --package hone-kernels --locked --target "$ARM" "$@"
