#!/usr/bin/env bash
# Records the conversation that the README shows: assets/session.cast, which asciinema plays, and assets/session.svg, which is
# rendered from it. Run it again when the chat looks different. With --check it only says whether the picture belongs to the cast.
#
#   HONE   the program (target/release/hone, built if necessary)
set -euo pipefail

cd "$(dirname "$0")/../.."
tools=target/session-tools
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'pyte==0.8.2'
if [ "${1:-}" = --check ]; then
    "$tools/bin/python" scripts/record/session/render.py assets/session.cast | cmp - assets/session.svg
    exit
fi
hone=${HONE:-target/release/hone}
[ -n "${HONE:-}" ] || cargo build --release --locked
mkdir -p assets
"$tools/bin/python" scripts/record/session/record.py "$hone" "$(scripts/lib/fetch-test-models.sh)" assets/session.cast
"$tools/bin/python" scripts/record/session/render.py assets/session.cast >assets/session.svg
