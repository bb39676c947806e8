#!/usr/bin/env bash
# Compiles the fuzz targets, without fuzzing. `scripts/test.sh torture` runs them.
set -euo pipefail

cd "$(dirname "$0")/../.."
cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}" "$@"
