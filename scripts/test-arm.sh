#!/usr/bin/env bash
# Runs every test as a program for 64-bit ARM, under an emulator: scripts/test.sh takes the arguments. All of it takes hours, so
# the gate runs the tests of the kernels alone (scripts/check-arm.sh). $QEMU_CPU is the processor, the one with every feature
# without it.
# The tests of the program start it, so Linux has to start programs for ARM with the emulator (binfmt_misc); where it does not,
# they are left out.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/arm-tools.sh
. scripts/arm-tools.sh
read -ra emulator <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
export QEMU_LD_PREFIX=${emulator[-1]}

if ! grep -qsx enabled /proc/sys/fs/binfmt_misc/qemu-aarch64; then
    echo 'the tests of the program are left out: install qemu-user-binfmt (so it is called in Debian) to run them, too' >&2
    set -- --exclude hone "$@"
fi
scripts/test.sh --target "$ARM" "$@"
