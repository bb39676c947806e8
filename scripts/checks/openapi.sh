#!/usr/bin/env bash
# Runs schemathesis, fetched from PyPI, against a real hone with the built-in model: requests made from its OpenAPI document, the
# same ones every time, none of which may end with a server error or with a response that the document does not describe.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/server.sh
. scripts/lib/server.sh

install_packages schemathesis==4.32.5
serve "$built_in"
SERVED_MODEL=$built_in "$scratch/venv/bin/schemathesis" --config-file tests/openapi/schemathesis.toml \
    run "$address/openapi.json" --phases coverage,fuzzing --no-color
