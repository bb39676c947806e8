#!/usr/bin/env python3
"""Where a large fleet meets its first limit: a day of a thousand workers and a million answers, simulated with service times
that are measured on this machine first.

Measures how many pieces of work a NATS server passes and how many graded answers a PostgreSQL database remembers a second
(with fsync), then simulates a day: answers come at random, most of them in the afternoon; each waits for a worker, is graded,
and is remembered. At the busiest hour one of three regions is lost, and comes back an hour later. Prints how long grades took
before, during and after that, how busy each part was, and how many answers a day it could take at most.

    scripts/bench.sh scale --judge-seconds SECONDS [--workers 1000] [--answers 1000000] [--seed 1]

SECONDS is what one grade takes a worker: `hone grade` on such a machine says so ("seconds" of --json).
"""

import argparse
import collections
import heapq
import math
import os
import pathlib
import random
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
DAY = 86_400
REGIONS = 3
# The busiest hour, and for how long a region is lost then.
PEAK = 15 * 3600
OUTAGE = 3600
# Seconds after which a lost worker's work is given to another one (bus.lease).
LEASE = 30
# How much more is asked at the busiest time than on average.
SWING = 0.8


def measured(package, test, pattern):
    """The figures in what a test prints that measures."""
    command = ["cargo", "test", "--release", "--locked", "--quiet", "-p", package, "--test", "it", "--"]
    command += ["--ignored", "--nocapture", test]
    tools = subprocess.run([ROOT / "scripts/lib/install-test-tools.sh"], check=True, capture_output=True, text=True).stdout
    environment = {**os.environ, "HONE_TEST_TOOLS": tools.strip()}
    printed = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    return [float(figure) for figure in re.findall(pattern, printed)]


class Station:
    """What takes one thing after the other."""

    def __init__(self, per_second):
        self.seconds = 1 / per_second
        self.free = 0.0

    def passes(self, time):
        """When something has passed that comes at `time`."""
        self.free = max(self.free, time) + self.seconds
        return self.free


class Day:
    """A simulated day."""

    def __init__(self, arguments, nats, database):
        self.random = random.Random(arguments.seed)
        self.arguments = arguments
        self.nats, self.database = Station(nats), Station(database)
        self.events = []
        self.waiting = collections.deque()
        self.idle = [worker % REGIONS for worker in range(arguments.workers)]
        self.busy = {}
        self.lost = set()
        self.waits = collections.defaultdict(list)
        self.most_waiting, self.drained = 0, None
        self.graded = collections.Counter()

    def rate(self, time):
        """Answers per second."""
        return self.arguments.answers / DAY * (1 + SWING * math.cos(2 * math.pi * (time - PEAK) / DAY))

    def arrivals(self):
        """The times of the answers: a Poisson process whose rate changes, by thinning."""
        time, most = 0.0, self.arguments.answers / DAY * (1 + SWING)
        while (time := time + self.random.expovariate(most)) < DAY:
            if self.random.random() < self.rate(time) / most:
                yield time

    def run(self):
        coming = self.arrivals()
        self.at(next(coming), "answer")
        self.at(PEAK, "loss")
        self.at(PEAK + OUTAGE, "return")
        while self.events:
            time, _, kind, what = heapq.heappop(self.events)
            if kind == "answer":
                self.at(self.nats.passes(time), "work", (len(self.graded), time))
                self.graded[len(self.graded)] = 0
                following = next(coming, None)
                if following is not None:
                    self.at(following, "answer")
            elif kind == "work":
                self.waiting.append(what)
            elif kind == "done":
                self.finish(time, *what)
            elif kind == "loss":
                self.lose(time)
            elif kind == "return":
                self.lost.clear()
                self.idle += [0] * len([worker for worker in range(self.arguments.workers) if worker % REGIONS == 0])
            self.start(time)
            self.most_waiting = max(self.most_waiting, len(self.waiting))
            if self.drained is None and time > PEAK + OUTAGE and not self.waiting:
                self.drained = time - PEAK - OUTAGE
        assert all(count == 1 for count in self.graded.values()), "every answer is graded once"

    def at(self, time, kind, what=None):
        heapq.heappush(self.events, (time, len(self.events) + self.random.random(), kind, what))

    def start(self, time):
        """Gives work to workers that have nothing to do."""
        while self.waiting and self.idle:
            region, answer = self.idle.pop(), self.waiting.popleft()
            # Answers are of different lengths: half as much again is common.
            seconds = self.arguments.judge_seconds * self.random.lognormvariate(-0.08, 0.4)
            self.busy[answer] = region
            self.at(time + seconds, "done", (answer, region))

    def finish(self, time, answer, region):
        if self.busy.get(answer) != region:
            return
        del self.busy[answer]
        self.idle.append(region)
        number, asked = answer
        self.graded[number] += 1
        remembered = self.database.passes(self.nats.passes(time))
        when = "before" if asked < PEAK else "during" if asked < PEAK + OUTAGE else "after"
        self.waits[when].append(remembered - asked)

    def lose(self, time):
        """A region is gone: its work is given to others when its leases have run out."""
        self.idle = [region for region in self.idle if region != 0]
        for answer in [answer for answer, region in self.busy.items() if region == 0]:
            del self.busy[answer]
            self.at(time + LEASE, "work", answer)


def shown(seconds):
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge-seconds", type=float, required=True)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    (nats,) = measured("hone-fleet", "latency::rate", r"passes (\d+) pieces")
    one_role, four_roles = measured("hone-memory", "postgres::rate", r"remembers? ([\d.]+) graded")
    print(f"measured: NATS passes {nats:.0f} pieces of work a second with their results; PostgreSQL remembers {one_role:.0f}")
    print(f"graded answers a second of one role, {four_roles:.0f} of four; a grade takes {arguments.judge_seconds} s")
    day = Day(arguments, 2 * nats, one_role)
    day.run()
    for when in ("before", "during", "after"):
        waits = sorted(day.waits[when])
        median, most = statistics.median(waits), waits[len(waits) * 99 // 100]
        print(f"{when} the loss of a region: a grade after {shown(median)} at the median, 99 % within {shown(most)}")
    left = shown(day.drained) if day.drained is not None else "not that day"
    print(f"most answers that waited: {day.most_waiting}; all done after the region was back: {left}")
    peak = day.rate(PEAK)
    capacities = {
        f"{arguments.workers} workers": arguments.workers / arguments.judge_seconds,
        "PostgreSQL, one role": one_role,
        "PostgreSQL, four roles": four_roles,
        "NATS": nats,
    }
    for name, capacity in sorted(capacities.items(), key=lambda item: item[1]):
        print(f"{name}: {100 * peak / capacity:.1f} % busy at the busiest time; at most {capacity * DAY / 1e6:.1f} M answers a day")


if __name__ == "__main__":
    main()
