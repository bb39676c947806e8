#!/usr/bin/env bash
# Builds hone for 64-bit ARM and for this machine, lets both continue the same texts with the default model, the likeliest
# token at every step, and compares. The ARM build runs under an emulator, which QEMU_CPU gives a processor; a token takes some
# seconds there. This machine uses its best instruction set, and where activations are rounded to 8 bits, tiny differences
# of sums decide between two tokens that are as likely. So they are rounded to 16 bits here.
# Takes the number of tokens; HONE_PROFILE is the profile that is built, release without it.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/arm-tools.sh
. scripts/arm-tools.sh

tokens=${1:-8}
profile=${HONE_PROFILE:-release}
folder=$(scripts/fetch-test-models.sh)
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
target=${CARGO_TARGET_DIR:-target}
HONE_HOME=$(mktemp -d)
export HONE_HOME
trap 'rm -r "$HONE_HOME"' EXIT

cargo build --profile "$profile" --locked --target "$ARM"
cargo build --profile "$profile" --locked

# answer PROGRAM... : what it makes of each text, a line of JSON each
answer() {
    local text
    for text in 'The capital of France is' 'Water boils at' 'fn main() {'; do
        printf '%s' "$text" | "$@" generate --model "$model" --raw --temperature 0 --max-tokens "$tokens" \
            --backend native --activation-bits 16 --logprobs 1 --json
    done
}

read -ra emulator <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
SECONDS=0
answer "$target/$profile/hone" >"$HONE_HOME/here"
echo "this machine: $SECONDS s"
SECONDS=0
answer "${emulator[@]}" "$target/$ARM/$profile/hone" >"$HONE_HOME/arm"
echo "ARM under the emulator: $SECONDS s"
python3 - "$HONE_HOME/here" "$HONE_HOME/arm" <<'PYTHON'
import json, sys

here, arm = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
n_different = 0
for one, other in zip(here, arm, strict=True):
    pairs = zip(one["logprobs"], other["logprobs"])
    gap = max(abs(left["logprob"] - right["logprob"]) for left, right in pairs if left["id"] == right["id"])
    print(f"{one['text']!r}: log-probabilities of the same tokens differ by up to {gap:.4f}")
    if one["text"] != other["text"]:
        n_different += 1
        print(f"  and on ARM: {other['text']!r}")
print(f"{len(here)} texts, {n_different} of them continued differently")
sys.exit(n_different > 0)
PYTHON
