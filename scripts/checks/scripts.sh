#!/usr/bin/env bash
# Checks the scripts: their syntax, ShellCheck's warnings where it is installed, and the tests of those in Python.
set -euo pipefail

cd "$(dirname "$0")/../.."
# What is sourced is checked where it is.
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- "scripts/*.sh" .ci/run | while read -r file; do [ ! -x "$file" ] || echo "$file"; done)
for script in "${scripts[@]}"; do bash -n "$script"; done
if command -v shellcheck >/dev/null; then
    shellcheck --external-sources --severity warning --shell bash "${scripts[@]}"
else
    echo 'shellcheck is not installed: only the syntax is checked' >&2
fi
python3 -B -m unittest discover --start-directory scripts/lib --pattern '*_test.py'
