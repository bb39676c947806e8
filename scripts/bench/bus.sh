#!/usr/bin/env bash
# Measures the bus beyond this process, over a NATS server of this machine: how long work takes to a worker and its result back,
# and how much eight workers do beside one.
#
#   scripts/bench.sh bus
set -euo pipefail

cd "$(dirname "$0")/../.."
HONE_TEST_TOOLS=$(scripts/lib/install-test-tools.sh)
export HONE_TEST_TOOLS
cargo test --release --locked --quiet -p hone-fleet --test it -- --ignored --nocapture --test-threads 1 latency:: |
    sed -n 's/^[.]*\(.*\(median\|one worker\).*\)/\1/p'
