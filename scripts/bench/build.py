#!/usr/bin/env python3
"""Measures builds: how long the first answer takes from a fresh clone, which packages take long to compile, how large the
binaries are, and how long a build takes after a change of one line.

  cold     `cargo build --release` into an empty folder, as a new user does: elapsed and processor minutes
  units    the same with one job at a time: the packages that take more than 20 s to compile, as a Markdown table
  dist     `scripts/release.sh linux-x86_64`: minutes with packaging, and the size of the binary that is shipped
  lines    `cargo build` after a change of one line in the terminal, the server and the kernels, incremental: the second such
           change counts, the median of three

Each works on a clone of the last commit in a folder of its own, which is removed. Nothing else should run beside it.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = 20.0
LINES = {
    "terminal": "crates/cli/src/terminal/output.rs",
    "server": "crates/server/src/answering.rs",
    "kernels": "crates/kernels/src/pool.rs",
}


def clone(folder):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
    return pathlib.Path(folder)


def timed(command, folder, **environment):
    """Runs a command; returns its elapsed seconds and the processor's."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def minutes(seconds):
    return f"{seconds / 60:.1f} min"


def megabytes(path):
    return f"{path.stat().st_size / 1e6:.0f} MB"


def cold(folder):
    elapsed, processor = timed(["cargo", "build", "--release", "--locked"], folder, CARGO_INCREMENTAL="0")
    print(f"release: {minutes(elapsed)}, {minutes(processor)} of processor, {megabytes(folder / 'target/release/hone')}")


def units(folder):
    command = ["cargo", "build", "--release", "--locked", "--jobs", "1", "--timings"]
    elapsed, processor = timed(command, folder, CARGO_INCREMENTAL="0")
    page = (folder / "target/cargo-timings/cargo-timing.html").read_text(encoding="utf-8")
    rows = json.loads(re.search(r"UNIT_DATA = (\[.*?\]);\n", page, re.S).group(1))
    print(f"release, one job: {minutes(elapsed)}, {minutes(processor)} of processor, {len(rows)} units\n")
    print("| package | seconds |\n| --- | --- |")
    for row in sorted(rows, key=lambda row: -row["duration"]):
        if row["duration"] > LONG:
            print(f"| {row['name']}{row['target']} | {row['duration']:.0f} |")


def dist(folder):
    elapsed, processor = timed(["scripts/release.sh", "linux-x86_64"], folder, CARGO_INCREMENTAL="0")
    print(f"dist: {minutes(elapsed)}, {minutes(processor)} of processor, {megabytes(folder / 'target/dist/hone')}")


def lines(folder):
    build = ["cargo", "build", "--locked"]
    timed(build, folder)
    for name, file in LINES.items():
        path = folder / file
        times = []
        for number in range(4):
            with path.open("a", encoding="utf-8") as source:
                source.write(f"#[allow(dead_code)]\nconst CHANGE_{number}: u32 = {number};\n")
            times.append(timed(build, folder)[0])
        print(f"a line of the {name}: {statistics.median(times[1:]):.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {"cold": cold, "units": units, "dist": dist, "lines": lines}
    parser.add_argument("what", choices=kinds)
    what = parser.parse_args().what
    with tempfile.TemporaryDirectory(prefix="hone-build-") as folder:
        kinds[what](clone(folder))


if __name__ == "__main__":
    sys.exit(main())
