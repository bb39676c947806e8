#!/usr/bin/env python3
"""Measures what remembering costs: `hone serve` that remembers every answer before its client hears of it, and finds it by its
meaning later, beside one without memory, in turn.

One client asks 60 short questions, one after the other; then 16 clients ask for longer answers at once. Prints the median time
of a short answer and the tokens per second of the 16 clients, and at the end the medians and their ratios.

    cargo build --release
    scripts/bench.sh remembering MODEL.gguf EMBEDDER [--hone target/release/hone] [--pairs 4] [--store postgres://...]

EMBEDDER is a folder or file, as `memory.embedder` takes it. With --store, what is remembered goes into that database.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

CLIENTS = 16
QUESTIONS_EACH = 4


@contextlib.contextmanager
def server(arguments, remembers):
    """The address of a server in an empty home."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HONE_HOME": home, "HONE_OFFLINE": "1", "HONE_MEMORY_EMBEDDER": str(arguments.embedder)}
        if not remembers:
            environment["HONE_MEMORY_MODE"] = "off"
            environment["HONE_MEMORY_REMEMBER"] = "false"
        command = [arguments.hone, "serve", "--listen", "127.0.0.1:0", "--model", arguments.model]
        if remembers and arguments.store:
            command += ["--store", arguments.store]
        with listening(command, environment) as address:
            yield address


@contextlib.contextmanager
def listening(command, environment):
    """The address of a server that this command starts."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        addresses = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout)
        address = next(found[0] for found in addresses if found)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        try:
            yield address
        finally:
            process.terminate()


def ask(address, question, tokens):
    """Seconds until the whole answer, and its tokens."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": tokens, "temperature": 0.8, "seed": 1}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    begin = time.perf_counter()
    with urllib.request.urlopen(request) as response:
        answer = json.load(response)
    return time.perf_counter() - begin, answer["usage"]["completion_tokens"]


def speeds(address):
    """Milliseconds of a short answer of a server, and the tokens per second of many clients."""
    ask(address, "Hello.", 8)
    short = [ask(address, f"Say one word about the number {number}.", 8)[0] for number in range(60)]

    def client(number):
        stories = (f"Tell client {number} a story, number {turn}." for turn in range(QUESTIONS_EACH))
        return sum(ask(address, story, 96)[1] for story in stories)

    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        tokens = sum(clients.map(client, range(CLIENTS)))
    return 1000 * statistics.median(short), tokens / (time.perf_counter() - begin)


def measure(arguments, remembers):
    """The speeds of a server that remembers, or does not."""
    with server(arguments, remembers) as address:
        return speeds(address)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("embedder", type=pathlib.Path)
    parser.add_argument("--hone", default="target/release/hone")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--store")
    arguments = parser.parse_args()
    arguments.embedder = arguments.embedder.resolve()
    figures = {True: [], False: []}
    for pair in range(arguments.pairs):
        for remembers in (pair % 2 == 0, pair % 2 == 1):
            milliseconds, speed = measure(arguments, remembers)
            figures[remembers].append((milliseconds, speed))
            how = "remembers" if remembers else "does not"
            print(f"{how:10} {milliseconds:6.1f} ms for a short answer, {speed:5.0f} tokens/s of {CLIENTS} clients", flush=True)
    for name, column in (("a short answer", 0), ("tokens per second", 1)):
        ratio = statistics.median(with_[column] / without[column] for with_, without in zip(figures[True], figures[False]))
        print(f"{name}: {ratio:.2f} x as without memory (median of {arguments.pairs} pairs)")


if __name__ == "__main__":
    main()
