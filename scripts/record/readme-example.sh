#!/usr/bin/env bash
# Prints the transcript in the README's section "Start": the built-in model, what hone ships with, and two questions.
#
#   HONE   the program (target/release/hone, built if necessary)
set -euo pipefail

cd "$(dirname "$0")/../.."
hone=${HONE:-target/release/hone}
[ -n "${HONE:-}" ] || cargo build --release --locked
HONE_HOME=$(mktemp -d)
export HONE_HOME HONE_OFFLINE=1
trap 'rm -rf "$HONE_HOME"' EXIT
"$hone" pull "$(scripts/lib/fetch-test-models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf" --name smollm2:135m >/dev/null 2>&1
for question in 'What is the capital of Japan?' 'What is 17 times 23?'; do
    printf '$ hone chat "%s" --grade --seed 5\n' "$question"
    "$hone" chat "$question" --grade --seed 5 --memory off 2>&1
done
