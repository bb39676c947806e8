"""What the scripts of all Python clients share. Arguments of each: the server's address and a model."""

import base64
import contextlib
import json
import pathlib
import sys
import time
import urllib.request

from pydantic import BaseModel, ConfigDict, Field

address = sys.argv[1].rstrip("/")
model = sys.argv[2]
# The name of the server's embedder; empty if it has none.
embedder = sys.argv[3] if len(sys.argv) > 3 else ""

question = "In which city is the Eiffel Tower?"
story = "Tell me a very long story."
turns = [{"role": "user", "content": question}]
texts = ["The cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again."]


class Form(BaseModel):
    """An object of just these keys, which a small model completes."""

    model_config = ConfigDict(extra="forbid")


class City(Form):
    """A city, as JSON."""

    city: str = Field(max_length=20)


# A PDF with a page that says when a mill was built, as base64, and a question about it.
mill = base64.b64encode((pathlib.Path(__file__).parents[1] / "data/mill.pdf").read_bytes()).decode()
about_mill = "In which year was the mill built?"

clock = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time in a city",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
    },
}


def nested(depth):
    """A schema of objects inside each other."""
    link = lambda number: {"type": "object", "properties": {"next": {"$ref": f"#/$defs/{number + 1}"}}}
    definitions = {str(number): link(number) for number in range(depth)}
    return {"$defs": definitions | {str(depth): {"type": "null"}}, "$ref": "#/$defs/0"}


# A schema whose texts would never end.
endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}


def check_city(text):
    assert isinstance(json.loads(text)["city"], str), text


def check_meaning(vectors):
    """Vectors of the texts: the first two say the same."""
    same, other = (sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors[1:])
    assert len(vectors) == 3 and same > other + 0.2, (same, other)


def refused(kind, ask, *words):
    """Checks that asking ends with the client's own exception, and returns it."""
    try:
        ask()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, (missing, error)
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def figures(name, label=""):
    """The sum of a figure of /metrics over the lines with a label."""
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and label in line)


@contextlib.contextmanager
def one_cancelled():
    """Checks that the client goes away from exactly one answer, which ends by that, and that nothing runs then."""
    label = 'outcome="cancelled"'
    before = figures("hone_answers_total", label)
    yield
    deadline = time.monotonic() + 60
    while figures("hone_questions_in_progress") > 0 or figures("hone_answers_total", label) == before:
        assert time.monotonic() < deadline, "the answer goes on, or has ended by itself"
        time.sleep(0.05)
    assert figures("hone_answers_total", label) == before + 1


def run(*checks):
    """Runs the checks, and prints a line for each."""
    for check in checks:
        check()
        print(f"ok {check.__name__}", flush=True)
