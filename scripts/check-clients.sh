#!/usr/bin/env bash
# Runs the clients that people use, fetched from PyPI, against a real hone with the built-in model. Each client is a script in
# tests/clients that is given the server's address and the model's name, and fails where the client does not get what it expects.
# The model's chat template is replaced by one that knows tools (tests/clients/tools.jinja).
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh

# A line for each client: its script, and the packages that it needs.
clients=(
    "anthropic_client.py anthropic==2.12.0"
    "openai_chat.py openai==3.54.0"
    "openai_responses.py openai==3.54.0"
    "ollama_client.py ollama==0.6.3 openai==3.54.0"
    "mcp_client.py mcp==2.3.0"
)

install_packages gguf==0.19.0
for client in "${clients[@]}"; do
    read -r -a words <<<"$client"
    install_packages "${words[@]:1}"
done

model=$scratch/with-tools.gguf
"$scratch/venv/bin/gguf-new-metadata" --force --chat-template-file tests/clients/tools.jinja "$built_in" "$model" \
    >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
serve "$model"

for client in "${clients[@]}"; do
    read -r script _ <<<"$client"
    printf '== %s\n' "$client"
    "$scratch/venv/bin/python" "tests/clients/$script" "$address" "$model"
done
