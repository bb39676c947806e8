"""The packages `ollama` and `openai` against hone: Ollama's API, and the same embeddings by both."""

import math
import time
import urllib.request

import ollama
import openai

from checking import (
    City,
    address,
    check_city,
    check_meaning,
    clock,
    embedder,
    endless,
    model,
    one_cancelled,
    refused,
    run,
    story,
    texts,
)

client = ollama.Client(host=address)


def models_are_described():
    names = [listed.model for listed in client.list().models]
    assert model in names, names
    for name in names:
        shown = client.show(name)
        assert shown.details.format in ("gguf", "safetensors"), shown.details
        assert shown.capabilities, name
    shown = client.show(model)
    assert shown.details.family and shown.details.parameter_size and shown.details.quantization_level, shown.details
    assert shown.modelinfo["general.parameter_count"] > 0
    assert shown.template


def questions_are_answered():
    options = {"temperature": 0, "num_predict": 16}
    question = [{"role": "user", "content": "In which city is the Eiffel Tower?"}]
    whole = client.chat(model=model, messages=question, options=options)
    assert whole.message.role == "assistant" and whole.message.content, whole
    assert whole.done and whole.eval_count > 0 and whole.eval_duration > 0, whole
    pieces = list(client.chat(model=model, messages=question, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].done_reason in ("stop", "length")
    said = client.generate(model=model, prompt="Say hello.", options=options, system="Be brief.")
    assert said.response and said.done, said
    said = client.generate(model=model, prompt="The capital of France is", options=options, raw=True)
    assert said.response, said


def forms_are_kept():
    options = {"temperature": 0, "num_predict": 60}
    turns = [{"role": "user", "content": "In which city is the Eiffel Tower?"}]
    check_city(client.chat(model=model, messages=turns, options=options, format=City.model_json_schema()).message.content)
    prompt = "The capital of France, as JSON"
    check_city(client.generate(model=model, prompt=prompt, options=options, format=City.model_json_schema()).response)


def tools_are_offered():
    turns = [{"role": "user", "content": "What time is it in Paris?"}]
    options = {"temperature": 0, "num_predict": 60}
    said = client.chat(model=model, messages=turns, tools=[clock], options=options).message
    assert said.content or said.tool_calls, said
    call = {"function": {"name": "clock", "arguments": {"city": "Paris"}}}
    turns += [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "12:00", "tool_name": "clock"}]
    assert client.chat(model=model, messages=turns, tools=[clock], options=options).message.content


def models_are_loaded_and_unloaded():
    loaded = client.generate(model=model)
    assert loaded.done_reason == "load", loaded
    assert client.chat(model=model, messages=[], keep_alive="5m").done_reason == "load"
    unload(model)
    assert client.chat(model=model, messages=[]).done_reason == "load"
    running = client.ps().models
    assert model in [loaded.model for loaded in running], running
    assert running[0].size > 0 and running[0].expires_at, running


def unload(name):
    """Unloads a model. hone may load it again, to find out what an earlier answer is about."""
    deadline = time.monotonic() + 60
    while name in [loaded.model for loaded in client.ps().models]:
        assert time.monotonic() < deadline, "the model stays in memory"
        assert client.chat(model=name, messages=[], keep_alive=0).done_reason == "unload"
        time.sleep(0.1)


def models_are_copied_and_deleted():
    client.copy(model, "copied:1")
    assert "copied:1" in [listed.model for listed in client.list().models]
    assert client.show("copied:1").modelinfo == client.show(model).modelinfo
    question = [{"role": "user", "content": "In which city is the Eiffel Tower?"}]
    answer = client.chat(model="copied:1", messages=question, options={"temperature": 0, "num_predict": 16})
    assert "Paris" in answer.message.content, answer
    check_refused(409, lambda: client.copy(model, "copied:1"))
    delete_once_unused("copied:1")
    check_refused(404, lambda: client.show("copied:1"))
    assert client.show(model)


def delete_once_unused(name):
    for _ in range(10):
        unload(name)
        try:
            return client.delete(name)
        except ollama.ResponseError as error:
            assert error.status_code == 409, error
    raise AssertionError("the model stays in use")


def check_refused(status, ask):
    error = refused(ollama.ResponseError, ask)
    assert error.status_code == status, (error.status_code, error)


def errors_are_typed():
    turns = [{"role": "user", "content": "Hi"}]
    check_refused(404, lambda: client.show("none"))
    check_refused(404, lambda: client.delete("none"))
    check_refused(404, lambda: client.chat(model="none", messages=turns))
    check_refused(404, lambda: client.copy("none", "other"))
    check_refused(400, lambda: client.copy(model, "../other"))
    check_refused(400, lambda: client.copy(model, "smollm2:360m"))
    check_refused(400, lambda: client.chat(model=model, messages=turns, format=endless))
    check_refused(400, lambda: client.chat(model=model, messages=[{"role": "user", "content": "long " * 20000}]))
    check_refused(409, lambda: client.delete(model))
    check_refused(404, lambda: client.pull("/etc/passwd"))
    check_refused(404, lambda: client.pull("../../x", stream=False))


def an_answer_is_cancelled():
    with one_cancelled():
        turns = [{"role": "user", "content": story}]
        stream = client.chat(model=model, messages=turns, options={"num_predict": 4000}, stream=True)
        next(stream)
        stream.close()


def texts_are_embedded():
    openai_client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    made = openai_client.embeddings.create(model=embedder, input=texts)
    # The package asks for base64 and decodes it; floats must be the same.
    floats = openai_client.embeddings.create(model=made.model, input=texts, encoding_format="float")
    for one, other in zip(made.data, floats.data):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding))
        assert abs(math.hypot(*one.embedding) - 1) < 1e-4
    assert made.usage.prompt_tokens > 10, made.usage
    short = openai_client.embeddings.create(model=made.model, input="cat", dimensions=8)
    assert len(short.data[0].embedding) == 8 and abs(math.hypot(*short.data[0].embedding) - 1) < 1e-4
    check_meaning([one.embedding for one in made.data])
    embedded = client.embed(model=made.model, input=texts)
    assert len(embedded.embeddings) == 3 and embedded.prompt_eval_count == made.usage.prompt_tokens, embedded
    assert abs(embedded.embeddings[0][0] - floats.data[0].embedding[0]) < 1e-6
    assert len(client.embeddings(model=made.model, prompt="cat").embedding) == len(floats.data[0].embedding)


def probes_answer():
    for path in ("/healthz", "/readyz", "/metrics", "/api/version"):
        with urllib.request.urlopen(f"{address}{path}") as answer:
            assert answer.status == 200, path
            text = answer.read().decode()
        if path == "/metrics":
            assert 'hone_http_requests_total{path="/api/chat",status="200"}' in text and text.endswith("# EOF\n")
    probe = urllib.request.Request(f"{address}/", method="HEAD")
    assert urllib.request.urlopen(probe).status == 200


run(
    models_are_described,
    models_are_loaded_and_unloaded,
    questions_are_answered,
    forms_are_kept,
    tools_are_offered,
    models_are_copied_and_deleted,
    errors_are_typed,
    an_answer_is_cancelled,
    texts_are_embedded,
    probes_answer,
)
