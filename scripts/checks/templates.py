"""Compares the prompts that hone makes of conversations with those of two other engines: see templates.sh.

Usage: templates.py write MODEL TEMPLATES FOLDER    copies of a GGUF file, one with each template
       templates.py compare ADDRESS TEMPLATES DIFFERENT
"""

import copy
import datetime
import json
import pathlib
import struct
import sys
import urllib.error
import urllib.request

from ggufdoctor.engines import jinja2_engine
from ggufdoctor.engines.llamacpp_engine import LlamaCppEngine

KEY = b"tokenizer.chat_template"
# The bytes of GGUF's numbers, by their types.
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TEXT, ARRAY = 8, 9


class Reader:
    """The header of a GGUF file (github.com/ggml-org/ggml, docs/gguf.md)."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (number,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return number

    def text(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def skip(self, kind):
        if kind == TEXT:
            self.text()
        elif kind == ARRAY:
            kind, length = self.number("I"), self.number("Q")
            if kind in WIDTHS:
                self.at += WIDTHS[kind] * length
            else:
                for _ in range(length):
                    self.skip(kind)
        else:
            self.at += WIDTHS[kind]


def parts(data):
    """The fields of a file but its template, the descriptions of its tensors, and their weights."""
    reader = Reader(data)
    reader.at = 8
    n_tensors, n_fields = reader.number("Q"), reader.number("Q")
    fields = []
    for _ in range(n_fields):
        begin = reader.at
        key = reader.text()
        reader.skip(reader.number("I"))
        if key != KEY:
            fields.append(data[begin : reader.at])
    begin = reader.at
    for _ in range(n_tensors):
        reader.text()
        n_dimensions = reader.number("I")
        reader.at += 8 * n_dimensions + 12
    return n_tensors, fields, data[begin : reader.at], data[aligned(reader.at) :]


def aligned(place):
    return -(-place // 32) * 32


def write(model, templates, folder):
    n_tensors, fields, tensors, weights = parts(pathlib.Path(model).read_bytes())
    for path in sorted(pathlib.Path(templates).glob("*.jinja")):
        template = path.read_bytes()
        field = struct.pack("<Q", len(KEY)) + KEY + struct.pack("<IQ", TEXT, len(template)) + template
        header = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(fields) + 1)
        head = header + b"".join(fields) + field + tensors
        head += bytes(aligned(len(head)) - len(head))
        (pathlib.Path(folder) / f"{path.stem.lower()}.gguf").write_bytes(head + weights)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city"}},
            "required": ["city"],
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


def call(number, city):
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"id": f"call{number:05}", "type": "function", "function": function}


def calls(content, *cities, **more):
    made = [call(number, city) for number, city in enumerate(cities)]
    return {"role": "assistant", "content": content, "tool_calls": made, **more}


def result(number, text):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "name": "get_weather", "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
CONVERSATIONS = {
    "plain": {"messages": [user("Hi"), {"role": "assistant", "content": "Hello!"}, user("Bye")]},
    "system": {"messages": [SYSTEM, user("Hi")]},
    "tools offered": {"messages": [user("Weather in Rome?")], "tools": [WEATHER]},
    "tool loop": {
        "messages": [SYSTEM, user("Weather in Rome?"), calls("", "Rome"), result(0, '{"degrees": 18}')],
        "tools": [WEATHER],
    },
    "parallel calls": {
        "messages": [user("Rome or Oslo?"), calls("", "Rome", "Oslo"), result(0, "18"), result(1, "4")],
        "tools": [WEATHER],
    },
    "reasoning": {
        "messages": [
            user("Weather in Rome?"),
            calls("", "Rome", reasoning_content="I look it up."),
            result(0, "18"),
            {"role": "assistant", "content": "18 degrees.", "reasoning_content": "It is warm."},
            user("And in words?"),
        ],
        "tools": [WEATHER],
    },
    "content null": {"messages": [user("Weather in Rome?"), calls(None, "Rome"), result(0, "18")], "tools": [WEATHER]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, user("Hi")]},
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " this?"}]}
        ]
    },
}


def get(address, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"error": error.read().decode()}


def variants(conversation):
    """The forms in which the others may be given a conversation."""
    conversation = copy.deepcopy(conversation)
    for message in conversation["messages"]:
        if isinstance(message["content"], list):
            message["content"] = "".join(part.get("text", "") for part in message["content"])
        if message["role"] == "developer":
            message["role"] = "system"
    yield conversation
    for change in (as_objects, without_content, with_all_names_of_reasoning, joined_system, without_ids):
        for known in list(change(conversation)):
            yield known


def changed(conversation, change):
    conversation = copy.deepcopy(conversation)
    for message in conversation["messages"]:
        change(message)
    return conversation


def as_objects(conversation):
    def change(message):
        for made in message.get("tool_calls", []):
            made["function"]["arguments"] = json.loads(made["function"]["arguments"])

    yield changed(conversation, change)


def without_content(conversation):
    def change(message):
        if message.get("tool_calls") and not message["content"]:
            message["content"] = None

    def empty(message):
        if message["content"] is None:
            message["content"] = ""

    for form in (change, empty):
        other = changed(conversation, form)
        yield other
        yield from as_objects(other)


def with_all_names_of_reasoning(conversation):
    def change(message):
        if "reasoning_content" in message:
            message["reasoning"] = message["thinking"] = message["reasoning_content"]

    def without(message):
        message.pop("reasoning_content", None)

    for form in (change, without):
        other = changed(conversation, form)
        yield other
        yield from as_objects(other)
        yield from without_content(other)


def joined_system(conversation):
    """For templates without a role for instructions: the user says them."""
    messages = conversation["messages"]
    if messages[0]["role"] == "system" and len(messages) > 1:
        first = {**messages[1], "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
        other = {**conversation, "messages": [first, *messages[2:]]}
        yield other
        yield from as_objects(other)
        yield from without_content(other)


def without_ids(conversation):
    def change(message):
        message.pop("name", None)

    other = changed(conversation, change)
    yield other
    yield from as_objects(other)
    yield from without_content(other)


def compare(address, folder, different):
    today = datetime.datetime.now(datetime.timezone.utc)
    jinja2_engine.PINNED_NOW = today
    engines = [jinja2_engine.Jinja2Engine(), LlamaCppEngine()]
    assert engines[1].available, engines[1].unavailable_reason
    properties = get(address, "/props")
    tokens = {"bos_token": properties["bos_token"], "eos_token": properties["eos_token"]}
    reasons = json.loads(pathlib.Path(different).read_text())
    known = {key for keys in reasons.values() for key in keys}
    wrong, equal, listed = [], 0, 0
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        template = path.read_text()
        for name, conversation in CONVERSATIONS.items():
            answer = get(address, "/apply-template", {"model": path.stem.lower(), **conversation})
            context = {"add_generation_prompt": True, **tokens}
            forms = {json.dumps(form): {**context, **form} for form in variants(conversation)}.values()
            peers = (engine.render(template, form) for engine in engines for form in forms)
            rendered = []
            is_equal = any(rendered.append(peer) or peer.text is not None and answer.get("prompt") == peer.text for peer in peers)
            key = f"{path.stem}: {name}"
            if is_equal and key not in known:
                equal += 1
            elif not is_equal and key in known:
                listed += 1
            else:
                wrong.append((key, answer, None if is_equal else rendered))
    for key, answer, rendered in wrong:
        if rendered is None:
            print(f"{key}: it is equal now; remove it from {different}")
            continue
        print(f"{key}:\n  hone: {json.dumps(answer, ensure_ascii=False)}")
        for peer in dict.fromkeys(json.dumps(peer.text or peer.error, ensure_ascii=False) for peer in rendered):
            print(f"  peer: {peer}")
    print(f"{equal} prompts are equal to a peer's, {listed} differ as listed, {len(wrong)} are wrong")
    sys.exit(1 if wrong else 0)


{"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
