"""OpenAI's own client against hone: chat completions and completions. Arguments: the server's address, the model's name."""

import json

import openai

from checking import about_mill, address, clock, endless, mill, model, nested, one_cancelled, refused, run, story, turns

client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)


def chat():
    answer = client.chat.completions.create(model=model, messages=turns, temperature=0, max_tokens=16)
    assert "Paris" in answer.choices[0].message.content, answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    several = client.chat.completions.create(model=model, messages=turns, n=3, seed=1, temperature=1, max_tokens=8)
    assert len(several.choices) == 3, several


def streaming():
    text, usage = "", None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=model, messages=turns, temperature=0, max_tokens=16, stream=True, stream_options=options
    ):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert "Paris" in text and usage.completion_tokens > 0, (text, usage)


def files():
    file = {"filename": "mill.pdf", "file_data": f"data:application/pdf;base64,{mill}"}
    parts = [{"type": "file", "file": file}, {"type": "text", "text": about_mill}]
    told = [{"role": "user", "content": parts}]
    answer = client.chat.completions.create(model=model, messages=told, temperature=0, max_tokens=24)
    assert "1792" in answer.choices[0].message.content, answer


def log_probabilities():
    answer = client.chat.completions.create(
        model=model, messages=turns, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content, answer
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in tokens), tokens
    assert all(token.top_logprobs[0].token == token.token for token in tokens), "greedy"


def forms():
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    answer = client.chat.completions.create(model=model, messages=turns, response_format=form, max_tokens=60)
    assert isinstance(json.loads(answer.choices[0].message.content)["city"], str), answer
    form = {"type": "json_schema", "json_schema": {"name": "nested", "schema": nested(400)}}
    answer = client.chat.completions.create(model=model, messages=turns, response_format=form, max_tokens=8)
    assert answer.choices[0].message.content.startswith("{"), answer


def tools():
    answer = client.chat.completions.create(
        model=model, messages=turns, tools=[clock], tool_choice="required", max_tokens=60
    )
    call = answer.choices[0].message.tool_calls[0]
    assert answer.choices[0].finish_reason == "tool_calls" and call.function.name == "clock", answer
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome"), call
    result = {"role": "tool", "tool_call_id": call.id, "content": "12:00"}
    told = turns + [answer.choices[0].message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model=model, messages=told, tools=[clock], tool_choice="none", max_tokens=16)
    assert answer.choices[0].message.content, answer


def texts():
    request = {"model": model, "prompt": "The capital of France is", "max_tokens": 3, "temperature": 0}
    answer = client.completions.create(**request, echo=True)
    assert answer.choices[0].text.startswith("The capital of France is Paris"), answer
    choice = client.completions.create(**request, logprobs=2).choices[0]
    assert len(choice.logprobs.tokens) == 3 and len(choice.logprobs.top_logprobs[0]) == 2, choice.logprobs
    echoed = client.completions.create(**request, echo=True, logprobs=2).choices[0]
    assert echoed.text == "The capital of France is" + choice.text, (echoed, choice)
    assert echoed.logprobs.token_logprobs[0] is None and echoed.logprobs.tokens[-3:] == choice.logprobs.tokens, echoed
    refused(openai.BadRequestError, lambda: client.completions.create(**request, echo=True, logprobs=2, n=2), "n must be 1")


def errors():
    def check(kind, options, **fields):
        for stream in (False, True):
            request = {"model": model, "messages": turns, "stream": stream, "max_tokens": 16} | options
            error = refused(kind, lambda: client.chat.completions.create(**request))
            found = {name: getattr(error, name) for name in fields}
            assert error.message and found == fields, (error, fields)

    unknown = {"code": "model_not_found", "param": "model"}
    check(openai.NotFoundError, {"model": "none"}, **unknown)
    check(openai.NotFoundError, {"model": "../../etc/passwd"}, **unknown)
    check(openai.BadRequestError, {"temperature": -1}, param="temperature")
    check(openai.BadRequestError, {"n": "two"}, param="n")
    check(openai.BadRequestError, {"messages": []}, param="messages")
    long = [{"role": "user", "content": "long " * 20000}]
    check(openai.BadRequestError, {"messages": long}, code="context_length_exceeded")
    for schema in (endless, nested(5000)):
        form = {"type": "json_schema", "json_schema": {"name": "wrong", "schema": schema}}
        check(openai.BadRequestError, {"response_format": form}, type="invalid_request_error")


def cancelling():
    told = [{"role": "user", "content": story}]
    with one_cancelled():
        stream = client.chat.completions.create(model=model, messages=told, stream=True, max_tokens=4000)
        next(iter(stream))
        stream.close()


run(chat, streaming, files, log_probabilities, forms, tools, texts, errors, cancelling)
