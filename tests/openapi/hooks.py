"""Requests that get somewhere. What schemathesis makes up fits the document and little else: so every other request asks a question
that can be answered, of the model that there is, or names an answer that was given before. Answers are short."""

import itertools
import os

import schemathesis

MODEL = os.environ["SERVED_MODEL"]
MOST_TOKENS = 8
TURNS = [{"role": "user", "content": "What is the capital of France?"}]
# What a request that can be answered says, by path.
ANSWERABLE = {
    "/v1/chat/completions": {"messages": TURNS, "max_completion_tokens": MOST_TOKENS},
    "/v1/completions": {"prompt": "The capital of France is", "max_tokens": MOST_TOKENS},
    "/v1/responses": {"input": "What is the capital of France?", "max_output_tokens": MOST_TOKENS},
    "/v1/responses/input_tokens": {"input": "What is the capital of France?"},
    "/v1/messages": {"messages": TURNS, "max_tokens": MOST_TOKENS},
    "/v1/messages/count_tokens": {"messages": TURNS},
    "/api/chat": {"messages": TURNS, "options": {"num_predict": MOST_TOKENS}},
    "/api/generate": {"prompt": "What is the capital of France?", "options": {"num_predict": MOST_TOKENS}},
    "/api/show": {},
    "/hone/v1/chat": {"question": "What is the capital of France?"},
}
# The same for requests that name no model.
COMPLETE = {
    "/hone/v1/grade": {"query": "What is the capital of France?", "answer": "Paris."},
    "/hone/v1/compare": {"query": "What is the capital of France?", "a": "Paris.", "b": "Rome."},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
}
# The keys that it keeps besides.
KEPT = ["stream", "stream_options", "n", "seed", "logprobs", "top_logprobs", "echo", "keep_alive", "store", "background"]

numbers = itertools.count()
# The latest answer and the latest response.
latest = {}


@schemathesis.hook
def before_call(context, case, kwargs):
    if next(numbers) % 2:
        return
    body = case.body if isinstance(case.body, dict) else {}
    if case.path in ANSWERABLE:
        case.body = {key: body[key] for key in KEPT if key in body} | ANSWERABLE[case.path] | {"model": MODEL}
    if case.path in COMPLETE:
        case.body = COMPLETE[case.path]
    if case.path == "/mcp":
        case.headers = {**(case.headers or {}), "Accept": "application/json, text/event-stream"}
    if case.path == "/hone/v1/feedback" and "answer" in latest:
        case.body = {"query_id": latest["answer"], "rating": "good"}
    if case.path.startswith("/v1/responses/{id}") and case.method != "DELETE" and "response" in latest:
        case.path_parameters = {"id": latest["response"]}
    if case.path == "/hone/v1/memory/{id}" and case.method != "DELETE" and "answer" in latest:
        case.path_parameters = {"id": latest["answer"]}


@schemathesis.hook
def after_call(context, case, response):
    answer = response.headers.get("x-hone-query-id")
    if answer:
        latest["answer"] = answer[0] if isinstance(answer, list) else answer
    if case.path == "/v1/responses" and response.status_code == 200 and answer:
        latest["response"] = f"resp_{latest['answer']}"
