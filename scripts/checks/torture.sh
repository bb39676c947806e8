#!/usr/bin/env bash
# Runs the ordeals of the program (tests/torture) and of memory: 20 seconds for each. `scripts/test.sh torture` takes an hour.
set -euo pipefail

cd "$(dirname "$0")/../.."
scripts/test.sh --workspace --no-fail-fast -- torture::
