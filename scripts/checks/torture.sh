#!/usr/bin/env bash
# Runs the ordeals of the program (tests/torture) and of memory: 20 seconds for each. `scripts/test.sh torture` takes an hour.
# Installs what is missing, on Debian.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
install_programs 'The ordeals' faketime strace
scripts/test.sh --workspace --no-fail-fast -- torture::
