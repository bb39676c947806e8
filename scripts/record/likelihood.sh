#!/usr/bin/env bash
# Fits the likelihood judge and writes config/likelihood.toml, with the figures of answers that it was not fitted on.
# Run it again when the features, the data or the model change. It takes some minutes.
#
#   HONE   the program (target/release/hone, built if necessary)
set -euo pipefail

cd "$(dirname "$0")/../.."
hone=${HONE:-target/release/hone}
[ -n "${HONE:-}" ] || cargo build --release --locked
model=$(scripts/lib/fetch-test-models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/python"
"$work/python/bin/pip" install --quiet 'numpy==2.4.6' 'scikit-learn==1.9.1'

"$work/python/bin/python" scripts/record/likelihood/answers.py "$work"
for set in training examination own; do
    "$hone" judge features "$work/$set.jsonl" -m "$model" >"$work/$set.features.jsonl"
done
"$work/python/bin/python" scripts/record/likelihood/fit.py "$work" smollm2:135m >config/likelihood.toml
