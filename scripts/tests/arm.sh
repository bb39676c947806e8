#!/usr/bin/env bash
# Runs every test as a program for 64-bit ARM, under an emulator; the arguments are those of scripts/test.sh. All of it takes hours, so
# the gate runs the tests of the kernels alone (scripts/check.sh arm-kernels). $QEMU_CPU is the processor, the one with every feature
# without it.
# The tests of the program start it, so Linux has to start programs for ARM with the emulator (binfmt_misc); where it does not,
# they are left out.
# The emulator knows nothing of seccomp, Landlock and limits of memory, and reports no error when a program cannot be started.
# So some tests fail there and nowhere else: those of hone-containment that need these, of `templates` of the program
# the_process_of_a_template_is_confined_before_it_reads_one, and two units of hone-agents (a_process_that_says_nothing_is_ended,
# what_is_no_text_is_refused). Others wait two minutes for an answer that takes longer there.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/arm-tools.sh
. scripts/lib/arm-tools.sh
read -ra emulator <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
export QEMU_LD_PREFIX=${emulator[-1]}

if ! grep -qsx enabled /proc/sys/fs/binfmt_misc/qemu-aarch64; then
    echo 'the tests of the program are left out: install qemu-user-binfmt (so it is called in Debian) to run them, too' >&2
    set -- --workspace --exclude hone "$@"
fi
export NEXTEST_PROFILE=emulated
scripts/test.sh --target "$ARM" "$@"
