#!/usr/bin/env bash
# Builds hone for 64-bit ARM and lets it continue some texts with the default model under an emulator, the likeliest token
# at every step: with the portable kernels, then with those that are chosen on a processor with i8mm, on one with dotprod
# alone, and on one without both. The texts must be the same. On the last one candle, whose products would end the process,
# must be refused. A token takes some seconds there.
# Takes the number of tokens; HONE_PROFILE is the profile that is built, release without it.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/arm-tools.sh
. scripts/lib/arm-tools.sh
# shellcheck source=scripts/lib/answers.sh
. scripts/lib/answers.sh

tokens=${1:-8}
profile=${HONE_PROFILE:-release}
# hone would take it for a key of its configuration.
unset HONE_PROFILE
folder=$(scripts/lib/fetch-test-models.sh)
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
hone=${CARGO_TARGET_DIR:-target}/$ARM/${profile/%dev/debug}/hone
answers=$(mktemp -d)
export HONE_HOME=$answers
trap 'rm -r "$answers"' EXIT

cargo build --profile "$profile" --locked --target "$ARM"
read -ra emulator <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"

# answer_on PROCESSOR KERNELS
answer_on() {
    QEMU_CPU=$1 HONE_ENGINE_INSTRUCTION_SET=$2 answer "$2 on $1" "${emulator[@]}" "$hone"
}

answer_on max portable
answer_on max neon_i8mm
answer_on cortex-a76 neon_dotprod
answer_on cortex-a72 portable
compare_answers 'portable on max' 'neon_i8mm on max' 'neon_dotprod on cortex-a76' 'portable on cortex-a72'
if refusal=$(QEMU_CPU=cortex-a72 "${emulator[@]}" "$hone" bench --model "$model" --backend candle --own-engine 2>&1) ||
    ! grep 'needs dotprod' <<<"$refusal"; then
    echo "candle is not refused on a processor without dotprod: $refusal" >&2
    exit 1
fi
