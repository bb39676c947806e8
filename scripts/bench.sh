#!/usr/bin/env bash
# Measures hone. benches/README.md has the figures and says what they mean.
#
#   scripts/bench.sh NAME [ARGUMENT...]      --help after a name explains it
#
#   build                     how long builds take, which packages take long, how large the binaries are
#   peers                     speed beside llama.cpp, in turn on the same files
#   server                    `hone serve` beside llama-server under concurrent clients; a crowd of a thousand
#   portable                  the portable kernels beside candle, on this processor
#   portable-instructions     instructions per token on a processor without AVX, under an emulator
#   arm-instructions          instructions per product on 64-bit ARM beside llama.cpp, under an emulator
#   manipulation              how far answers that speak to their judge get
#   defaults                  whether other sampling settings give the built-in model more right answers than those shipped
#   memory                    what memory does to answers: impersonal and personal questions with it and without
#   bus                       messages to workers over NATS, and how many workers are worth their number
#   remembering               what remembering every answer costs: a short answer, and many clients
#   elsewhere                 what it costs that a worker answers: a short answer, and many clients
#   scale                     where a thousand workers and a million answers a day meet their first limit
set -euo pipefail

here=$(dirname "$0")
# shellcheck source=scripts/lib/subcommands.sh
. "$here/lib/subcommands.sh"
run_subcommand "$here/bench" "$@"
