#!/usr/bin/env python3
"""Counts the instructions that hone's portable kernels and candle execute per token on a processor without fast kernels, under an
emulator: exact numbers of executed instructions, and no speed. Prints a Markdown table.

The processor is an x86-64 without AVX, so that nothing can choose wider instructions when it runs. (On 64-bit ARM without dotprod
candle runs no model.) One thread computes; a test runs once and twice, and the difference counts, without what happens once. Needs
a C compiler and qemu-x86_64; takes twenty minutes.

    cargo build --release
    scripts/bench.sh portable-instructions MODEL.gguf [--profile release]
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

PROCESSOR = "Nehalem"
# The name of a test, its number of tokens, and its arguments.
TESTS = [
    ("prompt of 64", 64, ["-p", "64", "-n", "0"]),
    ("16 generated", 16, ["-p", "0", "-n", "16"]),
]


def count(command, folder, repetitions):
    # hone restarts itself for candle if this variable says anything else, and would then run without the emulator.
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "HONE_HOME": folder}
    command = [*command, "--threads", "1", "--repetitions", str(repetitions), "--own-engine"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return int(re.search(r"instructions: (\d+)", done.stderr)[1])


def per_token(emulator, hone, options, backend, test, folder):
    """Millions of instructions per token."""
    _, n_tokens, arguments = test
    command = [*emulator, hone, "bench", "--model", options.model, "--backend", backend, *arguments]
    return (count(command, folder, 2) - count(command, folder, 1)) / n_tokens / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--profile", default="release")
    options = parser.parse_args()
    print("| processor | test | portable | candle | portable / candle |\n| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plugin = f"{folder}/plugin.so"
        source = pathlib.Path(__file__).parent / "instructions/plugin.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
        emulator = ["qemu-x86_64", "-cpu", PROCESSOR, "-plugin", plugin, "-d", "plugin"]
        hone = pathlib.Path("target") / ("debug" if options.profile == "dev" else options.profile) / "hone"
        for test in TESTS:
            native, candle = (per_token(emulator, hone, options, each, test, folder) for each in ("native", "candle"))
            print(f"| {PROCESSOR} | {test[0]} | {native:.0f} | {candle:.0f} | {native / candle:.2f} |", flush=True)


if __name__ == "__main__":
    main()
