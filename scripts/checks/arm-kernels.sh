#!/usr/bin/env bash
# Runs the tests of the kernels for 64-bit ARM on a machine of another kind, under an emulator: on a processor with every feature, on
# one with dotprod and without i8mm, and on one without both, which the portable kernels run on.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/arm-tools.sh
. scripts/lib/arm-tools.sh

# on PROCESSOR INSTRUCTION_SET ARGUMENTS... : the kernels' tests, compiled once, on a processor that has to choose this
# instruction set.
on() {
    local processor=$1 instruction_set=$2
    shift 2
    printf '%s: %s\n' "$processor" "$instruction_set"
    QEMU_CPU=$processor HONE_EXPECTED_INSTRUCTION_SET=$instruction_set \
        cargo test --quiet --package hone-kernels --lib --tests --locked --target "$ARM" -- "$@"
}

on max neon_i8mm "$@"
# The widest rows take the emulator longest, and have been multiplied with the same kernels above.
on cortex-a76 neon_dotprod --skip rows_wider_than_a_panel "$@"
on cortex-a72 portable the_chosen_kernels "$@"
