#!/usr/bin/env python3
"""Measures what it costs that a worker answers: `hone serve` whose model a worker on the same machine has, beside one with the
model in its own process, in turn.

One client asks 60 short questions, one after the other; then 16 clients ask for longer answers at once. Prints the median time
of a short answer and the tokens per second of the 16 clients, and at the end the medians of their ratios.

    cargo build --release
    scripts/bench.sh elsewhere MODEL.gguf --bus nats://127.0.0.1:4222 [--hone target/release/hone] [--pairs 6]

`scripts/servers.sh start` starts a NATS server.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import tempfile

from remembering import CLIENTS, listening, speeds

NAME = "measured:model"


@contextlib.contextmanager
def home():
    """The environment of an empty home in which nothing is remembered or graded."""
    with tempfile.TemporaryDirectory() as folder:
        off = {"HONE_MEMORY_MODE": "off", "HONE_MEMORY_REMEMBER": "false", "HONE_CHAT_GRADE": "false"}
        yield {**os.environ, "HONE_HOME": folder, "HONE_OFFLINE": "1", **off}


@contextlib.contextmanager
def worker(arguments):
    """A worker that has the model."""
    with home() as environment:
        subprocess.run(
            [arguments.hone, "pull", arguments.model, "--name", NAME], env=environment, check=True, capture_output=True
        )
        command = [arguments.hone, "worker", "--roles", "generate", "--model", NAME, "--slots", str(CLIENTS)]
        command += ["--bus", arguments.bus]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            next(line for line in process.stderr if "Ctrl-C ends it" in line)
            try:
                yield
            finally:
                process.terminate()


def measure(arguments, is_elsewhere):
    """Milliseconds of a short answer, and the tokens per second of many clients."""
    with contextlib.ExitStack() as stack:
        environment = stack.enter_context(home())
        command = [arguments.hone, "serve", "--listen", "127.0.0.1:0"]
        if is_elsewhere:
            stack.enter_context(worker(arguments))
            command += ["--bus", arguments.bus, "--model", NAME]
        else:
            command += ["--model", arguments.model]
        return speeds(stack.enter_context(listening(command, environment)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--bus", required=True)
    parser.add_argument("--hone", default="target/release/hone")
    parser.add_argument("--pairs", type=int, default=6)
    arguments = parser.parse_args()
    figures = {True: [], False: []}
    for pair in range(arguments.pairs):
        for is_elsewhere in (pair % 2 == 0, pair % 2 == 1):
            milliseconds, speed = measure(arguments, is_elsewhere)
            figures[is_elsewhere].append((milliseconds, speed))
            who = "a worker" if is_elsewhere else "its own"
            print(f"{who:9} {milliseconds:6.1f} ms for a short answer, {speed:5.0f} tokens/s of {CLIENTS} clients", flush=True)
    for name, column in (("a short answer", 0), ("tokens per second", 1)):
        ratio = statistics.median(there[column] / here[column] for there, here in zip(figures[True], figures[False]))
        print(f"{name}: {ratio:.2f} x as with the model in the server (median of {arguments.pairs} pairs)")


if __name__ == "__main__":
    main()
