# Sourced by the checks that let hone run a model as a program of another system.

# answer NAME COMMAND...: how hone, which the command starts, continues each text with the likeliest tokens, as lines of JSON
# in $answers/NAME. $tokens says how many tokens, and $HONE_ENGINE_INSTRUCTION_SET with which kernels.
# Where activations are rounded to 8 bits, tiny differences of sums decide between two tokens that are as likely, so they
# are rounded to 16 bits here.
answer() {
    local name=$1 text
    shift
    SECONDS=0
    for text in 'The capital of France is' 'Water boils at' 'fn main() {'; do
        printf '%s' "$text" | "$@" generate --model "$model" --raw --temperature 0 --max-tokens "$tokens" \
            --backend native --activation-bits 16 --logprobs 1 --json
    done >"$answers/$name"
    echo "$name: $SECONDS s"
}

# compare_answers NAME...: fails if one of them differs from the first; says how far log-probabilities are apart.
compare_answers() (
    cd "$answers"
    python3 - "$@" <<'PYTHON'
import json, sys

reference, *others = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
n_different = 0
for name, answers in zip(sys.argv[2:], others):
    for one, other in zip(reference, answers, strict=True):
        pairs = zip(one["logprobs"], other["logprobs"])
        gap = max(abs(left["logprob"] - right["logprob"]) for left, right in pairs if left["id"] == right["id"])
        print(f"{name}: {one['text']!r}: log-probabilities differ by up to {gap:.4f}")
        if one["text"] != other["text"]:
            n_different += 1
            print(f"  and here: {other['text']!r}")
print(f"{len(reference)} texts, {n_different} of them continued differently")
sys.exit(n_different > 0)
PYTHON
)
