"""LangChain's packages for OpenAI and for Ollama against hone."""

import asyncio

import ollama
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from checking import (
    City,
    address,
    check_meaning,
    embedder,
    endless,
    model,
    one_cancelled,
    question,
    refused,
    run,
    story,
    texts,
)


@tool
def clock(city: str) -> str:
    """Tells the time in a city."""
    return f"12:00 in {city}"


def for_openai(**options):
    options = {"model": model, "temperature": 0, "max_tokens": 16} | options
    return ChatOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120, **options)


def for_ollama(**options):
    options = {"model": model, "temperature": 0, "num_predict": 16} | options
    return ChatOllama(base_url=address, **options)


chats = (for_openai, for_ollama)


def questions_are_answered():
    for chat in chats:
        answer = chat().invoke(question)
        assert "Paris" in answer.content and answer.usage_metadata["output_tokens"] > 0, answer


def questions_are_answered_asynchronously():
    async def answered(chat):
        whole = (await chat.ainvoke(question)).content
        assert "Paris" in whole, chat
        assert "".join([piece.content async for piece in chat.astream(question)]) == whole, chat

    async def all_answered():
        await asyncio.gather(*[answered(chat()) for chat in chats])

    asyncio.run(all_answered())


def answers_are_streamed():
    for chat in chats:
        whole = chat().invoke(question).content
        streamed = list(chat().stream(question))
        assert len(streamed) > 2 and "".join(piece.content for piece in streamed) == whole, streamed


def questions_are_answered_in_batches():
    for chat in chats:
        answers = chat().batch([question, "What is the capital of Italy?"])
        assert "Paris" in answers[0].content and answers[1].content, answers


def a_tool_is_called():
    called = for_openai(max_tokens=60).bind_tools([clock], tool_choice="clock").invoke(question)
    (call,) = called.tool_calls
    assert call["name"] == "clock" and isinstance(call["args"]["city"], str), called
    told = [HumanMessage(question), called, ToolMessage(clock.invoke(call["args"]), tool_call_id=call["id"])]
    for chat in chats:
        assert chat().bind_tools([clock]).invoke(told).content


def forms_are_kept():
    for chat in (for_openai(max_tokens=60), for_ollama(num_predict=60)):
        city = chat.with_structured_output(City, method="json_schema").invoke(question)
        assert isinstance(city, City), city
    by_call = for_openai(max_tokens=60).with_structured_output(City, method="function_calling").invoke(question)
    assert isinstance(by_call, City), by_call


def texts_are_embedded():
    openai_embeddings = OpenAIEmbeddings(
        model=embedder, base_url=f"{address}/v1", api_key="none", check_embedding_ctx_length=False
    )
    for embeddings in (openai_embeddings, OllamaEmbeddings(model=embedder, base_url=address)):
        check_meaning(embeddings.embed_documents(texts))


def errors_are_typed():
    error = refused(openai.NotFoundError, lambda: for_openai(model="none").invoke(question))
    assert (error.code, error.param) == ("model_not_found", "model"), error
    error = refused(openai.BadRequestError, lambda: for_openai(temperature=-1).invoke(question))
    assert error.param == "temperature", error
    error = refused(openai.BadRequestError, lambda: for_openai().invoke("long " * 20000), "shorten it by")
    assert error.code == "context_length_exceeded", error
    error = refused(ollama.ResponseError, lambda: for_ollama(model="none").invoke(question), "not installed")
    assert error.status_code == 404, error
    error = refused(ollama.ResponseError, lambda: for_ollama(format=endless).invoke(question), "ever ends")
    assert error.status_code == 400, error


def answers_are_cancelled():
    for chat in (for_openai(max_tokens=4000), for_ollama(num_predict=4000)):
        with one_cancelled():
            stream = chat.stream(story)
            next(stream)
            stream.close()


run(
    questions_are_answered,
    questions_are_answered_asynchronously,
    answers_are_streamed,
    questions_are_answered_in_batches,
    a_tool_is_called,
    forms_are_kept,
    *([texts_are_embedded] if embedder else []),
    errors_are_typed,
    answers_are_cancelled,
)
