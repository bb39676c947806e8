#!/usr/bin/env bash
# Runs the tests of the kernels as a program for Windows, under Wine. The rest of hone is only compiled for Windows
# (scripts/check-ports.sh windows).
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/windows-tools.sh
. scripts/windows-tools.sh
command -v wine >/dev/null || { echo 'wine is needed: install wine and wine64 (so they are called in Debian)' >&2; exit 1; }

WINEPREFIX=$(mktemp -d)
export WINEPREFIX WINEDEBUG=-all
trap 'wineserver -k 2>/dev/null || true; rm -rf "$WINEPREFIX"' EXIT

wine cmd /c ver
library=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
[ -e "$library" ] || x86_64-w64-mingw32-gcc-posix -shared -O2 -o "$library" scripts/windows/bcryptprimitives.c -ladvapi32
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine
cargo test --quiet --package hone-kernels --lib --tests --locked --target "$WINDOWS" -- "$@"
