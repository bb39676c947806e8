#!/usr/bin/env python3
"""Compares hone's portable kernels with candle on this processor, and prints medians and ratios as a Markdown table.

Both are compiled for every processor of this architecture: on x86-64 they have the 128 bits of SSE2, whatever the machine
has, as on a processor without AVX. There is one exception: for prompts of 64 tokens and more candle multiplies floating-point
matrices, with the widest instructions that it finds when it runs (AVX-512, AVX2). Those prompts are measured, too, and marked.
The engines take turns on the same file, with the same number of threads.

    cargo build --release
    scripts/bench.sh portable MODEL.gguf [--hone target/release/hone] [--threads N] [--turns 3]
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess

# The name of a test, its arguments, and whether candle's matrix products choose their instructions.
TESTS = [
    ("prompt of 32", ["-p", "32", "-n", "0"], False),
    ("64 generated", ["-p", "0", "-n", "64"], False),
    ("prompt of 512", ["-p", "512", "-n", "0"], True),
]
ENGINES = {
    "portable": ["--backend", "native"],
    "candle": ["--backend", "candle"],
}


def measure(options, engine, test):
    """The speeds of one turn, tokens per second, and the processor's name."""
    command = [options.hone, "bench", "-m", options.model, "-t", str(options.threads), "-r", "3", "--json"]
    environment = {**os.environ, "HONE_ENGINE_INSTRUCTION_SET": "portable"}
    done = subprocess.run([*command, *ENGINES[engine], *test], env=environment, check=True, stdout=subprocess.PIPE)
    [row] = json.loads(done.stdout)
    return row["samples"], row["processor"]


def cell(speeds):
    return f"{statistics.median(speeds):.1f} ({min(speeds):.1f}–{max(speeds):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--hone", default="target/release/hone")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    rows, processor = [], ""
    for name, test, chooses in TESTS:
        speeds = {engine: [] for engine in ENGINES}
        for _ in range(options.turns):
            for engine in ENGINES:
                samples, processor = measure(options, engine, test)
                speeds[engine] += samples
        ratio = statistics.median(speeds["portable"]) / statistics.median(speeds["candle"])
        note = ", where candle uses all of the processor" if chooses else ""
        rows.append(f"| {name}{note} | {cell(speeds['portable'])} | {cell(speeds['candle'])} | {ratio:.2f} |")
    day = datetime.datetime.now(datetime.timezone.utc).date()
    print(f"{processor}, {options.threads} threads, {day}; tokens per second, median (min–max)\n")
    print("| test | portable | candle | portable / candle |\n| --- | --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
