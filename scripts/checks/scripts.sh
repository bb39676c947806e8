#!/usr/bin/env bash
# Checks the scripts: their syntax, ShellCheck's warnings where it is installed, and the tests of those in Python.
set -euo pipefail

cd "$(dirname "$0")/../.."
mapfile -t scripts < <(find scripts .ci/run -name '*.sh' -o -name run)
for script in "${scripts[@]}"; do bash -n "$script"; done
if command -v shellcheck >/dev/null; then
    # What is sourced is checked where it is.
    mapfile -t scripts < <(find scripts .ci/run -perm -u+x \( -name '*.sh' -o -name run \))
    shellcheck --external-sources --severity warning "${scripts[@]}"
else
    echo 'shellcheck is not installed: only the syntax is checked' >&2
fi
python3 -B -m unittest discover --start-directory scripts/lib --pattern '*_test.py'
