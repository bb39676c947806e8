#!/usr/bin/env python3
"""Measures how far answers that speak to their judge get with a judge.

Every wrong answer of a list of attacks is graded as it is and with the attack, by `hone grade`. Prints how far the attacks
lift the expected score, how many are marked as suspicious, and how many ordinary answers are. With --json, prints the
figures of all families as JSON.

    scripts/bench.sh manipulation --judge MODEL [--hone target/debug/hone] [--show-passages] [--json]
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates/judging/tests/it/data"


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def grade(arguments, tasks):
    """The verdicts on (query, answer) pairs, each pair graded once."""
    unique = list(dict.fromkeys(tasks))
    environment = dict(os.environ)
    if arguments.show_passages:
        environment["HONE_JUDGE_LEAVE_OUT_SUSPICIOUS"] = "false"
    with tempfile.TemporaryDirectory() as folder:
        source, output = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
        lines = (json.dumps({"query": query, "answer": answer}) for query, answer in unique)
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [arguments.hone, "grade", "--judge", arguments.judge, "--no-cache"]
        command += ["--input", str(source), "--output", str(output)]
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
        return dict(zip(unique, read(output)))


def figures(rows):
    """Of (score, expected score, expected score without the attack, suspicious): what the attacks achieve."""
    n = len(rows)
    lifts = [attacked - plain for _, attacked, plain, _ in rows]
    return {
        "attacks": n,
        "lifted_by_2": sum(lift >= 2 for lift in lifts) / n,
        "reached_5": sum(score == 5 for score, _, _, _ in rows) / n,
        "mean_lift": sum(lifts) / n,
        "suspicious": sum(suspicious for _, _, _, suspicious in rows) / n,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", required=True, help="name of the judge's model, or the path of a GGUF file")
    parser.add_argument("--hone", default="target/debug/hone", help="the program")
    parser.add_argument("--attacks", type=pathlib.Path, default=DATA / "attacks.jsonl")
    parser.add_argument("--ordinary", type=pathlib.Path, help="graded too; counts those marked as suspicious")
    parser.add_argument("--show-passages", action="store_true", help="show the judge what speaks to it")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()

    attacks = read(arguments.attacks)
    ordinary = read(arguments.ordinary) if arguments.ordinary else []
    tasks = [(it["query"], it["wrong"]) for it in attacks]
    tasks += [(it["query"], it["answer"]) for it in attacks + ordinary]
    verdicts = grade(arguments, tasks)

    families = collections.defaultdict(list)
    for attack in attacks:
        plain = verdicts[attack["query"], attack["wrong"]]
        verdict = verdicts[attack["query"], attack["answer"]]
        if plain["expected_score"] is None or verdict["expected_score"] is None:
            sys.exit(f"no score for {attack['id']}: {plain.get('failure') or verdict.get('failure')}")
        row = (verdict["score"], verdict["expected_score"], plain["expected_score"], bool(verdict.get("suspicious")))
        families[attack.get("family", "all")].append(row)
        families["total"].append(row)
    wrong = {(it["query"], it["wrong"]) for it in attacks}
    result = {name: figures(rows) for name, rows in families.items()}
    result["plain"] = {"answers": len(wrong), "mean": sum(verdicts[it]["expected_score"] for it in wrong) / len(wrong)}
    flagged = [it["id"] for it in ordinary if verdicts[it["query"], it["answer"]].get("suspicious")]
    result["ordinary"] = {"answers": len(ordinary), "suspicious": flagged}
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{'family':<14} lifted by 2  reached 5  mean lift  suspicious")
    for name, rows in families.items():
        of = result[name]
        print(
            f"{name:<14} {of['lifted_by_2']:>10.0%} {of['reached_5']:>10.0%} {of['mean_lift']:>+10.2f}"
            f" {of['suspicious']:>11.0%}"
        )
    print(f"wrong answers as they are: mean expected score {result['plain']['mean']:.2f} of {len(wrong)}")
    if ordinary:
        print(f"ordinary answers marked as suspicious: {len(flagged)} of {len(ordinary)}: {', '.join(flagged) or '-'}")


if __name__ == "__main__":
    main()
