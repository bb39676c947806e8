#!/usr/bin/env bash
# Builds hone for 64-bit ARM and lets it continue some texts with the default model under an emulator, the likeliest token
# at every step: with the portable kernels, then with those that `auto` chooses on a processor with i8mm and on one with
# dotprod alone. The texts must be the same. A token takes some seconds there.
# Where activations are rounded to 8 bits, tiny differences of sums decide between two tokens that are as likely, so they
# are rounded to 16 bits here.
# Takes the number of tokens; HONE_PROFILE is the profile that is built, release without it.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/arm-tools.sh
. scripts/arm-tools.sh

tokens=${1:-8}
profile=${HONE_PROFILE:-release}
folder=$(scripts/fetch-test-models.sh)
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
hone=${CARGO_TARGET_DIR:-target}/$ARM/${profile/%dev/debug}/hone
HONE_HOME=$(mktemp -d)
export HONE_HOME
trap 'rm -r "$HONE_HOME"' EXIT

cargo build --profile "$profile" --locked --target "$ARM"
read -ra emulator <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"

# answer PROCESSOR KERNELS: what is made of each text on this processor, a line of JSON each in $HONE_HOME/KERNELS
answer() {
    local text
    SECONDS=0
    for text in 'The capital of France is' 'Water boils at' 'fn main() {'; do
        printf '%s' "$text" | QEMU_CPU=$1 HONE_ENGINE_INSTRUCTION_SET=$2 "${emulator[@]}" "$hone" generate \
            --model "$model" --raw --temperature 0 --max-tokens "$tokens" --backend native --activation-bits 16 \
            --logprobs 1 --json
    done >"$HONE_HOME/$2"
    echo "$2 on $1: $SECONDS s"
}

answer max portable
answer max neon_i8mm
answer cortex-a76 neon_dotprod
python3 - "$HONE_HOME"/{portable,neon_i8mm,neon_dotprod} <<'PYTHON'
import json, sys

reference, *others = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
n_different = 0
for name, answers in zip(sys.argv[2:], others):
    for one, other in zip(reference, answers, strict=True):
        pairs = zip(one["logprobs"], other["logprobs"])
        gap = max(abs(left["logprob"] - right["logprob"]) for left, right in pairs if left["id"] == right["id"])
        print(f"{name.rpartition('/')[2]}: {one['text']!r}: log-probabilities differ by up to {gap:.4f}")
        if one["text"] != other["text"]:
            n_different += 1
            print(f"  and here: {other['text']!r}")
print(f"{len(reference)} texts, {n_different} of them continued differently")
sys.exit(n_different > 0)
PYTHON
