#!/usr/bin/env bash
# Writes the reference pages of the documentation: docs/reference/configuration.md from config/*.toml, and docs/reference/commands.md
# from the program's help. With --check it compares them, prints the difference and exits with 1.
#
#   scripts/record.sh reference [--check] [configuration | commands]
#
#   HONE   the program (the debug build, built if necessary); the configuration does not need it
set -euo pipefail

cd "$(dirname "$0")/../.."
check=() pages=()
for argument; do
    case $argument in
    --check) check=(--check) ;;
    configuration | commands) pages+=("$argument") ;;
    *) echo "error: $0 takes --check, configuration and commands, and not $argument" >&2 && exit 2 ;;
    esac
done
[ ${#pages[@]} -gt 0 ] || pages=(configuration commands)

outcome=0
for page in "${pages[@]}"; do
    program=()
    if [ "$page" = commands ]; then
        program=("${HONE:-${CARGO_TARGET_DIR:-target}/debug/hone}")
        [ -n "${HONE:-}" ] || cargo build --locked
    fi
    python3 -B "scripts/record/reference/$page.py" ${check[@]+"${check[@]}"} ${program[@]+"${program[@]}"} || outcome=$?
done
exit "$outcome"
