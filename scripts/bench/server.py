#!/usr/bin/env python3
"""Compares `hone serve` with llama-server under concurrent clients, and measures what HTTP adds to an answer.

Both servers run on the same file with the same number of threads, in turn, twice each. Every client asks a question of its own for
an answer of 128 tokens, streamed, and asks the next one when it has it. Reported are tokens per second of all clients together,
the time to the first token, and for hone with one client: how much later than in the engine the first token and every further one
arrive. hone computes on the processor, or where HONE_ENGINE_DEVICE says.

    scripts/bench.sh server MODEL.gguf [--hone target/release/hone] [--llama-server PATH] [--clients 16] [--json]

With --crowd, without a model: how long a thousand clients that ask at once wait at worst (99th percentile), alone and beside a
hundred that read slowly and two hundred that go away, in turn. The model is scripted, so that the server is measured.

    scripts/bench.sh server --crowd [--json]
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

QUESTIONS_EACH = 3


class Server:
    """A server process that listens on a port of its own."""

    def __init__(self, name, command, environment=None):
        self.name = name
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(environment or {})})

    def wait(self, address):
        """Waits until it listens; `address` finds the port in what it prints."""
        for _ in range(600):
            text = open(self.log.name).read()
            if found := re.search(address, text):
                return found[1]
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended:\n{text}")
            time.sleep(0.1)
        sys.exit(f"{self.name} does not listen:\n{text}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


async def post(port, path, body):
    """Posts a body and yields the lines of the answer with the moments of their arrival."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    status = (await reader.readline()).split()[1]
    if status != b"200":
        raise RuntimeError((await reader.read()).decode())
    while line := await reader.readline():
        yield line, time.perf_counter()
    writer.close()


async def ask(port, number, tokens):
    """One answer: seconds to its first token, and its tokens."""
    body = {
        "messages": [{"role": "user", "content": f"Write a long story about the number {number}."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": tokens,
        "temperature": 0.7,
        "seed": number,
    }
    begin, first, written = time.perf_counter(), None, 0
    async for line, now in post(port, "/v1/chat/completions", body):
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if first is None and any(choice["delta"].get("content") for choice in event["choices"]):
            first = now - begin
        if event.get("usage"):
            written = event["usage"]["completion_tokens"]
    return first, written


async def load(port, clients, tokens):
    """Tokens per second of all clients together, and the seconds to the first token of every answer."""

    async def client(number):
        return [await ask(port, number * QUESTIONS_EACH + turn, tokens) for turn in range(QUESTIONS_EACH)]

    await ask(port, 9999, tokens)
    begin = time.perf_counter()
    answers = [answer for told in await asyncio.gather(*map(client, range(clients))) for answer in told]
    seconds = time.perf_counter() - begin
    return sum(written for _, written in answers) / seconds, [first for first, _ in answers]


async def overhead(port, tokens):
    """What HTTP adds to the first token and to each further one, in milliseconds: what the client sees less what the engine took."""
    firsts, others = [], []
    for number in range(12):
        body = {
            "messages": [{"role": "user", "content": f"Write a long story about the number {number}."}],
            "options": {"num_predict": tokens, "temperature": 0},
        }
        begin, first, last, engine = time.perf_counter(), None, None, None
        async for line, now in post(port, "/api/chat", body):
            if not line.startswith(b"{"):
                continue
            event = json.loads(line)
            if event["done"]:
                engine = event
            elif event["message"]["content"]:
                first = first or now
                last = now
        in_engine = engine["load_duration"] + engine["prompt_eval_duration"]
        firsts.append((first - begin) * 1e3 - in_engine / 1e6)
        others.append(((last - first) * 1e3 - engine["eval_duration"] / 1e6) / engine["eval_count"])
    return statistics.median(firsts[2:]), statistics.median(others[2:])


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def start_hone(arguments, home):
    command = [arguments.hone, "serve", "--listen", "127.0.0.1:0", "--no-grade", "--model", arguments.model]
    server = Server("hone", command + ["--threads", str(arguments.threads)], {"HONE_HOME": home})
    return server, int(server.wait(r"http://127\.0\.0\.1:(\d+)"))


def start_llama(arguments, port):
    n = arguments.clients
    command = [arguments.llama_server, "-m", arguments.model, "-t", str(arguments.threads), "-np", str(n), "-c", str(1024 * n)]
    server = Server("llama-server", command + ["--host", "127.0.0.1", "--port", str(port)])
    server.wait(r"(listening on http)")
    return server, port


def crowd(arguments):
    """How long live clients wait beside slow and vanishing ones, compared with alone."""
    test = ["--test", "it", "--", "--ignored", "--nocapture", "--exact", "crowd::live_clients_beside_slow_and_vanishing_ones"]
    command = ["cargo", "test", "--locked", "--quiet", "-p", "hone-server", *test]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    if arguments.json:
        print(json.dumps(figures))
        return
    medians = {name: statistics.median(figures[name]) for name in ("alone_ms", "beside_ms")}
    print("| 1000 clients at once | p99 of each turn, ms | median, ms |\n| --- | --- | --- |")
    for name, title in [("alone_ms", "alone"), ("beside_ms", "beside 100 slow readers and 200 that go away")]:
        print(f"| {title} | {', '.join(f'{wait:.0f}' for wait in figures[name])} | {medians[name]:.0f} |")
    print(f"\nbeside / alone: {medians['beside_ms'] / medians['alone_ms']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--crowd", action="store_true", help="measure the server with a scripted model")
    parser.add_argument("--hone", default="target/release/hone")
    parser.add_argument("--llama-server", help="without it, only hone is measured")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--turns", type=int, default=2, help="of each server")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--port", type=int, default=18435, help="where llama-server listens")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.crowd:
        return crowd(arguments)
    if not arguments.model:
        parser.error("a model is needed, or --crowd")
    speeds, firsts, added = {}, {}, []
    for _ in range(arguments.turns):
        with tempfile.TemporaryDirectory() as home:
            server, port = start_hone(arguments, home)
            speed, first = asyncio.run(load(port, arguments.clients, arguments.tokens))
            added.append(asyncio.run(overhead(port, arguments.tokens)))
            server.stop()
        speeds.setdefault("hone", []).append(speed)
        firsts.setdefault("hone", []).extend(first)
        if arguments.llama_server:
            server, port = start_llama(arguments, arguments.port)
            speed, first = asyncio.run(load(port, arguments.clients, arguments.tokens))
            server.stop()
            speeds.setdefault("llama-server", []).append(speed)
            firsts.setdefault("llama-server", []).extend(first)
    figures = {
        name: {
            "tokens_per_second": speeds[name],
            "first_token_p50_ms": quantile(firsts[name], 0.5) * 1e3,
            "first_token_p95_ms": quantile(firsts[name], 0.95) * 1e3,
        }
        for name in speeds
    }
    figures["hone"]["added_to_first_token_ms"] = min(first for first, _ in added)
    figures["hone"]["added_per_token_ms"] = min(other for _, other in added)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{arguments.clients} clients, {arguments.tokens} tokens an answer, {arguments.threads} threads\n")
    print("| server | tokens/s, each turn | first token p50 / p95, ms |\n| --- | --- | --- |")
    for name, figure in figures.items():
        turns = ", ".join(f"{speed:.0f}" for speed in figure["tokens_per_second"])
        print(f"| {name} | {turns} | {figure['first_token_p50_ms']:.0f} / {figure['first_token_p95_ms']:.0f} |")
    if "llama-server" in speeds:
        print(f"\nhone / llama-server: {statistics.median(speeds['hone']) / statistics.median(speeds['llama-server']):.2f}")
    hone = figures["hone"]
    print(f"HTTP adds {hone['added_to_first_token_ms']:.2f} ms to the first token and {hone['added_per_token_ms']:.3f} ms to each other")


if __name__ == "__main__":
    main()
