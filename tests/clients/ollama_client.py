"""Asks a running `hone serve` through the packages `ollama` and `openai`; takes the server's address.

    python tests/clients/ollama_client.py http://127.0.0.1:11435

The server needs a model that answers; what is asked of an embedder is left out, and said so, where none is installed.
"""

import json
import math
import sys
import time
import urllib.request

import ollama
import openai


def check_models(client):
    names = [model.model for model in client.list().models]
    assert names, "no model is installed"
    for name in names:
        shown = client.show(name)
        assert shown.details.format in ("gguf", "safetensors"), shown.details
        assert shown.capabilities, name
    name = next(name for name in names if "completion" in client.show(name).capabilities)
    shown = client.show(name)
    assert shown.details.family and shown.details.parameter_size and shown.details.quantization_level, shown.details
    assert shown.modelinfo["general.parameter_count"] > 0
    assert shown.template
    return name


def check_answers(client, name):
    options = {"temperature": 0, "num_predict": 16}
    question = [{"role": "user", "content": "What is the capital of France?"}]
    whole = client.chat(model=name, messages=question, options=options)
    assert whole.message.role == "assistant" and whole.message.content, whole
    assert whole.done and whole.eval_count > 0 and whole.eval_duration > 0, whole
    pieces = list(client.chat(model=name, messages=question, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].done_reason in ("stop", "length")
    said = client.generate(model=name, prompt="Say hello.", options=options, system="Be brief.")
    assert said.response and said.done, said
    said = client.generate(model=name, prompt="The capital of France is", options=options, raw=True)
    assert said.response, said
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    formed = client.chat(model=name, messages=question, options={"temperature": 0, "num_predict": 40}, format=schema)
    assert json.loads(formed.message.content)["city"] in ("Paris", "Rome"), formed


def check_memory(client, name):
    loaded = client.generate(model=name)
    assert loaded.done_reason == "load", loaded
    assert client.chat(model=name, messages=[], keep_alive="5m").done_reason == "load"
    assert client.chat(model=name, messages=[], keep_alive=0).done_reason == "unload"
    # hone may still look for what an earlier answer is about.
    deadline = time.monotonic() + 60
    while client.ps().models:
        assert time.monotonic() < deadline, "the model stays in memory"
        time.sleep(0.1)
    assert client.chat(model=name, messages=[]).done_reason == "load"
    running = client.ps().models
    assert name in [model.model for model in running], running
    assert running[0].size > 0 and running[0].expires_at, running


def check_refusals(client, name):
    def refused(status, ask):
        try:
            ask()
        except ollama.ResponseError as error:
            assert error.status_code == status, (error.status_code, error)
            return
        raise AssertionError(f"{status} was expected")

    refused(404, lambda: client.show("none"))
    refused(404, lambda: client.delete("none"))
    refused(404, lambda: client.chat(model="none", messages=[{"role": "user", "content": "Hi"}]))
    refused(409, lambda: client.delete(name))
    refused(501, lambda: client.copy(name, "other"))
    refused(404, lambda: client.pull("/etc/passwd"))
    refused(404, lambda: client.pull("../../x", stream=False))


def check_embeddings(address, client):
    openai_client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    texts = ["The cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again."]
    try:
        made = openai_client.embeddings.create(model="", input=texts)
    except openai.NotFoundError as error:
        assert "hone pull" in str(error), error
        print("no embedder is installed: embeddings are not checked", file=sys.stderr)
        return
    # The package asks for base64 and decodes it; floats must be the same.
    floats = openai_client.embeddings.create(model=made.model, input=texts, encoding_format="float")
    for one, other in zip(made.data, floats.data):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding))
        assert abs(math.hypot(*one.embedding) - 1) < 1e-4
    assert made.usage.prompt_tokens > 10, made.usage
    short = openai_client.embeddings.create(model=made.model, input="cat", dimensions=8)
    assert len(short.data[0].embedding) == 8 and abs(math.hypot(*short.data[0].embedding) - 1) < 1e-4
    cosine = lambda a, b: sum(x * y for x, y in zip(a.embedding, b.embedding))
    assert cosine(made.data[0], made.data[1]) > cosine(made.data[0], made.data[2]) + 0.2
    embedded = client.embed(model=made.model, input=texts)
    assert len(embedded.embeddings) == 3 and embedded.prompt_eval_count == made.usage.prompt_tokens, embedded
    assert abs(embedded.embeddings[0][0] - floats.data[0].embedding[0]) < 1e-6
    assert len(client.embeddings(model=made.model, prompt="cat").embedding) == len(floats.data[0].embedding)


def check_probes(address):
    for path in ("/healthz", "/readyz", "/metrics", "/api/version"):
        with urllib.request.urlopen(f"{address}{path}") as answer:
            assert answer.status == 200, path
            text = answer.read().decode()
        if path == "/metrics":
            assert 'hone_http_requests_total{path="/api/chat",status="200"}' in text and text.endswith("# EOF\n")
    probe = urllib.request.Request(f"{address}/", method="HEAD")
    assert urllib.request.urlopen(probe).status == 200


def main():
    address = sys.argv[1].rstrip("/")
    client = ollama.Client(host=address)
    name = check_models(client)
    check_memory(client, name)
    check_answers(client, name)
    check_refusals(client, name)
    check_embeddings(address, client)
    check_probes(address)
    print("the ollama package and hone understand each other")


if __name__ == "__main__":
    main()
