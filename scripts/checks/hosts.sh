#!/usr/bin/env bash
# Runs the fleet on twelve hosts (scripts/tests/hosts.py) for a minute, without its throughput. `scripts/test.sh hosts` takes twenty.
# Needs Linux, root and network namespaces; installs what is missing, on Debian. HONE names another binary than the debug build.
set -euo pipefail

cd "$(dirname "$0")/../.."
unshare --net --mount --pid --fork true 2>/dev/null || { echo "it needs root and namespaces" >&2; exit 77; }
# shellcheck source=scripts/lib/program.sh
. scripts/lib/program.sh
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
install_programs "The hosts" ip
build_program
scripts/test.sh hosts --hone "$hone" --answers 240 --seconds 60 --no-throughput
