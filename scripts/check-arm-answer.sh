#!/usr/bin/env bash
# Builds hone for 64-bit ARM and for this machine, lets both continue the same texts with the default model, the likeliest
# token at every step, and compares. The ARM build runs under an emulator, where the portable kernels are used; so a token
# takes seconds there. This machine uses its best instruction set: where two tokens are nearly as likely, rounding may
# decide differently, so a difference is shown with the log-probabilities of both.
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
            --backend native --logprobs 2 --json
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
    print(repr(one["text"]))
    if one["text"] != other["text"]:
        n_different += 1
        print("  on ARM:", repr(other["text"]))
        print("  here:  ", one.get("logprobs"))
        print("  on ARM:", other.get("logprobs"))
print(f"{len(here)} texts, {n_different} of them continued differently")
sys.exit(n_different > 0)
PYTHON
