#!/usr/bin/env bash
# Runs the tests, after fetching the models and programs that they need: with cargo-nextest where it is installed, otherwise with
# `cargo test`.
#
#   scripts/test.sh                             every test but those that `scripts/check.sh` runs when what they concern has changed: the
#                                               engine's and the kernels' (`scripts/check.sh engine`), those in which the built-in
#                                               model judges or is measured (`judges`), the work of agents (`tasks`) and the ordeals
#                                               (`torture`)
#   scripts/test.sh [OPTION...] NAME            tests with this text in their name
#   scripts/test.sh -p hone-memory NAME         the same of one crate
#   scripts/test.sh --test program -- NAME... --skip NAME
#
#   scripts/test.sh engine [ARGUMENT...]        those of the engine and the kernels
#   scripts/test.sh arm [ARGUMENT...]           as programs for 64-bit ARM, under an emulator
#   scripts/test.sh torture                     the ordeals, for an hour
#   scripts/test.sh hosts [ARGUMENT...]         a fleet on twelve hosts that are killed and cut off, for 20 minutes
#   scripts/test.sh under-load [ARGUMENT...]    again and again beside busy loops
#
#   HONE_TEST_RUNNER   nextest or cargo, instead of what is installed
#
# Options are those that both runners know (-p, --test, --lib, --release, --target, --no-fail-fast ...); behind `--` they share names,
# --skip, --exact, --ignored and --include-ignored.
set -euo pipefail

here=$(dirname "$0")
# shellcheck source=scripts/lib/subcommands.sh
. "$here/lib/subcommands.sh"
case ${1:-} in
arm | engine | hosts | torture | under-load | -h | --help) run_subcommand "$here/tests" "$@" ;;
esac

cd "$here/.."
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
# The workspaces that `hone task` is tested on have tests for Node.js.
install_programs 'The tests' node >&2
HONE_TEST_MODELS=$(scripts/lib/fetch-test-models.sh)
HONE_TEST_TOOLS=$(scripts/lib/install-test-tools.sh)
export HONE_TEST_MODELS HONE_TEST_TOOLS

runner=${HONE_TEST_RUNNER:-}
if [ -z "$runner" ]; then
    runner=cargo
    ! cargo nextest --version >/dev/null 2>&1 || runner=nextest
fi
case $runner in
nextest) run=(cargo nextest run) ;;
cargo) run=(cargo test) ;;
*) echo "error: HONE_TEST_RUNNER is nextest or cargo, and not $runner" >&2 && exit 2 ;;
esac

# Whether the arguments choose crates themselves.
chooses_crates() {
    local argument
    for argument; do
        case $argument in
        --) return 1 ;;
        -p* | --package | --package=* | --workspace | --manifest-path*) return 0 ;;
        esac
    done
    return 1
}

if [ $# -gt 0 ]; then
    chooses_crates "$@" || run+=(--workspace)
    exec "${run[@]}" --locked "$@"
fi
exec "${run[@]}" --workspace --exclude hone-engine --exclude hone-kernels --exclude hone-kernels-cuda --locked --no-fail-fast -- --skip torture:: --skip built_in_judge:: --skip measured:: --skip task_stories::
