"""LiteLLM against hone, as an OpenAI-compatible server and as Ollama, in turn and at once."""

import asyncio
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from checking import (
    City,
    address,
    check_city,
    check_meaning,
    clock,
    embedder,
    model,
    one_cancelled,
    refused,
    run,
    story,
    texts,
    turns,
)

litellm.suppress_debug_info = True
openai = {"model": f"openai/{model}", "api_base": f"{address}/v1", "api_key": "none"}
ollama_chat = {"model": f"ollama_chat/{model}", "api_base": address}
ollama = {"model": f"ollama/{model}", "api_base": address}
providers = (openai, ollama_chat, ollama)


def ask(provider, **options):
    return provider | {"messages": turns, "temperature": 0, "max_tokens": 16, "num_retries": 0, "timeout": 120} | options


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def check_text(provider, text):
    """For /api/generate LiteLLM writes a prompt of its own, which the model does not know."""
    assert text if provider is ollama else "Paris" in text, (provider, text)


def questions_are_answered():
    for provider in providers:
        answer = litellm.completion(**ask(provider))
        text = answer.choices[0].message.content
        check_text(provider, text)
        assert answer.usage.completion_tokens > 0, answer
        assert text_of(litellm.completion(**ask(provider, stream=True))) == text, provider


def questions_are_answered_asynchronously():
    async def answered(provider):
        text = (await litellm.acompletion(**ask(provider))).choices[0].message.content
        check_text(provider, text)
        chunks = [chunk async for chunk in await litellm.acompletion(**ask(provider, stream=True))]
        assert text_of(chunks) == text, provider

    async def all_answered():
        await asyncio.gather(*map(answered, providers))

    asyncio.run(all_answered())


def tools_are_called():
    request = ask(openai, tools=[clock], tool_choice="required", max_tokens=60)
    call = litellm.completion(**request).choices[0].message.tool_calls[0]
    assert call.function.name == "clock" and json.loads(call.function.arguments)["city"] in ("Paris", "Rome"), call
    chunks = list(litellm.completion(**request, stream=True))
    streamed = litellm.stream_chunk_builder(chunks, messages=turns).choices[0].message.tool_calls[0]
    assert streamed.function.arguments == call.function.arguments, streamed
    told = turns + [
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "12:00"},
    ]
    for provider in (openai, ollama_chat):
        assert litellm.completion(**ask(provider, tools=[clock], messages=told)).choices[0].message.content


def forms_are_kept():
    for provider in providers:
        answer = litellm.completion(**ask(provider, response_format=City, max_tokens=60))
        check_city(answer.choices[0].message.content)


def texts_are_embedded():
    for provider in (openai | {"model": f"openai/{embedder}"}, ollama | {"model": f"ollama/{embedder}"}):
        made = litellm.embedding(**provider, input=texts)
        check_meaning([one["embedding"] for one in made.data])


def errors_are_typed():
    async def asynchronously(**request):
        await litellm.acompletion(**request)

    unknown = openai | {"model": "openai/none"}
    error = refused(litellm.NotFoundError, lambda: litellm.completion(**ask(unknown)), "none")
    assert error.status_code == 404, error
    refused(litellm.NotFoundError, lambda: asyncio.run(asynchronously(**ask(unknown))), "none")
    refused(litellm.BadRequestError, lambda: litellm.completion(**ask(openai, temperature=-1)), "temperature")
    long = [{"role": "user", "content": "long " * 20000}]
    request = ask(openai, messages=long)
    refused(litellm.ContextWindowExceededError, lambda: litellm.completion(**request), "shorten it by")
    for provider in ("ollama", "ollama_chat"):
        request = ask({"model": f"{provider}/none", "api_base": address})
        refused(litellm.NotFoundError, lambda: litellm.completion(**request), "none", "not installed")


def answers_are_cancelled():
    for provider in (openai, ollama_chat):
        request = ask(provider, messages=[{"role": "user", "content": story}], max_tokens=4000, stream=True)

        async def left_early():
            stream = await litellm.acompletion(**request)
            await anext(aiter(stream))
            await stream.aclose()

        with one_cancelled():
            asyncio.run(left_early())


run(
    questions_are_answered,
    questions_are_answered_asynchronously,
    tools_are_called,
    forms_are_kept,
    *([texts_are_embedded] if embedder else []),
    errors_are_typed,
    answers_are_cancelled,
)
