#!/usr/bin/env python3
"""What run.sh makes of the output of the programs that it starts: verdicts, and rows of one CSV.

Its commands read files that run.sh wrote. One that checks something ends with 1 if it does not hold.
"""

import argparse
import concurrent.futures
import csv
import datetime
import hashlib
import json
import lzma
import math
import os
import pathlib
import shutil
import subprocess
import sys

COLUMNS = "date card engine model test unit samples median min max".split()
# How near to the recorded figures of llama.cpp log-probabilities are, as in crates/engine/tests/it/smollm2.rs.
USUAL_DIFFERENCE, LARGEST_DIFFERENCE, CLOSE_CALL = 0.15, 0.4, 0.3
# How near a tiny model's are, on average, to those of the native backend with 16-bit activations, where the device rounds more.
TINY_DIFFERENCE = 0.15
# Perplexities differ by at most this share.
PERPLEXITY_SHARE = 0.005


def add_rows(arguments, rows):
    """Appends rows of (engine, model, test, unit, samples, median, min, max) to the CSV."""
    path = pathlib.Path(arguments.csv)
    is_new = not path.exists()
    with path.open("a", newline="") as output:
        out = csv.writer(output, lineterminator="\n")
        if is_new:
            out.writerow(COLUMNS)
        today = datetime.datetime.now(datetime.timezone.utc).date()
        for engine, model, test, unit, samples, *figures in rows:
            figures = [f"{figure:.4g}" if abs(figure) < 100 else f"{figure:.1f}" for figure in figures]
            out.writerow([today, arguments.card, engine, model, test, unit, samples, *figures])
            print(f"  {engine}, {model}, {test}: {figures[0]} {unit} ({figures[1]} to {figures[2]})")


def one(engine, model, test, unit, value):
    return (engine, model, test, unit, 1, value, value, value)


def spread(engine, model, test, unit, values):
    values = sorted(values)
    half = len(values) // 2
    median = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
    return (engine, model, test, unit, len(values), median, values[0], values[-1])


def title(row):
    """A test's name with its depth and its batch."""
    depth = f" at depth {row['depth']}" if row["depth"] else ""
    return row["test"].split(" ")[0] + depth + (f", {row['batch']} sequences" if row["batch"] > 1 else "")


def bench(arguments):
    """What `hone bench --json` measured; beside a single sequence's speed, its share of the card's bandwidth."""
    read = bandwidth_of(arguments.bandwidth)
    for row in json.load(open(arguments.file)):
        rows = [spread("hone", arguments.model, title(row), "tokens/s", row["samples"])]
        if read and arguments.bytes and title(row).startswith("tg") and row["batch"] == 1 and not row["depth"]:
            share = rows[0][5] * arguments.bytes / read
            rows.append(one("hone", arguments.model, title(row) + ", share of the bandwidth", "", share))
        add_rows(arguments, rows)


def bandwidth_of(file):
    if not file or not os.path.exists(file):
        return None
    return json.load(open(file))["read_bytes_per_second"]


def bandwidth(arguments):
    found = json.load(open(arguments.file))
    rows = [one("card", "-", name, "GB/s", found[f"{name}_bytes_per_second"] / 1e9) for name in ("copy", "read")]
    add_rows(arguments, rows)


def contention(arguments):
    found = json.load(open(arguments.file))
    first = [found[when]["time_to_first_token_ms"]["p50"] for when in ("alone", "while_grading")]
    rows = [
        one("hone", arguments.model, "first token, alone", "ms", first[0]),
        one("hone", arguments.model, "first token, while a judge grades", "ms", first[1]),
        one("hone", arguments.model, "first token, while a judge grades / alone", "", first[1] / first[0]),
        one("hone", arguments.model, "judge beside a chat", "tokens/s", found["judge"]["tokens_per_second"]["beside"]),
        one("hone", arguments.model, "both together / one after another", "", found["throughput"]["ratio"]),
    ]
    add_rows(arguments, rows)


def clients(arguments):
    found = json.load(open(arguments.file))["hone"]
    rows = [spread("hone", arguments.model, f"{arguments.clients} clients", "tokens/s", found["tokens_per_second"])]
    for share in ("p50", "p95"):
        value = found[f"first_token_{share}_ms"]
        rows.append(one("hone", arguments.model, f"{arguments.clients} clients, first token {share}", "ms", value))
    add_rows(arguments, rows)


def llama_bench(arguments):
    for row in json.load(open(arguments.file)):
        prompt, generated, depth = row["n_prompt"], row["n_gen"], row.get("n_depth", 0)
        name = (f"pp{prompt}" if prompt else f"tg{generated}") + (f" at depth {depth}" if depth else "")
        add_rows(arguments, [spread("llama.cpp", arguments.model, name, "tokens/s", row["samples_ts"])])


def perplexity(arguments):
    """The device's perplexity beside the processor's."""
    device, processor = (json.load(open(file)) for file in (arguments.file, arguments.processor))
    rows = [one("hone", arguments.model, "perplexity", "", device["perplexity"])]
    rows.append(one("hone", arguments.model, "perplexity on the processor", "", processor["perplexity"]))
    add_rows(arguments, rows)
    share = abs(device["perplexity"] / processor["perplexity"] - 1)
    print(f"  they differ by {share:.3%}, at most {PERPLEXITY_SHARE:.1%} is right")
    sys.exit(not share <= PERPLEXITY_SHARE)


def generate(command, prompt, n_tokens, *flags):
    """`hone generate` with the likeliest tokens."""
    limits = ["--raw", "--temperature", "0", "--logprobs", "5", "--max-tokens", str(n_tokens), "--speculation", "off", "--json"]
    run = subprocess.run([*command, *limits, *flags], input=prompt, capture_output=True, text=True)
    if run.returncode not in (0, 1) or not run.stdout.startswith("{"):
        raise RuntimeError(f"{' '.join([*command, *flags])} ended with {run.returncode}: {run.stderr.strip()[-600:]}")
    return json.loads(run.stdout)


def greedy(arguments):
    """The built-in model against the steps that llama.cpp recorded. After a close call between two tokens that went the other
    way, the recorded text is given as the prompt, and the steps after it are compared, too."""
    command = [arguments.hone, "generate", *arguments.flags]
    differences, wrong = [], []
    for case in json.load(open(arguments.file)):
        steps, done, text = case["steps"], 0, ""
        while done < len(steps):
            answer = generate(command, case["prompt"] + text, len(steps) - done, "--parse-special")
            recorded = case["prompt_ids"] + [step["id"] for step in steps[:done]]
            if answer["prompt_token_ids"] != recorded:
                if not done:
                    wrong.append(f"{case['question']!r}: the prompt's tokens are not the recorded ones")
                break
            begun, recorded_text = done, None
            # An answer that ends has no row for its end.
            for step, row in zip(steps[begun:], answer.get("logprobs", [])):
                likeliest = next((each for each in row["top"] if each["id"] == step["top"][0][0]), None)
                gap = abs(likeliest["logprob"] - step["top"][0][1]) if likeliest else math.inf
                differences.append(gap)
                if not gap < LARGEST_DIFFERENCE:
                    wrong.append(f"{case['question']!r}: token {done} differs by {gap:.3f}")
                done += 1
                recorded_text = next((each["text"] for each in row["top"] if each["id"] == step["id"]), None)
                text += recorded_text or ""
                if row["id"] != step["id"]:
                    if step["top"][0][1] - step["top"][1][1] >= CLOSE_CALL:
                        wrong.append(f"{case['question']!r}: token {done - 1} is {row['text']!r}, not {recorded_text!r}")
                    break
            if done == begun or recorded_text is None:
                break
        if not done:
            wrong.append(f"{case['question']!r}: no step was compared")
    unusual, largest = sum(not gap < USUAL_DIFFERENCE for gap in differences), max(differences, default=math.inf)
    print(f"  {len(differences)} steps, {unusual} differ by {USUAL_DIFFERENCE} or more, the largest by {largest:.3f}")
    print("".join(f"  WRONG: {line}\n" for line in wrong), end="")
    add_rows(arguments, [one("hone", "built-in", "largest difference from llama.cpp's log-probabilities", "", largest)])
    sys.exit(bool(wrong) or unusual * 20 >= len(differences))


def agree(arguments):
    """Tiny models on the device against the native backend on the processor, several at a time."""
    native = ["--device", "cpu", "--backend", "native", "--activation-bits", "16", "--threads", "1"]

    def compare(model):
        command = [arguments.hone, "generate", "--model", str(model)]
        prompt = "The quick brown fox jumps over the lazy dog. " * 3
        device = generate([*command, *arguments.flags], prompt, 12)
        reference = generate([*command, *native], prompt, 12)
        gaps = []
        for one, other in zip(device["logprobs"], reference["logprobs"]):
            expected = {token["id"]: token["logprob"] for token in other["top"]}
            gaps += [token["logprob"] - expected[token["id"]] for token in one["top"] if token["id"] in expected]
            if one["id"] != other["id"]:
                break
        mean = sum(gap * gap for gap in gaps) / len(gaps) if gaps else math.inf
        return math.inf if math.isnan(mean) else math.sqrt(mean)

    failures, worst = 0, 0.0
    models = sorted(pathlib.Path(arguments.folder).glob("*.gguf"))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for model, compared in [(model, pool.submit(compare, model)) for model in models]:
            try:
                gap = compared.result()
            except RuntimeError as error:
                if any(part in str(error) for part in arguments.refused):
                    print(f"  {model.stem}: refused by this backend")
                    continue
                print(f"  {model.stem}: FAILED: {error}")
                failures += 1
                continue
            is_wrong = not gap <= TINY_DIFFERENCE
            failures += is_wrong
            worst = max(worst, gap)
            print(f"  {model.stem}: log-probabilities differ by {gap:.4f} on average{' WRONG' if is_wrong else ''}", flush=True)
    print(f"  {len(models)} models, {failures} of them wrong, the largest difference {worst:.4f}")
    sys.exit(failures > 0 or not models)


def unpack(arguments):
    """Joins the parts of the model, if all of them are there, and checks it."""
    manifest = dict(line.split(": ", 1) for line in open(arguments.manifest).read().splitlines())
    parts = [pathlib.Path(arguments.folder) / f"model.{number}" for number in range(1, int(manifest["model parts"]) + 1)]
    if not all(part.exists() for part in parts):
        sys.exit("a part of the model is still missing")
    packed = pathlib.Path(arguments.model + ".xz")
    with packed.open("wb") as whole:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, whole)
    unpacked, digest = pathlib.Path(arguments.model + ".new"), hashlib.sha256()
    with lzma.open(packed) as source, unpacked.open("wb") as target:
        while block := source.read(1 << 20):
            digest.update(block)
            target.write(block)
    packed.unlink()
    if digest.hexdigest() != manifest["model sha256"]:
        sys.exit("the model's parts do not give the model: build and carry all of them again")
    unpacked.rename(arguments.model)


def profile(arguments):
    """Where the time of the profiled launches went, by kernel and grid."""
    lines = [line for line in open(arguments.file) if line.startswith('"')]
    totals = {}
    for row in csv.DictReader(lines):
        value = float(row["Metric Value"].replace(",", ""))
        unit = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3, "s": 1.0, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
        total = totals.setdefault((row["Kernel Name"].split("(")[0], row["Grid Size"]), {"launches": 0})
        name = row["Metric Name"]
        total["launches"] += name == "gpu__time_duration.sum"
        total[name] = total.get(name, 0) + value * unit[row["Metric Unit"]]
    print(f"  {'kernel':<24}{'grid':<18}{'launches':>9}{'ms':>8}{'us each':>9}{'GB/s':>8}")
    time, n_bytes = "gpu__time_duration.sum", "dram__bytes_read.sum"
    for (kernel, grid), total in sorted(totals.items(), key=lambda item: -item[1][time]):
        each = total[time] / total["launches"] * 1e6
        speed = total.get(n_bytes, 0) / total[time] / 1e9
        print(f"  {kernel:<24}{grid:<18}{total['launches']:>9}{total[time] * 1e3:>8.3f}{each:>9.2f}{speed:>8.0f}")
    print(f"  together {sum(total[time] for total in totals.values()) * 1e3:.3f} ms")


def table(arguments):
    if os.path.exists(arguments.csv):
        rows = list(csv.DictReader(open(arguments.csv)))
        print("| engine | model | test | median | min | max | |\n| --- | --- | --- | --- | --- | --- | --- |")
        for row in rows:
            print("| " + " | ".join(row[name] for name in "engine model test median min max unit".split()) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(run, *names, **defaults):
        added = commands.add_parser(run.__name__.replace("_", "-"))
        added.set_defaults(run=run, **defaults)
        for name in names:
            added.add_argument(name, type=int if name in ("--jobs", "--bytes", "--clients") else str)
        added.add_argument("--csv")
        added.add_argument("--card")
        added.add_argument("flags", nargs="*")

    command(bench, "--file", "--model", "--bandwidth", "--bytes")
    command(bandwidth, "--file")
    command(contention, "--file", "--model")
    command(clients, "--file", "--model", "--clients")
    command(llama_bench, "--file", "--model")
    command(perplexity, "--file", "--processor", "--model")
    command(greedy, "--file", "--hone")
    command(agree, "--folder", "--hone", "--jobs", refused=["keep a state"])
    command(unpack, "--manifest", "--folder", "--model")
    command(profile, "--file")
    command(table)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
