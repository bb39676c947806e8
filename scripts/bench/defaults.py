#!/usr/bin/env python3
"""Fits the sampling of the built-in model on half of the 200 impersonal questions of benches/memory, and compares what was found
with what is shipped on the other half.

One setting after the other is varied, and the value with the most right answers is kept: the temperature, the instructions, the
repetition penalty, top_p. A value replaces the shipped one only if it has at least three more right answers of 100. Each run has three seeds. Then both
answer the other half. Memory and grades are off. Prints the right answers of every run, and the two-sided sign
test of the questions of the other half.

    scripts/bench.sh defaults [--hone target/release/hone]
"""

import argparse
import concurrent.futures
import json
import pathlib
import sys
import tempfile

from memory import DATA, MODEL, Home, matches, mcnemar, read

# Questions that are asked at once.
AT_ONCE = 8
MOST_TOKENS = 200
LEAST_GAIN = 3
SEEDS = [1, 2, 3]
GRID = {
    "temperature": [0, 0.2, 0.5, 0.8],
    "system": [
        None,
        "You are a helpful assistant.",
        "Answer correctly and briefly.",
        "You know many facts. Answer every question in one sentence.",
    ],
    "repetition_penalty": [1.0, 1.05, 1.1],
    "top_p": [0.9, 0.7, 1.0],
}
SHIPPED = {"temperature": 0.2, "system": None, "repetition_penalty": 1.0, "top_p": 0.9}


def answer(server, question, settings, seed):
    system = settings["system"]
    messages = [{"role": "system", "content": system}] if system else []
    body = {
        "model": MODEL,
        "messages": [*messages, {"role": "user", "content": question["question"]}],
        "max_tokens": MOST_TOKENS,
        "seed": seed,
        **{name: value for name, value in settings.items() if name != "system"},
    }
    said = json.loads(server.request("POST", "/v1/chat/completions", body))["choices"][0]["message"]["content"]
    return matches(said, question["answer"], question.get("wrong", []))


def right(server, questions, settings, seed):
    """Whether the answer to each question is right."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda question: answer(server, question, settings, seed), questions))


def fitted(server, questions):
    chosen = dict(SHIPPED)
    for name, values in GRID.items():
        counts = {}
        for value in values:
            settings = {**chosen, name: value}
            counts[value] = sum(sum(right(server, questions, settings, seed)) for seed in SEEDS) / len(SEEDS)
            print(f"{name} = {value}: {counts[value]:.1f} of {len(questions)}", flush=True)
        best = max(values, key=lambda value: counts[value])
        if counts[best] >= counts[chosen[name]] + LEAST_GAIN:
            chosen[name] = best
    return chosen


def compared(server, questions, settings):
    """How many answers to each question are right."""
    return [sum(answers) for answers in zip(*(right(server, questions, settings, seed) for seed in SEEDS))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hone", default="target/release/hone", help="the program")
    hone = str(pathlib.Path(parser.parse_args().hone).resolve())
    questions = read(DATA / "impersonal.jsonl")
    with tempfile.TemporaryDirectory() as folder, Home(hone, pathlib.Path(folder)).served(1, with_memory=False) as server:
        chosen = fitted(server, questions[::2])
        print(f"found: {json.dumps(chosen)}")
        others = questions[1::2]
        found, shipped = compared(server, others, chosen), compared(server, others, SHIPPED)
    # Answers to one question are much alike, so a question counts once.
    n_better, n_worse, p = mcnemar([(one > other, other > one) for one, other in zip(found, shipped)])
    print(f"of {len(SEEDS) * len(others)} answers to the other half: found {sum(found)} right, shipped {sum(shipped)} right")
    print(f"found is right more often for {n_better} questions, shipped for {n_worse}: p = {p:.3f}")


if __name__ == "__main__":
    sys.exit(main())
