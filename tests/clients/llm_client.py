"""The command `llm` and its Python API against hone: by its plugin for Ollama, and as a server that speaks OpenAI's API."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from checking import (
    City,
    address,
    check_city,
    check_meaning,
    embedder,
    model,
    one_cancelled,
    question,
    refused,
    run,
    story,
    texts,
)

# Both names are read when llm is imported.
folder = tempfile.TemporaryDirectory()
os.environ |= {"LLM_USER_PATH": folder.name, "OLLAMA_HOST": address}
pathlib.Path(folder.name, "extra-openai-models.yaml").write_text(
    f"""
- model_id: hone
  model_name: {model}
  api_base: {address}/v1
  can_stream: true
  supports_schema: true
  supports_tools: true
- model_id: unknown
  model_name: none
  api_base: {address}/v1
"""
)

import llm
import ollama
import openai

program = pathlib.Path(sys.executable).with_name("llm")
by_ollama = f"ollama/{model}"


def clock(city: str) -> str:
    """Tells the time in a city."""
    return f"12:00 in {city}"


def command(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)


def both_ways(n_tokens):
    """The models of both APIs, with the options for so many tokens."""
    yield llm.get_model("hone"), {"temperature": 0, "max_tokens": n_tokens}
    yield llm.get_model(by_ollama), {"temperature": 0, "num_predict": n_tokens}


def the_command_answers():
    for name, tokens in (("hone", "max_tokens"), (by_ollama, "num_predict")):
        said = command("-m", name, "-o", "temperature", "0", "-o", tokens, "16", question)
        assert said.returncode == 0 and "Paris" in said.stdout, said
    listed = command("models")
    assert by_ollama in listed.stdout, listed


def questions_are_answered():
    for chat, options in both_ways(16):
        assert "Paris" in chat.prompt(question, stream=False, **options).text(), chat
        pieces = list(chat.prompt(question, **options))
        assert len(pieces) > 2 and "Paris" in "".join(pieces), pieces


def conversations_continue():
    for chat, options in both_ways(16):
        conversation = chat.conversation()
        conversation.prompt(question, **options).text()
        assert conversation.prompt("Say it again.", **options).text(), chat


def forms_are_kept():
    for chat, options in both_ways(60):
        check_city(chat.prompt(question, schema=City, **options).text())


def tools_are_offered():
    for chat, options in both_ways(60):
        response = chat.prompt(question, tools=[clock], **options)
        assert response.text() or response.tool_calls(), response


def texts_are_embedded():
    check_meaning(list(llm.get_embedding_model(f"ollama/{embedder}").embed_multi(texts)))


def errors_are_typed():
    refused(openai.NotFoundError, lambda: llm.get_model("unknown").prompt(question).text(), "none")
    hone = llm.get_model("hone")
    error = refused(openai.BadRequestError, lambda: hone.prompt("long " * 20000).text(), "shorten it by")
    assert error.code == "context_length_exceeded", error
    refused(ollama.ResponseError, lambda: llm.get_model(by_ollama).prompt("long " * 20000).text(), "shorten it by")
    said = command("-m", "unknown", question)
    assert said.returncode == 1 and "none" in said.stderr, said


def answers_are_cancelled():
    for name, tokens in (("hone", "max_tokens"), (by_ollama, "num_predict")):
        asked = [program, "-m", name, "-o", tokens, "4000", story]
        with one_cancelled(), subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout.read(1)
            process.send_signal(signal.SIGINT)


run(
    the_command_answers,
    questions_are_answered,
    conversations_continue,
    forms_are_kept,
    tools_are_offered,
    *([texts_are_embedded] if embedder else []),
    errors_are_typed,
    answers_are_cancelled,
)
