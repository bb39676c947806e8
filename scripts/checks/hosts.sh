#!/usr/bin/env bash
# Runs the fleet on twelve hosts (scripts/tests/hosts.py) for a minute, without its throughput. `scripts/test.sh hosts` takes twenty.
# Needs Linux, root and network namespaces; installs what is missing, on Debian. HONE names another binary than the debug build.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/program.sh
. scripts/lib/program.sh
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
install_programs "The hosts" ip
unshare --net --mount --pid --fork ip link add hosts type bridge 2>/dev/null \
    || { echo "it needs root, and namespaces with bridges" >&2; exit 77; }
# There is no network later.
scripts/lib/fetch-test-models.sh >/dev/null
scripts/lib/install-test-tools.sh >/dev/null
build_program
scripts/test.sh hosts --hone "$hone" --answers 240 --seconds 60 --no-throughput
