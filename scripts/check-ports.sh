#!/usr/bin/env bash
# Compiles hone for macOS on Apple processors (with Metal) and for Windows on x86-64, on a Linux machine. It shows that
# hone and its tests compile there, and no more: nothing is linked with those systems' libraries, and nothing is run.
# The C and C++ compiler for macOS is zig, from PyPI, which needs no SDK; the one for Windows is mingw.
# Arguments: windows, macos; without, both.
set -euo pipefail

cd "$(dirname "$0")/.."
tools=$PWD/target/port-tools

check_windows() {
    if ! command -v x86_64-w64-mingw32-g++-posix >/dev/null; then
        echo 'the check for Windows needs x86_64-w64-mingw32-g++-posix: install g++-mingw-w64-x86-64 (so it is called in Debian)' >&2
        return 1
    fi
    # usearch includes it by the name that file systems of Windows find it by.
    mkdir -p "$tools/include"
    echo '#include <windows.h>' >"$tools/include/Windows.h"
    # Its other variant has no threads for C++.
    CXX_x86_64_pc_windows_gnu=x86_64-w64-mingw32-g++-posix CXXFLAGS_x86_64_pc_windows_gnu=-I$tools/include \
        cargo check --workspace --tests --locked --target x86_64-pc-windows-gnu
}

check_macos() {
    if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --target "$tools" ziglang==0.17.1 cargo-zigbuild==0.24.0
    fi
    PYTHONPATH=$tools PATH=$tools/bin:$PATH \
        cargo-zigbuild check --workspace --tests --locked --features metal --target aarch64-apple-darwin
}

[ $# -gt 0 ] || set -- windows macos
for system; do
    case $system in
    windows) target=x86_64-pc-windows-gnu ;;
    macos) target=aarch64-apple-darwin ;;
    *) echo "windows and macos can be checked, and not $system" >&2 && exit 2 ;;
    esac
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    "check_$system"
done
