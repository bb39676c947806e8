#!/usr/bin/env bash
# Writes the files of the repository that are measured, fitted or recorded, and not written by hand.
#
#   scripts/record.sh NAME [ARGUMENT...]     --help after a name explains it
#
#   session            the conversation that the README shows (assets/)
#   readme-example     prints the transcript in the README's section "Start"
#   reference          the reference pages of the documentation (docs/reference/)
#   samplers           what llama.cpp's samplers leave of fixed logits
#   likelihood         the coefficients of the likelihood judge (config/likelihood.toml)
#   recall             what is similar enough to be recalled (config/memory.toml)
#   agreement          figures of judges by scipy, krippendorff and scikit-learn
set -euo pipefail

here=$(dirname "$0")
# shellcheck source=scripts/lib/subcommands.sh
. "$here/lib/subcommands.sh"
run_subcommand "$here/record" "$@"
