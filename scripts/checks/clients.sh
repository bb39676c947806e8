#!/usr/bin/env bash
# Runs the clients that people use, fetched from PyPI and npm, and curl against a real hone with the built-in model. Each client
# is a script in tests/clients that is given the server's address, a model and an embedder, prints a line for each thing that it
# has checked, and fails where the client does not get what it expects. The model's chat template is replaced by one that knows
# tools (tests/clients/tools.jinja).
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/server.sh
. scripts/lib/server.sh
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh

# A line for each client: its script, and the packages that it needs.
clients=(
    "anthropic_client.py anthropic==2.12.0"
    "openai_chat.py openai==3.57.0"
    "openai_responses.py openai==3.57.0"
    "ollama_client.py ollama==0.6.3 openai==3.57.0"
    "mcp_client.py mcp==2.3.0"
    "langchain_client.py langchain-openai==1.7.4 langchain-ollama==1.1.0 openai==3.57.0 ollama==0.6.3"
    "decisions_client.py openai==3.57.0 typesafe-sdk[zstd]==0.7.5 jevals==0.1.4 langchain-openai==1.7.4"
    "llm_client.py llm==0.36 llm-ollama==0.19.1 openai==3.57.0 ollama==0.6.3"
)
# Those that do not go with the versions above.
clients_apart=(
    "instructor_client.py instructor==1.17.0 openai==2.54.0"
    "litellm_client.py litellm==1.105.0 openai==2.54.0"
    "lm_eval_client.py lm_eval[api]==0.4.13"
)
# Those of JavaScript, whose packages are in tests/clients/package-lock.json.
node_clients=(openai_client.mjs ollama_client.mjs ai_client.mjs)

# The packages of clients.
packages_of() {
    local client words
    for client in "$@"; do
        read -r -a words <<<"$client"
        printf '%s\n' "${words[@]:1}"
    done | sort --unique
}

# Installs the embedder of the tests as `hone pull` would, which would download it again.
install_embedder() {
    python3 - "$models/all-MiniLM-L6-v2" "$scratch/home/models/all-minilm@l6-v2" <<'PYTHON'
import hashlib, json, pathlib, shutil, sys

source, target = map(pathlib.Path, sys.argv[1:])
shutil.copytree(source, target)
files = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
records = [{"name": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in files.items()]
manifest = {"name": "all-minilm:l6-v2", "source": "tests", "added": 0, "files": records}
(target / "manifest.json").write_text(json.dumps(manifest))
PYTHON
}

# check COMMAND... SCRIPT: runs a client, and keeps what it says.
check() {
    printf '== %s\n' "${@: -1}"
    timeout 300 "${@:1:$#-1}" "tests/clients/${*: -1}" "$address" "$model" "$embedder" | tee -a "$scratch/checked"
}

# Nothing is written beside the scripts.
export PYTHONDONTWRITEBYTECODE=1
install_programs 'the clients of the server' node npm curl
mapfile -t packages < <(packages_of "${clients[@]}")
mapfile -t packages_apart < <(packages_of "${clients_apart[@]}")
install_packages_in apart "${packages_apart[@]}" &
apart=$!
npm ci --prefix tests/clients --no-audit --no-fund --silent &
from_npm=$!
install_packages gguf==0.19.0 "${packages[@]}"
wait "$apart"
wait "$from_npm"

model=tools:135m
embedder=all-minilm:l6-v2
file=$scratch/with-tools.gguf
{
    "$scratch/venv/bin/gguf-new-metadata" --force --chat-template-file tests/clients/tools.jinja "$built_in" "$file"
    HONE_HOME=$scratch/home "$hone" pull "$file" --name "$model"
} >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
install_embedder
serve "$model"

for client in "${clients[@]}"; do
    check "$scratch/venv/bin/python" "${client%% *}"
done
for client in "${clients_apart[@]}"; do
    check "$scratch/apart/bin/python" "${client%% *}"
done
for script in "${node_clients[@]}"; do
    check node "$script"
done
check bash curl.sh
printf '%s checks of %s clients passed\n' "$(grep --count '^ok ' "$scratch/checked")" \
    $((${#clients[@]} + ${#clients_apart[@]} + ${#node_clients[@]} + 1))
