#!/usr/bin/env bash
# Runs every test, after fetching the models and programs that they need. Arguments go to `cargo test`.
set -euo pipefail

cd "$(dirname "$0")/.."
. scripts/programs.sh
# The workspaces that `hone task` is tested on have tests for Node.js.
install_programs 'The tests' node >&2
HONE_TEST_MODELS=$(scripts/fetch-test-models.sh)
export HONE_TEST_MODELS
HONE_TEST_TOOLS=$(scripts/install-test-tools.sh)
export HONE_TEST_TOOLS
cargo test --workspace --locked "$@"
