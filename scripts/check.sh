#!/usr/bin/env bash
# Runs the checks of .ci/checks.toml, which are dear and rarely concerned: those whose inputs have changed since they passed. --help
# explains more, --list lists them.
set -euo pipefail

cd "$(dirname "$0")/.."
exec python3 scripts/lib/checks.py "$@"
