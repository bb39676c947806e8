#!/usr/bin/env bash
# Runs the tests and the examples that expect certain answers with the AVX2 kernels, on a processor with or without AVX-512.
set -euo pipefail

cd "$(dirname "$0")/../.."
[ "$(uname -m)" = x86_64 ] || { echo 'it needs an x86-64 processor' >&2; exit 77; }
HONE_TEST_INSTRUCTION_SET=avx2 scripts/test.sh --workspace --test program --no-fail-fast -- \
    engine:: serve:: serve_trouble:: stories:: terminal::
scripts/checks/examples.py --instruction-set avx2 README.md docs/grades-and-judges.md
