#!/usr/bin/env bash
# Compiles hone and its tests for 64-bit ARM on a machine of another kind. scripts/checks/arm-kernels.sh runs the tests of the kernels
# there, and scripts/checks/arm-answer.sh a model.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/arm-tools.sh
. scripts/lib/arm-tools.sh
cargo check --workspace --tests --locked --target "$ARM" "$@"
