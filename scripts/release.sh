#!/usr/bin/env bash
# Builds what a release has, in target/release-files: an archive for each system with the binary, the licences and the
# documents, a list of what is compiled into it (CycloneDX, hone-VERSION-TARGET.cdx.json), packages made of the archives (for pip,
# npm, Debian and Homebrew), install.sh, and SHA256SUMS over all of them, with a signature if there is a key. Nothing is published.
# At the end it says for each system whether it was built and started here, and what the binary needs to run; a system
# that this machine cannot build for is named, and no failure. A binary that does not start is one.
#
#   scripts/release.sh [SYSTEM...]       linux-x86_64, linux-aarch64, windows-x86_64, macos-aarch64; without, all
#   HONE_PROFILE                         the profile that is built (dist: small, without symbols)
#   HONE_MINISIGN_SECRET_KEY             the file of minisign's key that signs SHA256SUMS; without, the release is unsigned
#   HONE_MINISIGN_PUBLIC_KEY             the key that install.sh checks it with, or the file that it is in
#   HONE_RELEASE_ADDRESS                 where the files will be downloaded from; without, what Cargo.toml's `repository` says
#
# The C++ library is linked into the binaries. Those for Linux use the system's C library: a static one could not look up names
# with the system's resolver.
set -euo pipefail
# What the archives say about rights does not depend on who makes them.
umask 022

cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/subcommands.sh
. scripts/lib/subcommands.sh
case ${1:-} in
-h | --help) print_help scripts/release.sh && exit ;;
esac
profile=${HONE_PROFILE:-dist}
for_packages=(
    HONE_MINISIGN_SECRET_KEY="${HONE_MINISIGN_SECRET_KEY:-}" HONE_MINISIGN_PUBLIC_KEY="${HONE_MINISIGN_PUBLIC_KEY:-}"
    HONE_RELEASE_ADDRESS="${HONE_RELEASE_ADDRESS:-}"
)
# hone would take them for keys of its configuration.
unset HONE_PROFILE HONE_MINISIGN_SECRET_KEY HONE_MINISIGN_PUBLIC_KEY HONE_RELEASE_ADDRESS
output=$PWD/target/release-files
version=$(cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
print(next(each["version"] for each in json.load(sys.stdin)["packages"] if each["name"] == "hone"))')
commit_time=$(git log -1 --format=%ct)
host=$(rustc -vV | sed -n 's/^host: //p')
systems=(linux-x86_64 linux-aarch64 windows-x86_64 macos-aarch64)
report=()
failures=0

target_of() {
    case $1 in
    linux-x86_64) echo x86_64-unknown-linux-gnu ;;
    linux-aarch64) echo aarch64-unknown-linux-gnu ;;
    windows-x86_64) echo x86_64-pc-windows-gnu ;;
    macos-aarch64) echo aarch64-apple-darwin ;;
    *) echo "no system is called $1: expected ${systems[*]}" >&2 && return 2 ;;
    esac
}

# prepare TARGET: what cargo needs to build for it; sets $runner to what starts its programs here, if anything does, $features,
# and $build, cargo's folder with what it builds for the target.
prepare() {
    runner=() features=() build=${CARGO_TARGET_DIR:-target}/$1 cross=(--target "$1")
    case $1 in
    *-darwin)
        [ "$(uname -s)" = Darwin ] || { echo 'needs Apple'"'"'s SDK, which macOS alone has' && return 1; }
        features=(--features metal)
        ;;
    "$host")
        export "CXXSTDLIB_${1//-/_}=static:-bundle=stdc++"
        build=${CARGO_TARGET_DIR:-target} cross=()
        ;;
    aarch64-unknown-linux-gnu)
        # shellcheck disable=SC2069 # why it fails is wanted, and nothing else
        (. scripts/lib/arm-tools.sh) 2>&1 >/dev/null || return 1
        . scripts/lib/arm-tools.sh >&2
        read -ra runner <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
        ;;
    x86_64-pc-windows-gnu)
        # shellcheck disable=SC2069
        (. scripts/lib/windows-tools.sh) 2>&1 >/dev/null || return 1
        . scripts/lib/windows-tools.sh >&2
        if command -v wine >/dev/null; then
            . scripts/lib/wine.sh
            prepare_wine "$work/wine"
        fi
        runner=(wine)
        ;;
    *) echo "cannot be built on $host" && return 1 ;;
    esac
}

# needs BINARY: the libraries that a binary is linked to: for Linux with the version of the C library, for Windows those that
# Windows does not have.
needs() {
    local symbols
    if [[ $1 = *.exe ]]; then
        symbols=$(x86_64-w64-mingw32-objdump -p "$1" | sed -n 's/.*DLL Name: \(lib.*\)/\1/p' | paste -sd ' ')
        echo "needs ${symbols:-Windows alone}"
        return
    fi
    symbols=$(objdump -p "$1" 2>/dev/null || "$ARM_OBJDUMP" -p "$1")
    echo "needs $(grep -oE 'GLIBC_[0-9.]+' <<<"$symbols" | sort -Vu | tail -1 | tr _ ' ') and $(
        awk '$1 == "NEEDED" && $2 !~ /^(libc|libm|libmvec|ld-linux.*)\.so/ { printf "%s%s", sep, $2; sep = ", " }' <<<"$symbols")"
}

# release SYSTEM TARGET
release() {
    local system=$1 target=$2 name=hone-$version-$2 binary started linking=() environment=()
    if ! prepare "$target" >"$work/why"; then
        report+=("$system: NOT BUILT: $(tail -n 1 "$work/why")")
        return
    fi
    # Cargo forgets what a profile says of symbols for a package that has settings of its own in it. The linker for this target is
    # Rust's own, which can keep one of several functions with the same code. With full RELRO, the compiler calls functions of other
    # crates through a table with an entry and a relocation for each; with partial RELRO it calls them directly, and `-z now` makes
    # the linked program's RELRO full again.
    if [ "$target" = x86_64-unknown-linux-gnu ]; then
        linking=(-C 'link-arg=-Wl,--icf=all' -C 'link-arg=-Wl,-z,now')
        environment=("RUSTFLAGS=${RUSTFLAGS:-} -C relro-level=partial")
    fi
    env ${environment[@]+"${environment[@]}"} cargo rustc --profile "$profile" --locked --package hone --bin hone \
        ${cross[@]+"${cross[@]}"} ${features[@]+"${features[@]}"} -- -C strip=symbols ${linking[@]+"${linking[@]}"} >&2
    binary=$build/${profile/%dev/debug}/hone
    [ -f "$binary" ] || binary+=.exe
    if [ ${#runner[@]} -gt 0 ] && ! command -v "${runner[0]}" >/dev/null; then
        started="NOT RUN: ${runner[0]} is missing"
    elif [ "$("${runner[@]}" "$binary" --version 2>"$work/why" | tr -d '\r')" = "hone $version" ]; then
        started="started here${runner[0]:+ with ${runner[0]} only}"
    else
        started="DOES NOT START HERE: $(tail -n 1 "$work/why")"
        failures=$((failures + 1))
    fi
    scripts/lib/packages.py archive "$binary" "$target" "$version" "$commit_time" "$output"
    scripts/lib/sbom.py "$target" "${features[@]}" >"$output/$name.cdx.json"
    case $target in *-darwin) ;; *) started+="; $(needs "$binary")" ;; esac
    report+=("$system: built, $started")
}

ARM_OBJDUMP=aarch64-linux-gnu-objdump
[ $# -gt 0 ] || set -- "${systems[@]}"
for system; do target_of "$system" >/dev/null; done
work=$(mktemp -d)
trap 'wineserver -k 2>/dev/null || true; rm -r "$work"' EXIT
rm -rf "$output"
mkdir -p "$output"
for system; do release "$system" "$(target_of "$system")"; done
made=
[ -z "$(ls "$output")" ] || made=$(env "${for_packages[@]}" scripts/lib/packages.py release "$output")
printf '%s\n' "in $output:" "${report[@]}" ${made:+"$made"}
exit $((failures > 0))
