#!/usr/bin/env bash
# Records what scipy, krippendorff and scikit-learn say of judges in crates/judging/tests/it/data/agreement.json, which hone's own
# figures are compared with. With --check it compares the recorded ones with those packages.
set -euo pipefail

cd "$(dirname "$0")/../.."
tools=target/agreement-tools
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check numpy scipy krippendorff scikit-learn
arguments=(--write)
[ "${1:-}" != --check ] || arguments=()
"$tools/bin/python" scripts/record/agreement/figures.py ${arguments[@]+"${arguments[@]}"}
