#!/usr/bin/env bash
# Runs the tests of the engine and of the kernels, with the features that the whole workspace switches on: what the other tests have
# compiled is used again. `cargo test` cannot choose among the tests of a workspace by crate, and compiles both with the features that
# they need alone. The arguments go to scripts/test.sh.
set -euo pipefail

cd "$(dirname "$0")/../.."
runner=${HONE_TEST_RUNNER:-}
if [ "$runner" != cargo ] && cargo nextest --version >/dev/null 2>&1; then
    exec scripts/test.sh --workspace --filterset 'package(/^hone-(engine|kernels|kernels-cuda)$/)' "$@"
fi
exec scripts/test.sh --package hone-engine --package hone-kernels --package hone-kernels-cuda "$@"
