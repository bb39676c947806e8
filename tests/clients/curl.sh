#!/usr/bin/env bash
# curl against hone: what a shell script sees. Arguments: the server's address, a model and an embedder.
set -euo pipefail

address=$1 model=$2 embedder=$3
question='[{"role": "user", "content": "In which city is the Eiffel Tower?"}]'
story='[{"role": "user", "content": "Tell me a very long story."}]'

# post PATH BODY [OPTION...]: the body of the response, and its status on a line of its own.
post() {
    curl --silent --show-error --max-time 120 --write-out '\n%{http_code}' "${@:3}" "$address$1" --data "$2"
}

post_json() {
    post "$@" --header 'Content-Type: application/json'
}

# expect TEXT...: each of them is in the response.
expect() {
    local text
    for text in "$@"; do
        [[ $response == *"$text"* ]] || { printf 'not in the response: %s\n%s\n' "$text" "$response" >&2; exit 1; }
    done
}

# figure NAME [LABEL]: a figure of /metrics, of the lines with a label.
figure() {
    curl --silent "$address/metrics" | awk -v name="$1" -v label="${2:-}" \
        'index($0, name) == 1 && (label == "" || index($0, label)) { sum += $NF } END { print sum + 0 }'
}

a_question_is_answered() {
    response=$(post_json /v1/chat/completions "{\"messages\": $question, \"temperature\": 0, \"max_tokens\": 16}")
    expect Paris '"finish_reason"' $'\n200'
    response=$(post_json /api/generate '{"prompt": "In which city is the Eiffel Tower?", "options": {"temperature": 0, "num_predict": 16}, "stream": false}')
    expect Paris '"done":true' $'\n200'
}

an_answer_is_streamed() {
    response=$(post_json /v1/chat/completions "{\"messages\": $question, \"stream\": true, \"max_tokens\": 8}" --no-buffer)
    expect 'data: {' 'data: [DONE]' $'\n200'
    response=$(post_json /api/chat "{\"messages\": $question, \"options\": {\"num_predict\": 8}}" --no-buffer)
    expect '"done":false' '"done":true'
}

texts_are_embedded() {
    response=$(post_json /v1/embeddings "{\"model\": \"$embedder\", \"input\": \"cat\"}")
    expect '"embedding":[' '"total_tokens"' $'\n200'
}

a_tool_is_called() {
    local tool='{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}}}'
    response=$(post_json /v1/chat/completions "{\"messages\": $question, \"tools\": [$tool], \"tool_choice\": \"required\"}")
    expect '"tool_calls":[' '"name":"clock"' $'\n200'
}

a_form_is_kept() {
    local schema='{"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}'
    response=$(post_json /v1/chat/completions "{\"messages\": $question, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"c\", \"schema\": $schema}}}")
    expect '{\"city\": \"Paris\"}' $'\n200'
}

a_body_may_say_nothing_of_its_kind() {
    response=$(post /api/chat "{\"model\": \"$model\", \"messages\": [], \"stream\": false}" --header 'Content-Type:')
    expect '"done_reason":"load"' $'\n200'
}

errors_say_what_is_wrong() {
    response=$(post_json /v1/chat/completions "{\"model\": \"none\", \"messages\": $question}")
    expect '"code":"model_not_found"' '"param":"model"' $'\n404'
    response=$(post_json /v1/chat/completions "{\"messages\": $question, \"temperature\": \"hot\"}")
    expect '"param":"temperature"' $'\n400'
    response=$(post_json /v1/chat/completions '{"messages": ]')
    expect 'the body is not JSON' 'at line 1 column 14' $'\n400'
    local endless='{"$ref": "#"}'
    response=$(post_json /v1/chat/completions "{\"messages\": $question, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"e\", \"schema\": $endless}}}")
    expect 'no text of its form ever ends' $'\n400'
    response=$(post_json /api/show '{"model": "none"}')
    expect '{"error":"' $'\n404'
}

foreign_pages_are_refused() {
    response=$(post /api/chat '{}' --header 'Content-Type:' --header 'Origin: https://page.example')
    expect 'pages of other origins' $'\n403'
    response=$(post /api/chat '{}' --header 'Content-Type: text/plain')
    expect 'must be application/json' $'\n415'
}

an_answer_is_cancelled() {
    local before left=0
    before=$(figure hone_answers_total 'outcome="cancelled"')
    # curl goes away with the first piece, because nothing reads the next.
    post_json /v1/chat/completions "{\"messages\": $story, \"stream\": true, \"max_tokens\": 4000}" --no-buffer 2>/dev/null | head -1 >/dev/null || true
    until [ "$(figure hone_questions_in_progress)" = 0 ] && [ "$(figure hone_answers_total 'outcome="cancelled"')" = $((before + 1)) ]; do
        [ $((left += 1)) -lt 600 ] || { echo "the answer goes on, or has ended by itself" >&2; exit 1; }
        sleep 0.1
    done
}

for check in a_question_is_answered an_answer_is_streamed texts_are_embedded a_tool_is_called a_form_is_kept \
    a_body_may_say_nothing_of_its_kind errors_say_what_is_wrong foreign_pages_are_refused an_answer_is_cancelled; do
    $check
    printf 'ok %s\n' "$check"
done
