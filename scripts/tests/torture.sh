#!/usr/bin/env bash
# Tries for an hour to make hone lose, double or corrupt what it keeps, or end otherwise than by itself: the ordeals of
# tests/torture on a release build, the crowd of crates/memory/tests/it/torture.rs in full, a hundred kills of tests/task_stories,
# ten thousand answers that are consolidated, and every fuzz target. The figures of the run go into tests/torture/README.md. The gate runs the same ordeals for 20 seconds
# each.
#
#   HONE_TORTURE_SECONDS   seconds for each ordeal (450)
#   HONE_FUZZ_SECONDS      seconds for each fuzz target (60; 0 leaves them out)
#   HONE_TORTURE_SEED      where chance begins (the day's number)
#
# Installs strace and faketime where they are missing, on Debian. Fuzzing needs Rust's nightly toolchain and installs cargo-fuzz.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
install_programs 'The ordeals' faketime strace
export HONE_TORTURE_SECONDS=${HONE_TORTURE_SECONDS:-450}
export HONE_TORTURE_SEED=${HONE_TORTURE_SEED:-$(($(date +%s) / 86400))}
HONE_TORTURE_REPORT=$(mktemp)
HONE_TEST_MODELS=$(scripts/lib/fetch-test-models.sh)
export HONE_TORTURE_REPORT HONE_TEST_MODELS
trap 'rm -f "$HONE_TORTURE_REPORT"' EXIT

cargo test --release --locked -p hone --test program torture:: -- --test-threads 1 --nocapture
HONE_TORTURE=1 cargo test --release --locked -p hone-memory --test it torture:: -- --nocapture
HONE_TORTURE=1 cargo test --release --locked -p hone --test program task_stories::kills:: -- --nocapture
cargo test --release --locked -p hone-agents --test it notes::ten_thousand_answers_are_consolidated -- --ignored

fuzz_seconds=${HONE_FUZZ_SECONDS:-60}
if [ "$fuzz_seconds" -gt 0 ]; then
    cargo fuzz --version || cargo install --locked cargo-fuzz
    for target in fuzz/fuzz_targets/*.rs; do
        name=$(basename "$target" .rs)
        log=$(mktemp)
        cargo +nightly fuzz run "$name" -- -max_total_time="$fuzz_seconds" 2>&1 | tee "$log"
        inputs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
        rm "$log"
        printf '{"ordeal":"fuzzing %s","seed":0,"seconds":%s,"survived":true,"counts":{"inputs":%s}}\n' \
            "$name" "$fuzz_seconds" "${inputs:-0}" >> "$HONE_TORTURE_REPORT"
    done
fi

python3 - "$HONE_TORTURE_REPORT" tests/torture/README.md <<'PYTHON'
import datetime, json, pathlib, sys

report, readme = map(pathlib.Path, sys.argv[1:])
rows = ["| ordeal | seconds | survived | what was done |", "| --- | --- | --- | --- |"]
for line in report.read_text().splitlines():
    run = json.loads(line)
    counts = ", ".join(f"{count} {what}" for what, count in run["counts"].items())
    rows.append(f"| {run['ordeal']} | {run['seconds']} | {'yes' if run['survived'] else 'NO'} | {counts} |")
table = f"Run of {datetime.date.today()}:\n\n" + "\n".join(rows)
begin, end = "<!-- figures -->\n", "<!-- end of figures -->"
head, _, rest = readme.read_text().partition(begin)
readme.write_text(head + begin + table + "\n" + end + rest.partition(end)[2])
PYTHON
