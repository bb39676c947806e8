#!/usr/bin/env bash
# Runs the tests again and again on a busy machine, which brings out those that rely on how fast something goes. The arguments
# go to scripts/test.sh: `scripts/test.sh under-load --package hone-bus`. $RUNS says how often (10), $BUSY how many loops keep
# the cores busy meanwhile (6). Stops at the first failure, and says which test it was and in which run.
set -euo pipefail

cd "$(dirname "$0")/../.."
runs=${RUNS:-10} busy=${BUSY:-6}
log=$(mktemp)
loops=()

# Ctrl-C and SIGTERM end the script, and with it its loops.
trap 'kill "${loops[@]}" 2>/dev/null || true; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Compiling is no test.
scripts/test.sh --no-run "$@"
for _ in $(seq "$busy"); do
    (while :; do :; done) &
    loops+=($!)
done
for run in $(seq "$runs"); do
    printf '\n== run %d of %d beside %d busy loops\n' "$run" "$runs" "$busy"
    if ! scripts/test.sh "$@" 2>&1 | tee "$log"; then
        printf '\nrun %d of %d failed:\n' "$run" "$runs" >&2
        # As `cargo test` and `cargo nextest` name them.
        grep -E '^test .* \.\.\. FAILED$|^ +(FAIL|TIMEOUT|SIGNAL|ABORT) \[' "$log" | sort -u >&2 || tail -n 20 "$log" >&2
        exit 1
    fi
done
printf '\n%d runs beside %d busy loops: all passed\n' "$runs" "$busy"
