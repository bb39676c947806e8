#!/usr/bin/env bash
# Grades 40 answers of 20 to 2000 tokens with a 7B judge under the default time limit, and fails if one of them stays without
# a grade: on a slow machine the judge has to conclude early, and sees long answers without their middles.
#
# The judge has random weights in the shape and with the prompts of Prometheus; what it writes means nothing, but it takes as
# long. The file (4 GB) is kept in a cache outside of the repository. JUDGE_7B names another file to use.
set -euo pipefail

cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hone-bench
judge=${JUDGE_7B:-$cache/prometheus-7b-synthetic.gguf}
hone=$PWD/target/release/hone
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

[ -x "$hone" ] || { echo "error: build it first: cargo build --release" >&2; exit 1; }
if [ ! -f "$judge" ]; then
    mkdir -p "$cache"
    built_in=$(scripts/lib/fetch-test-models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf
    "$hone" synth --shape mistral-7b --quant q4_k_m --tokenizer "$built_in" --output "$judge" >&2
fi

python3 - >"$scratch/answers.jsonl" <<'PYTHON'
import json, random

words = "water boils when its vapour pressure reaches that of the air above it so a lower pressure means a lower temperature".split()
random.seed(12)
for number in range(40):
    n_words = round(16 * (1600 / 16) ** (number / 39))
    answer = " ".join(random.choice(words) for _ in range(n_words))
    print(json.dumps({"query": f"Why does water boil earlier on a mountain? ({number})", "answer": answer, "words": n_words}))
PYTHON

HONE_HOME=$scratch/home "$hone" grade --judge "$judge" --no-cache \
    --input "$scratch/answers.jsonl" --output "$scratch/graded.jsonl"

python3 - "$scratch/graded.jsonl" <<'PYTHON'
import json, statistics, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
ungraded = [row for row in rows if row["score"] is None]
ran = [row["seconds"] - row["queue_seconds"] for row in rows]
shown_in_part = sum("Not shown to the judge" in row["feedback"] for row in rows)
concluded = sum(row.get("concluded_early", False) for row in rows)
print(f"{len(rows)} answers, {len(ungraded)} without a grade; {concluded} concluded early, {shown_in_part} shown in part; "
      f"seconds per grade: median {statistics.median(ran):.1f}, most {max(ran):.1f}")
for row in ungraded:
    print(f"{row['words']} words: {row['failure']}", file=sys.stderr)
sys.exit(bool(ungraded) or len(rows) != 40)
PYTHON
