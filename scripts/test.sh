#!/usr/bin/env bash
# Runs every test, after fetching the models that they need. Arguments go to `cargo test`.
set -euo pipefail

cd "$(dirname "$0")/.."
HONE_TEST_MODELS=$(scripts/fetch-test-models.sh)
export HONE_TEST_MODELS
cargo test --workspace --locked "$@"
