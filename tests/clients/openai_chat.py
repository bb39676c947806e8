"""OpenAI's own client against hone: chat completions and completions. Arguments: the server's address, the model's name."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
model = sys.argv[2]
question = [{"role": "user", "content": "What is the capital of France?"}]
clock = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time in a city",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
    },
}


def chat():
    answer = client.chat.completions.create(model=model, messages=question, temperature=0, max_tokens=16)
    assert "Paris" in answer.choices[0].message.content, answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    several = client.chat.completions.create(model=model, messages=question, n=3, seed=1, temperature=1, max_tokens=8)
    assert len(several.choices) == 3, several


def streaming():
    text, usage = "", None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=model, messages=question, temperature=0, max_tokens=16, stream=True, stream_options=options
    ):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert "Paris" in text and usage.completion_tokens > 0, (text, usage)


def log_probabilities():
    answer = client.chat.completions.create(
        model=model, messages=question, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content, answer
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in tokens), tokens
    assert all(token.top_logprobs[0].token == token.token for token in tokens), "greedy"


def forms():
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    answer = client.chat.completions.create(model=model, messages=question, response_format=form, max_tokens=60)
    assert isinstance(json.loads(answer.choices[0].message.content)["city"], str), answer


def tools():
    answer = client.chat.completions.create(
        model=model, messages=question, tools=[clock], tool_choice="required", max_tokens=60
    )
    call = answer.choices[0].message.tool_calls[0]
    assert answer.choices[0].finish_reason == "tool_calls" and call.function.name == "clock", answer
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome"), call
    result = {"role": "tool", "tool_call_id": call.id, "content": "12:00"}
    turns = question + [answer.choices[0].message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model=model, messages=turns, tools=[clock], tool_choice="none", max_tokens=16)
    assert answer.choices[0].message.content, answer


def texts():
    answer = client.completions.create(model=model, prompt="The capital of France is", max_tokens=3, temperature=0, echo=True, logprobs=2)
    choice = answer.choices[0]
    assert choice.text.startswith("The capital of France is Paris"), answer
    assert len(choice.logprobs.tokens) == 3 and len(choice.logprobs.top_logprobs[0]) == 2, choice.logprobs


def errors():
    for request, error in [
        ({"model": "../../etc/passwd"}, openai.NotFoundError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "long " * 20000}]}, openai.BadRequestError),
    ]:
        try:
            client.chat.completions.create(**{"model": model, "messages": question, **request})
        except error as refused:
            assert refused.message, refused
        else:
            raise AssertionError(f"{list(request)} is not refused")


def cancelling():
    stream = client.chat.completions.create(model=model, messages=question, stream=True, max_tokens=2000)
    next(iter(stream))
    stream.close()
    chat()


for check in (chat, streaming, log_probabilities, forms, tools, texts, errors, cancelling):
    check()
    print(f"ok {check.__name__}")
