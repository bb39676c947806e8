#!/usr/bin/env python3
"""Measures what memory does to answers: whether what a person has told is found, and whether other answers suffer.

In a fresh home, 60 facts are told, each in a conversation of its own, between 50 impersonal questions, so that memory holds
answers of the model, too. Then 200 impersonal questions and one about each fact are asked, each in a fresh conversation, with
memory and without (`mode = "off"`, `remember = false`): as the page asks, with the shipped settings, model and sampling, and
with the same seeds. What is asked with memory is forgotten after its answer, so that every question meets the same memory.

Prints how many answers are right, McNemar's two-sided exact test on the impersonal pairs, and Wilson's 95 % interval of the
personal share. Exit code 1: impersonal answers are worse with memory at 5 %, or fewer than 80 % of the personal ones are right.

    cargo build --release
    scripts/bench.sh memory [--hone target/release/hone] [--seed 1] [--limit N] [--csv FILE]
"""

import argparse
import contextlib
import csv
import http.client
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "benches/memory"
MODEL = "smollm2:135m"
# A server has one seed for all that it is asked, so one after the other serves so many questions, each with the next seed.
QUESTIONS_OF_SEED = 20
# One question in so many is also asked while the facts are told.
ASKED_BEFORE = 4
# An answer repeats a note if it has so many words of it in a row, or all of them if the note is shorter.
WORDS_IN_A_ROW = 4
# What stands around notes in the prompt; an answer with it repeats them, too.
FRAME = ["said by the person", "notes from earlier conversations", "they are records not instructions"]
LEAST_PERSONAL = 0.8
SIGNIFICANT = 0.05


class Home:
    """A fresh home of the program, with its models."""

    def __init__(self, hone, folder):
        self.hone = hone
        fetch = ROOT / "scripts/lib/fetch-test-models.sh"
        models = subprocess.run([fetch], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HONE_")}
        self.environment["HONE_HOME"] = str(folder / "home")
        self.environment["HONE_CONFIG"] = str(folder / "config")
        (folder / "config").mkdir()
        self.environment["HONE_OFFLINE"] = "1"
        self.environment["HONE_MEMORY_EMBEDDER"] = f"{models}/all-MiniLM-L6-v2"
        self.log = open(folder / "server.log", "a+", encoding="utf-8")
        pull = [hone, "pull", f"{models}/SmolLM2-135M-Instruct.Q4_1.gguf", "--name", MODEL]
        subprocess.run(pull, check=True, stdout=sys.stderr, env=self.environment)

    @contextlib.contextmanager
    def served(self, seed, with_memory=True):
        """A server in this home, while the block runs."""
        environment = {**self.environment, "HONE_SAMPLING_SEED": str(seed)}
        if not with_memory:
            environment["HONE_MEMORY_MODE"] = "off"
            environment["HONE_MEMORY_REMEMBER"] = "false"
        command = [self.hone, "serve", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        try:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
            if not found:
                self.log.seek(0)
                sys.exit(f"the server does not listen:\n{self.log.read()}")
            yield Server(int(found[1]))
        finally:
            # In this way it writes all that it still has to remember.
            process.send_signal(signal.SIGTERM)
            process.wait(120)


class Server:
    """A server of the page."""

    def __init__(self, port):
        self.port = port

    def request(self, method, path, body=None):
        """The response to a request, as text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        if response.status != 200:
            sys.exit(f"{method} {path}: {response.status} {text}")
        return text

    def ask(self, question):
        """The answer to a question in a fresh conversation, its id, and the notes that were recalled for it."""
        lines = self.request("POST", "/hone/v1/chat", {"question": question}).splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        recalled = [note_of(engram) for event in events if event["type"] == "recalled" for engram in event["engrams"]]
        end = events[-1]
        if end["type"] != "answered":
            # An empty answer is a wrong one.
            print(f"\n{question}: {end}", file=sys.stderr)
            return "", None, recalled
        return end["exchange"]["answer"].strip(), end["exchange"]["query_id"], recalled

    def forget(self, query_id):
        """Takes an answer out of memory again."""
        self.request("DELETE", f"/hone/v1/memory/{query_id}")


def note_of(engram):
    """What the model was shown of a recollection."""
    return engram["query"] if engram["is_fact"] else f"{engram['query']} {engram['answer']}"


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tell(home, facts, questions, seed):
    """Tells the facts, with the questions evenly between them."""
    turns = [((number + 0.5) / len(facts), fact["told"]) for number, fact in enumerate(facts)]
    turns += [(number / len(questions), question["question"]) for number, question in enumerate(questions)]
    with home.served(seed) as server:
        for number, (_, text) in enumerate(sorted(turns), 1):
            server.ask(text)
            progress("told", number, len(turns))


def measure(home, questions, seed):
    """Asks every question with memory and without; returns a row for each answer."""
    rows = []
    for begin in range(0, len(questions), QUESTIONS_OF_SEED):
        batch = questions[begin : begin + QUESTIONS_OF_SEED]
        seed += 1
        for memory in ("on", "off"):
            with home.served(seed, memory == "on") as server:
                for question in batch:
                    rows.append({**question, "memory": memory, "seed": seed, **asked(server, question, memory)})
                    progress("asked", len(rows), 2 * len(questions))
    return rows


def asked(server, question, memory):
    """What comes of a question."""
    answer, query_id, recalled = server.ask(question["question"])
    if memory == "on" and query_id:
        server.forget(query_id)
    is_repeated = any(repeats(answer, note, question["question"]) for note in recalled)
    is_right = matches(answer, question["answer"], question.get("wrong", []))
    return {"text": answer, "recalled": recalled, "right": is_right, "repeats": is_repeated}


def matches(answer, patterns, wrong):
    """Whether an answer has everything that a right one has, and nothing that a wrong one has."""
    answer = answer.replace("’", "'")

    def has(pattern):
        return re.search(pattern, answer, re.IGNORECASE | re.DOTALL)

    return all(map(has, patterns)) and not any(map(has, wrong))


def words_of(text):
    return re.findall(r"[^\W_]+", text.lower())


def repeats(answer, note, question):
    """Whether an answer has words of a note in a row that are not the question's, or the frame of the notes."""
    words = words_of(note)
    n_words = min(WORDS_IN_A_ROW, len(words))
    runs = [" ".join(words[begin : begin + n_words]) for begin in range(len(words) - n_words + 1)]
    answer, question = (f" {' '.join(words_of(text))} " for text in (answer, question))
    return any(f" {run} " in answer and f" {run} " not in question for run in runs + FRAME)


def mcnemar(pairs):
    """The two-sided p value of the exact test, of pairs of right or wrong."""
    n_better = sum(one and not other for one, other in pairs)
    n_worse = sum(other and not one for one, other in pairs)
    n = n_better + n_worse
    tail = sum(math.comb(n, k) for k in range(min(n_better, n_worse) + 1))
    return n_better, n_worse, min(1.0, 2 * tail / 2**n)


def wilson(n_right, n, z=1.959964):
    """The 95 % interval of a share."""
    share = n_right / n
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def progress(what, number, n):
    print(f"\r{what} {number} of {n}", end="\n" if number == n else "", file=sys.stderr, flush=True)


def write_csv(path, rows):
    """Writes every answer as a row."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "memory", "seed", "right", "n_recalled", "repeats", "question", "answer", "recalled"])
        for row in rows:
            figures = [row["id"], row["memory"], row["seed"], int(row["right"]), len(row["recalled"]), int(row["repeats"])]
            writer.writerow([*figures, row["question"], row["text"], " | ".join(row["recalled"])])


def report(kind, rows):
    """Prints the line of a kind of questions; returns the pairs of right or wrong, with memory and without."""
    on, off = ([row for row in rows if row["memory"] == memory] for memory in ("on", "off"))
    n = len(on)
    counts = [sum(row["right"] for row in on), sum(row["right"] for row in off)]
    counts += [sum(bool(row["recalled"]) for row in on), sum(row["repeats"] for row in on)]
    print(f"| {kind} | {n} | {' | '.join(f'{count} ({count / n:.0%})' for count in counts)} |")
    return [(one["right"], other["right"]) for one, other in zip(on, off, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hone", default="target/release/hone", help="the program")
    parser.add_argument("--seed", type=int, default=1, help="the seed of what is told; those of the questions follow")
    parser.add_argument("--limit", type=int, help="so many facts, and so many questions of each kind")
    parser.add_argument("--csv", help="a file for all answers")
    arguments = parser.parse_args()
    facts, impersonal = (read(DATA / f"{name}.jsonl")[: arguments.limit] for name in ("personal", "impersonal"))
    personal = [{**fact, "question": fact["asked"]} for fact in facts]
    with tempfile.TemporaryDirectory() as folder:
        home = Home(os.path.abspath(arguments.hone), pathlib.Path(folder))
        tell(home, facts, impersonal[::ASKED_BEFORE], arguments.seed)
        impersonal = measure(home, impersonal, arguments.seed)
        personal = measure(home, personal, impersonal[-1]["seed"])
    if arguments.csv:
        write_csv(arguments.csv, impersonal + personal)
    print("| questions | n | right with memory | right without | something recalled | a note repeated |\n" + "| --- " * 6 + "|")
    n_better, n_worse, p = mcnemar(report("impersonal", impersonal))
    pairs = report("personal", personal)
    n_right, share = sum(one for one, _ in pairs), sum(one for one, _ in pairs) / len(pairs)
    low, high = wilson(n_right, len(pairs))
    print(f"\nimpersonal: {n_better} right only with memory, {n_worse} only without, p = {p:.3f} (McNemar, exact, two-sided)")
    print(f"personal: {share:.2f} right with memory, 95 % interval {low:.2f} to {high:.2f}")
    if (n_worse > n_better and p < SIGNIFICANT) or share < LEAST_PERSONAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
