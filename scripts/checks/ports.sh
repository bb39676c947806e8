#!/usr/bin/env bash
# Compiles hone for macOS on Apple processors (with Metal) and for Windows on x86-64, on a Linux machine. It shows that
# hone and its tests compile there, and no more: nothing is linked with those systems' libraries, and nothing is run.
# The C and C++ compiler for macOS is zig, from PyPI, which needs no SDK; the one for Windows is mingw.
# Arguments: windows, macos; rust, which is for both systems, and only the crates that need no such compiler; without, windows and
# macos.
set -euo pipefail

cd "$(dirname "$0")/../.."

check_windows() (
    # shellcheck source=scripts/lib/windows-tools.sh
    . scripts/lib/windows-tools.sh
    cargo check --workspace --tests --locked --target "$WINDOWS"
)

check_macos() {
    local tools=$PWD/target/port-tools target=aarch64-apple-darwin
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --target "$tools" ziglang==0.17.1 cargo-zigbuild==0.24.0
    fi
    PYTHONPATH=$tools PATH=$tools/bin:$PATH \
        cargo-zigbuild check --workspace --tests --locked --features metal --target "$target"
}

# The crates without C and C++: what depends on the processor and the system is in them, but for the terminal and sockets.
check_rust() {
    local crates=() crate target
    for crate in bus containment engine files kernels protocol judging work; do crates+=(--package "hone-$crate"); done
    for target in aarch64-apple-darwin x86_64-pc-windows-gnu; do
        rustup target list --installed | grep -qx "$target" || rustup target add "$target"
        cargo check "${crates[@]}" --tests --locked --target "$target"
    done
}

[ $# -gt 0 ] || set -- windows macos
for system; do
    case $system in
    windows | macos | rust) "check_$system" ;;
    *) echo "windows, macos and rust can be checked, and not $system" >&2 && exit 2 ;;
    esac
done
