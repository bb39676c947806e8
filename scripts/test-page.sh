#!/usr/bin/env bash
# Tests the web page in Chromium, against the real binary with the built-in model. With an argument, keeps pictures of the
# page in that folder. HONE names a binary to test instead of the debug build. Installs what is missing, on Debian.
set -euo pipefail

pictures=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."

# shellcheck source=scripts/programs.sh
. scripts/programs.sh

install_programs 'the tests of the page' chromium node npm

models=$(scripts/fetch-test-models.sh)
if [ -z "${HONE:-}" ]; then
    cargo build --locked
    HONE=${CARGO_TARGET_DIR:-$PWD/target}/debug/hone
fi
npm ci --prefix tests/page --no-audit --no-fund --silent

CHROMIUM=$(command -v chromium)
HONE_TEST_MODEL=$models/SmolLM2-135M-Instruct.Q4_1.gguf
export HONE CHROMIUM HONE_TEST_MODEL PAGE_PICTURES=$pictures
timeout 600 node --test --test-reporter=spec tests/page/page.test.mjs
