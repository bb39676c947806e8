#!/usr/bin/env bash
# Runs hone as a program for Windows, under Wine: the tests of the kernels, `hone doctor`, and the default model, which
# continues some texts with the processor's kernels and with the portable ones; the texts must be the same. That hone's other
# tests compile for Windows, `scripts/check.sh windows` checks.
# Takes the number of tokens; HONE_PROFILE is the profile that is built, release without it.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/windows-tools.sh
. scripts/lib/windows-tools.sh
# shellcheck source=scripts/lib/wine.sh
. scripts/lib/wine.sh
# shellcheck source=scripts/lib/answers.sh
. scripts/lib/answers.sh

tokens=${1:-16}
profile=${HONE_PROFILE:-release}
# hone would take it for a key of its configuration.
unset HONE_PROFILE
answers=$(mktemp -d)
trap 'wineserver -k 2>/dev/null || true; rm -rf "$answers"' EXIT
prepare_wine "$answers/wine"

CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine \
    cargo test --quiet --package hone-kernels --lib --tests --locked --target "$WINDOWS"

cargo build --profile "$profile" --locked --target "$WINDOWS"
hone=${CARGO_TARGET_DIR:-target}/$WINDOWS/${profile/%dev/debug}/hone.exe
model=$(winepath -w "$(scripts/lib/fetch-test-models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf")
mkdir "$answers/home"
HONE_HOME=$(winepath -w "$answers/home")
export HONE_HOME
# It fails where something is wrong with the installation, as without models; here it shall say what it sees.
wine "$hone" doctor || echo "hone doctor ended with $?"
answer auto wine "$hone"
HONE_ENGINE_INSTRUCTION_SET=portable answer portable wine "$hone"
compare_answers portable auto
