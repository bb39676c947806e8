#!/usr/bin/env python3
"""Fits what counts as similar enough to be recalled, on the first half of tests/data/recall.jsonl.

Each setting in turn takes the values of its grid while the others stay, until nothing changes any more. Best is the highest
recall@3 plus half of recall@1 plus a tenth of precision, among settings with less than half of the 5 % junk that is allowed. Of the
values that are as good as the best, the middle one is taken, because the edge of a plateau is where another person's memory falls
off it; of a threshold the lowest, because the bound on junk guards that edge, and what another person says in other words is less
similar than what it was fitted to. Writes the settings to config/memory.toml. The other half is measured with what was written,
and its figures go to benches/results/recall.txt; no setting is chosen by them.

    scripts/record.sh recall [--hone target/debug/hone] [--embedder FOLDER] [--keep] [--dry-run]
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config/memory.toml"
RESULTS = ROOT / "benches/results/recall.txt"
MOST_JUNK = 0.025
# Values whose goodness differs by less are equally good: a fifth of one probe in recall@3.
AS_GOOD = 0.003

# Of these, the lowest of equally good values is taken.
THRESHOLDS = ["threshold", "personal_threshold", "words_threshold"]

GRID = {
    "threshold": [0.18, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.32, 0.34, 0.36, 0.38, 0.4, 0.42, 0.44, 0.46],
    "personal_threshold": [0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3],
    "nearness": [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85],
    "words_threshold": [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
    "impersonal_words": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "words_weight": [0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0],
    "facts_weight": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0],
    "same_statement": [0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8],
    "changed_statement": [0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55],
    "duplicate": [0.85, 0.9, 0.95],
}


def evaluate(arguments, environment, *flags):
    command = [arguments.hone, "memory", "eval", *flags]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr.strip())
    return run.stdout


def measured(arguments, environment, settings):
    """The reports of the fitted half under several settings, in their order."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(line) + "\n" for line in settings))
        file.flush()
        output = evaluate(arguments, environment, "--split", "fitted", "--settings", file.name, "--json")
    reports = json.loads(output)
    return reports if isinstance(reports, list) else [reports]


def goodness(report):
    figures = report["splits"][0]["all"]
    if figures["junk"]["value"] >= MOST_JUNK:
        return -figures["junk"]["value"]
    return figures["recall_at_3"]["value"] + figures["recall_at_1"]["value"] / 2 + figures["precision"]["value"] / 10


def best_value(name, values, scores):
    """The middle of the longest run of values that are as good as the best, or the lowest of them if it is a threshold."""
    best = max(scores)
    runs, run = [], []
    for value, score in zip(values, scores):
        if score >= best - AS_GOOD:
            run.append(value)
        elif run:
            runs.append(run)
            run = []
    runs.append(run)
    longest = max(runs, key=len)
    return longest[0 if name in THRESHOLDS else len(longest) // 2], best


def fit(arguments, environment, settings):
    for round_number in range(4):
        before = dict(settings)
        for name, values in GRID.items():
            reports = measured(arguments, environment, [{**settings, name: value} for value in values])
            settings[name], best = best_value(name, values, [goodness(report) for report in reports])
            print(f"round {round_number + 1}: {name} = {settings[name]} (goodness {best:.4f})", file=sys.stderr)
        if settings == before:
            break
    return settings


def configured(text):
    return {name: float(re.search(rf"^{name} = ([-\d.]+)$", text, re.M)[1]) for name in GRID}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hone", default=str(ROOT / "target/debug/hone"))
    parser.add_argument("--embedder", help="folder of the embedding model; by default the installed one")
    parser.add_argument("--keep", action="store_true", help="measure the settings as they are, and fit nothing")
    parser.add_argument("--dry-run", action="store_true", help="print the settings and write nothing")
    arguments = parser.parse_args()
    environment = dict(os.environ)
    if arguments.embedder:
        environment["HONE_MEMORY_EMBEDDER"] = arguments.embedder
    text = CONFIG.read_text(encoding="utf-8")
    settings = configured(text)
    if not arguments.keep:
        settings = fit(arguments, environment, settings)
    for name, value in settings.items():
        environment[f"HONE_MEMORY_{name.upper()}"] = str(value)
        text = re.sub(rf"^{name} = [-\d.]+$", f"{name} = {value}", text, flags=re.M)
    if arguments.dry_run:
        print(json.dumps(settings))
        return
    CONFIG.write_text(text, encoding="utf-8")
    lines = ["# Written by scripts/record.sh recall: `hone memory eval` under these settings."]
    lines += [f"# {name} = {value}" for name, value in settings.items()]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n\n" + evaluate(arguments, environment), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
