#!/usr/bin/env bash
# Runs coding agents and frameworks, fetched from npm and PyPI, against a real hone with the built-in model: one turn each,
# without a network, in an empty home and a scratch repository. The model's chat template is replaced by one that has it call
# the agent's tool for reading a file, if there is one, and say hello (tests/agents/hello.jinja). A turn passes if the agent
# ends well, has received that greeting, and hone has refused and failed nothing.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/server.sh
. scripts/lib/server.sh
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh

# The packages of npm. Some need a newer node than Debian has; promptfoo's optional dependencies are large.
coding_agents=(
    @anthropic-ai/claude-code@2.1.332
    @openai/codex@0.171.0
    opencode-ai@1.18.33
    @qwen-code/qwen-code@0.24.4
    cline@3.0.65
    @continuedev/cli@1.5.47
    node@22.23.3
)
promptfoo=(promptfoo@0.123.1 "@libsql/linux-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')-gnu@0.5.29")
# The packages of PyPI, in as many environments as go with each other.
with_newer_openai=(
    "pydantic-ai-slim[anthropic,openai]==2.68.0" dspy==3.4.1 haystack-ai==3.4.1 inspect-ai==0.3.285 "smolagents[openai]==1.26.0"
)
with_older_openai=(crewai==1.15.30 llama-index-core==0.14.25 llama-index-llms-openai-like==0.8.1)
aider=(aider-chat==0.86.2)
gptme=(gptme==0.35.1)

# install_from_npm FOLDER [OPTION|PACKAGE]...
install_from_npm() {
    mkdir "$scratch/$1"
    npm install --prefix "$scratch/$1" --no-audit --no-fund --silent "${@:2}"
}

# install_with_uv FOLDER PACKAGE...: as install_packages_in, which takes minutes for the larger ones.
install_with_uv() {
    "$scratch/venv/bin/uv" venv --quiet --python python3 "$scratch/$1"
    "$scratch/venv/bin/uv" pip install --quiet --python "$scratch/$1/bin/python" "${@:2}"
}

# The sum of a figure of /metrics over the lines that a pattern matches.
figure() {
    curl --silent --fail "$address/metrics" | awk -v pattern="$1" '$0 ~ pattern { sum += $NF } END { print sum + 0 }'
}

# How many answers hone has completed, and how many requests it has refused or failed.
answered() { figure '^hone_answers_total.*outcome="stop"'; }
failed() { figure '^hone_failures_total|^hone_http_requests_total.*status="[45]'; }

# turn NAME [VARIABLE=VALUE]... COMMAND...: runs an agent. Whatever it wants of another host than hone's fails at once.
turn() {
    local name=$1 start=$SECONDS answered_before failed_before home=$scratch/homes/$1
    shift
    printf '== %s\n' "$name"
    mkdir -p "$home/work"
    git -C "$home/work" init --quiet
    echo "A file." >"$home/work/README.md"
    answered_before=$(answered)
    failed_before=$(failed)
    if ! (
        cd "$home/work"
        timeout 150 env --ignore-environment HOME="$home" PATH="$programs" LANG=C.UTF-8 TERM=dumb PYTHONDONTWRITEBYTECODE=1 \
            NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 HTTPS_PROXY=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 \
            https_proxy=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 "$@" \
            </dev/null >"$home/output" 2>"$home/errors"
    ); then
        complain "$home" "it has failed"
    elif ! grep --quiet Hello "$home/output"; then
        complain "$home" "it has not received the answer"
    elif [ "$(answered)" = "$answered_before" ] || [ "$(failed)" != "$failed_before" ]; then
        complain "$home" "hone has answered $(($(answered) - answered_before)) of its requests, and refused or failed \
$(($(failed) - failed_before))"
    else
        printf 'ok %s (%s answers, %s s)\n' "$name" $(($(answered) - answered_before)) $((SECONDS - start))
        passed=$((passed + 1))
    fi
}

complain() {
    tail --lines 30 "$1/output" "$1/errors" >&2
    printf 'error: %s: %s\n' "$(basename "$1")" "$2" >&2
    failures=$((failures + 1))
}

passed=0 failures=0
install_programs 'the agents' node npm curl git
install_from_npm npm "${coding_agents[@]}" &
installing=($!)
install_packages uv==0.13.9 gguf==0.19.0
install_with_uv newer "${with_newer_openai[@]}" &
installing+=($!)
install_with_uv older "${with_older_openai[@]}" &
installing+=($!)
install_with_uv aider "${aider[@]}" &
installing+=($!)
install_with_uv gptme "${gptme[@]}" &
installing+=($!)
install_from_npm promptfoo --omit=optional "${promptfoo[@]}" &
installing+=($!)

model=hello:135m
file=$scratch/hello.gguf
{
    "$scratch/venv/bin/gguf-new-metadata" --force --chat-template-file tests/agents/hello.jinja "$built_in" "$file"
    HONE_HOME=$scratch/home "$hone" pull "$file" --name "$model"
} >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
serve "$model"
for process in "${installing[@]}"; do
    wait "$process"
done
programs=$scratch/npm/node_modules/.bin:/usr/local/bin:/usr/bin:/bin
agents=$PWD/tests/agents

turn claude ANTHROPIC_BASE_URL="$address" ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL="$model" \
    ANTHROPIC_DEFAULT_HAIKU_MODEL="$model" CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude -p 'Say hello.'
turn codex codex exec -m "$model" -c model_provider=hone \
    -c "model_providers.hone={name=\"hone\",base_url=\"$address/v1\",wire_api=\"responses\"}" 'Say hello.'
# The tools of MCP servers come in namespaces.
turn codex-mcp codex exec -m "$model" -c model_provider=hone \
    -c "model_providers.hone={name=\"hone\",base_url=\"$address/v1\",wire_api=\"responses\"}" \
    -c "mcp_servers.notes={command=\"$hone\",args=[\"mcp\",\"--model\",\"$model\"],env={HONE_HOME=\"$scratch/home\"}}" \
    'Say hello.'
grep --quiet 'mcp: notes/search_memory (completed)' "$scratch/homes/codex-mcp/errors" || {
    complain "$scratch/homes/codex-mcp" "it has not called the tool of the MCP server"
}
turn codex-oss CODEX_OSS_BASE_URL="$address/v1" codex exec --oss --local-provider ollama -m "$model" 'Say hello.'
opencode='{"provider": {"hone": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "%s/v1", "apiKey": "none"},
    "models": {"%s": {}}}}, "small_model": "hone/%s"}'
# shellcheck disable=SC2059 # The format is the configuration above.
turn opencode OPENCODE_CONFIG_CONTENT="$(printf "$opencode" "$address" "$model" "$model")" \
    OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 opencode run -m "hone/$model" 'Say hello.'
turn qwen OPENAI_BASE_URL="$address/v1" OPENAI_API_KEY=none OPENAI_MODEL="$model" \
    qwen --auth-type openai -p 'Say hello.'
turn qwen-responses OPENAI_BASE_URL="$address/v1" OPENAI_API_KEY=none OPENAI_MODEL="$model" \
    qwen --auth-type openai-responses -p 'Say hello.'
turn qwen-anthropic ANTHROPIC_BASE_URL="$address" ANTHROPIC_API_KEY=none ANTHROPIC_MODEL="$model" \
    qwen --auth-type anthropic -p 'Say hello.'
turn cline CLINE_NO_AUTO_UPDATE=1 bash -c \
    "cline auth openai-compatible -k none -m '$model' -b '$address/v1' && cline --json 'Say hello.'"
# It leaves a daemon behind.
for process in $(pgrep --full "^$scratch/.*--cline-hub-daemon"); do
    kill "$process"
done
continue_file="$scratch/continue.yaml"
printf '%s\n' 'name: hone' 'version: 0.0.1' 'schema: v1' 'models:' "  - {name: hone, provider: openai, model: '$model'," \
    "     apiBase: '$address/v1', apiKey: none, roles: [chat]}" >"$continue_file"
turn continue CONTINUE_TELEMETRY_ENABLED=0 cn --config "$continue_file" -p 'Say hello.'
turn aider OPENAI_API_BASE="$address/v1" OPENAI_API_KEY=none "$scratch/aider/bin/aider" --model "openai/$model" \
    --no-check-update --analytics-disable --no-show-model-warnings --yes-always --message 'Say hello.'
turn gptme OPENAI_BASE_URL="$address/v1" OPENAI_API_KEY=none "$scratch/gptme/bin/gptme" --non-interactive \
    -m "local/$model" 'Say hello.'

turn pydantic-ai "$scratch/newer/bin/python" "$agents/pydantic_ai_agent.py" "$address" "$model"
turn smolagents "$scratch/newer/bin/python" "$agents/smolagents_agent.py" "$address" "$model"
turn dspy "$scratch/newer/bin/python" "$agents/dspy_program.py" "$address" "$model"
turn haystack HAYSTACK_TELEMETRY_ENABLED=False "$scratch/newer/bin/python" "$agents/haystack_agent.py" "$address" "$model"
turn crewai CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true \
    "$scratch/older/bin/python" "$agents/crewai_crew.py" "$address" "$model"
turn llama-index "$scratch/older/bin/python" "$agents/llama_index_agent.py" "$address" "$model"

# evaluate VARIABLE=VALUE MODEL: runs Inspect, which takes only tasks in the current folder, and shows the model's answer.
evaluate() {
    turn "inspect-${2%%/*}" "$1" OPENAI_API_KEY=none ANTHROPIC_API_KEY=none bash -c \
        "cp '$agents/inspect_task.py' . && '$scratch/newer/bin/inspect' eval inspect_task.py --model '$2' --display none \
            --log-format json && grep --no-filename '\"completion\"' logs/*.json"
}

evaluate OPENAI_BASE_URL="$address/v1" "openai/$model"
evaluate ANTHROPIC_BASE_URL="$address" "anthropic/$model"
evaluate OLLAMA_BASE_URL="$address/v1" "ollama/$model"
turn promptfoo OPENAI_BASE_URL="$address/v1" OPENAI_API_KEY=none ANTHROPIC_BASE_URL="$address" ANTHROPIC_API_KEY=none \
    OLLAMA_BASE_URL="$address" MODEL="$model" PROMPTFOO_DISABLE_TELEMETRY=1 PROMPTFOO_DISABLE_UPDATE=1 \
    PROMPTFOO_DISABLE_REMOTE_GENERATION=1 "$scratch/promptfoo/node_modules/.bin/promptfoo" eval \
    --config "$agents/promptfoo.yaml" --no-cache --no-progress-bar
printf '%s turns of agents passed, %s failed\n' "$passed" "$failures"
[ "$failures" = 0 ]
