#!/usr/bin/env python3
"""A fleet on twelve hosts: two `hone serve`, eight workers, a NATS server and a PostgreSQL server, each in a network namespace of
its own. While clients ask, a worker is killed every second, the network between two hosts is cut for ten seconds again and again,
and both servers are killed by turns. Every answer must be remembered, and graded exactly once; then the grades a second of eight
workers are compared with those of one. A run of less than three minutes kills the servers more often, one of less than two cuts
more often.

The answers come from the built-in model. The workers' judge is scripted and takes a fixed time for each, so that eight of them
fit on this machine.

    cargo build --release
    scripts/test.sh hosts [--hone target/release/hone] [--answers 10000] [--seconds 1200] [--service 0.5] [--seed 1]
        [--no-throughput]

Needs Linux, root and iproute2.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "smollm2:135m"
N_WORKERS = 8
N_SERVERS = 2
NETWORK = "10.77.0"
NOBODY = 65534
# What has to happen to the fleet before a run proves anything.
ORDEALS = ("workers killed", "networks cut", "nats killed", "postgres killed")
# In seconds.
LEASE = 2  # of a worker
CUT = 10  # the length of a cut
BETWEEN_CUTS = 15
BETWEEN_ENDS = 45  # between two kills of a server
AWAY = 3  # until a killed server is started again
# A fleet that has not graded everything this long after the last answer has lost something.
PATIENCE = 600
CLIENT_THREADS = 8
# What eight workers must give of eight times one's grades.
LEAST_SHARE = 0.95
# A program may grow by this factor from the first quarter to the last, and by these mebibytes while it warms up.
MOST_GROWTH, WARM_UP = 1.25, 256
# Answers for each worker whose rate is measured.
MEASURED = 100


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class Host:
    """A network namespace with an address of its own, on a bridge with the others."""

    made = []

    def __init__(self, name):
        self.name = name
        self.address = f"{NETWORK}.{len(Host.made) + 2}"
        self.mac = f"02:00:00:00:00:{len(Host.made) + 2:02x}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "address", self.mac, "netns", name)
        run("ip", "link", "set", f"to-{name}", "master", "hosts", "up")
        self.ip("address", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")
        self.ip("link", "set", "lo", "up")
        Host.made.append(self)

    def ip(self, *arguments):
        run("ip", "-n", self.name, *arguments)

    def start(self, *command, **options):
        """Starts a program on this host."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *map(str, command)], **options)

    def cut(self, other):
        """Nothing comes from either host to the other: what they send goes to a machine that does not exist."""
        for one, two in ((self, other), (other, self)):
            one.ip("neigh", "replace", two.address, "lladdr", "02:00:00:00:ff:ff", "dev", "eth0", "nud", "permanent")

    def mend(self, other):
        for one, two in ((self, other), (other, self)):
            one.ip("neigh", "replace", two.address, "lladdr", two.mac, "dev", "eth0", "nud", "permanent")


class Program:
    """A program that is killed and started again."""

    def __init__(self, host, command, **options):
        self.host, self.command, self.options = host, command, {"stdout": subprocess.DEVNULL, **options}
        self.start()

    def start(self):
        self.process = self.host.start(*self.command, **self.options)

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()

    def mebibytes(self):
        """The memory that it holds."""
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return 0.0


def nats_server(tools, scratch):
    host = Host("nats")
    return Program(host, [tools / "python/bin/nats-server", "-js", "-a", host.address, "-sd", scratch / "nats"], stderr=subprocess.DEVNULL)


def postgres_server(tools, scratch):
    host = Host("postgres")
    programs = next((tools / "python/lib").glob("*/site-packages/pgserver/pginstall/bin"))
    folder = scratch / "postgres"
    folder.mkdir(mode=0o700)
    shutil.chown(folder, NOBODY, NOBODY)
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": folder}
    run(programs / "initdb", "--auth=trust", "--username=hone", "--encoding=UTF8", "--locale=C", "-D", folder / "data", **nobody)
    with (folder / "data/pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {NETWORK}.0/24 trust\n")
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", programs / "postgres", "-D", folder / "data"]
    command += ["-k", folder, "-c", f"listen_addresses={host.address}"]
    server = Program(host, command, cwd=folder, stderr=subprocess.DEVNULL)
    create = [programs / "createdb", "-h", folder, "-U", "hone", "hone"]
    assert wait_until(30, lambda: subprocess.run(create, capture_output=True).returncode == 0), "there is no database"
    return server


def wait_until(seconds, holds):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(1)
    return True


@dataclasses.dataclass
class Fleet:
    """Everything that runs."""

    arguments: argparse.Namespace
    scratch: pathlib.Path
    nats: Program
    postgres: Program
    workers: list
    served: list

    @property
    def bus(self):
        return f"nats://{self.nats.host.address}"

    @property
    def links(self):
        """The pairs of hosts that are connected."""
        to_nats = [(program.host, self.nats.host) for program in self.workers + self.served]
        return to_nats + [(served.host, self.postgres.host) for served in self.served]

    @property
    def store(self):
        return f"postgres://hone@{self.postgres.host.address}/hone"

    def home(self, name):
        """A home with the model, and the variables that name it."""
        home = self.scratch / name
        home.mkdir(exist_ok=True)
        return {
            **os.environ,
            "HONE_HOME": str(home),
            "HONE_CONFIG": str(home / "config.toml"),
            "HONE_OFFLINE": "1",
            "HONE_BUS_LEASE": str(LEASE),
            "HONE_BUS_PATIENCE": "5",
        }

    def start_worker(self, host):
        settings = {"BUS": self.bus, "LEASE": LEASE, "SECONDS": self.arguments.service}
        environment = {**os.environ, **{f"HONE_HOSTS_{name}": str(value) for name, value in settings.items()}}
        command = [self.arguments.worker, "--ignored", "--exact", "hosts::scripted_worker"]
        return Program(host, command, env=environment, stderr=subprocess.DEVNULL)

    def serve(self, number):
        host = Host(f"serve{number}")
        environment = self.home(host.name)
        built_in = run(ROOT / "scripts/lib/fetch-test-models.sh").strip() + "/SmolLM2-135M-Instruct.Q4_1.gguf"
        run(self.arguments.hone, "pull", built_in, "--name", MODEL, env=environment)
        command = [self.arguments.hone, "serve", "--listen", "127.0.0.1:8080", "--model", MODEL, "--threads", "1"]
        command += ["--bus", self.bus, "--store", self.store]
        log = (self.scratch / f"{host.name}.log").open("w")
        return Program(host, command, env=environment, stderr=log)

    def hone(self, *arguments):
        """What hone prints about the memory."""
        command = [self.arguments.hone, *arguments, "--store", self.store]
        return run("ip", "netns", "exec", self.nats.host.name, *command, env=self.home("looking"))

    def engrams(self):
        return json.loads(self.hone("memory", "list", "-n", "1000000", "--json"))

    def n_graded(self):
        return sum(1 for engram in self.engrams() if engram["judging_method"] and not engram.get("judging_failure"))

    def gradings(self):
        """The grades that were given: the id of the answer and the time of each."""
        lines = self.hone("events", "--type", "critique.result", "--json").splitlines()
        return [json.loads(line) for line in lines if '"failure"' not in line]

    def ask(self, first, count, seconds):
        """Has clients ask on every serving host, evenly over some seconds."""
        share = count // len(self.served)
        clients = []
        for number, served in enumerate(self.served):
            command = [sys.executable, __file__, "--client", first + number * share, share, seconds]
            clients.append(served.host.start(*command, stdout=subprocess.PIPE, text=True))
        return clients


def client(first, count, seconds):
    """Asks questions, each at its time; prints how many were answered, and every failure."""
    begun, lock, failures = time.monotonic(), threading.Lock(), []
    numbers = iter(range(count))

    def ask(number):
        body = {"messages": [{"role": "user", "content": f"Say the number {first + number}."}], "max_tokens": 3, "temperature": 0}
        request = urllib.request.Request(
            "http://127.0.0.1:8080/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] is not None

    def work():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            time.sleep(max(0, begun + number * seconds / count - time.monotonic()))
            try:
                ask(number)
            except Exception as error:
                failures.append(f"{first + number}: {error!r}")

    threads = [threading.Thread(target=work) for _ in range(CLIENT_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"answered": count - len(failures), "failures": failures[:5]}))


class Ordeal:
    """What is done to the fleet, each at its time, until the clients have ended."""

    def __init__(self, fleet, chance):
        self.fleet, self.chance = fleet, chance
        self.counts = collections.Counter()
        self.cuts = []
        self.memory = collections.defaultdict(list)
        self.ends = 0

    def run(self, clients):
        quarter = self.fleet.arguments.seconds / 4
        every = {
            self.kill_worker: 1,
            self.cut: min(BETWEEN_CUTS, quarter / 2),
            self.end_server: min(BETWEEN_ENDS, quarter),
            self.weigh: 5,
        }
        due = {act: time.monotonic() + pause for act, pause in every.items()}
        while any(client.poll() is None for client in clients):
            for act, time_due in due.items():
                if time.monotonic() >= time_due:
                    due[act] = time.monotonic() + every[act]
                    act()
            self.mend(lambda until: until <= time.monotonic())
            time.sleep(0.05)
        self.mend(lambda until: True)

    def kill_worker(self):
        worker = self.chance.choice(self.fleet.workers)
        worker.end()
        worker.start()
        self.counts["workers killed"] += 1

    def cut(self):
        one, other = self.chance.choice(self.fleet.links)
        one.cut(other)
        self.cuts.append((time.monotonic() + CUT, one, other))
        self.counts["networks cut"] += 1

    def mend(self, is_over):
        for cut in [cut for cut in self.cuts if is_over(cut[0])]:
            self.cuts.remove(cut)
            # The two may have been cut once more meanwhile.
            if not any({one, other} == set(cut[1:]) for _, one, other in self.cuts):
                cut[1].mend(cut[2])

    def end_server(self):
        """Kills one of the two servers; it comes back after a moment."""
        self.ends += 1
        server = (self.fleet.nats, self.fleet.postgres)[self.ends % 2]
        if server is self.fleet.postgres:
            server.end(signal.SIGQUIT)
            (self.fleet.scratch / "postgres/data/postmaster.pid").unlink(missing_ok=True)
        else:
            server.end()
        self.counts[f"{server.host.name} killed"] += 1
        threading.Timer(AWAY, server.start).start()

    def weigh(self):
        for served in self.fleet.served:
            self.memory[served.host.name].append(served.mebibytes())
        self.memory["nats"].append(self.fleet.nats.mebibytes())


def worker_program():
    """The test program of hone-fleet, one test of which is a worker."""
    command = ["cargo", "test", "--locked", "-p", "hone-fleet", "--test", "it", "--no-run", "--message-format", "json"]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return next(filter(None, (json.loads(line).get("executable") for line in printed.splitlines())))


def prepare(arguments, scratch):
    """Starts everything."""
    tools = pathlib.Path(run(ROOT / "scripts/lib/install-test-tools.sh").strip())
    run("ip", "link", "add", "hosts", "type", "bridge")
    run("ip", "link", "set", "hosts", "up")
    nats, postgres = nats_server(tools, scratch), postgres_server(tools, scratch)
    fleet = Fleet(arguments, scratch, nats, postgres, [], [])
    fleet.served = [fleet.serve(number) for number in range(N_SERVERS)]
    fleet.workers = [fleet.start_worker(Host(f"worker{number}")) for number in range(N_WORKERS)]
    connect = [sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 8080))"]
    for served in fleet.served:
        listens = lambda: served.host.start(*connect, stderr=subprocess.DEVNULL).wait() == 0
        assert wait_until(60, listens), f"{served.host.name} does not listen"
    return fleet


def answered(clients):
    outcomes = [json.loads(client.communicate()[0]) for client in clients]
    failures = [failure for outcome in outcomes for failure in outcome["failures"]]
    return sum(outcome["answered"] for outcome in outcomes), failures


def ordeal(fleet):
    """Asks while everything is killed and cut; prints the results, and returns the problems."""
    arguments = fleet.arguments
    clients = fleet.ask(1, arguments.answers, arguments.seconds)
    going = Ordeal(fleet, random.Random(arguments.seed))
    going.run(clients)
    begun = time.monotonic()
    # A server that was killed last may not be back yet.
    time.sleep(AWAY + 1)
    n_answered, failures = answered(clients)
    wait_until(PATIENCE, lambda: fleet.n_graded() >= n_answered)
    n_graded = fleet.n_graded()
    counts = ", ".join(f"{count} {what}" for what, count in going.counts.items())
    print(f"{n_answered} answers in {arguments.seconds} s; {counts}")
    print(f"the last grade came {time.monotonic() - begun:.0f} s after the last answer")
    problems = [f"the run was too short: no {what}" for what in ORDEALS if not going.counts[what]]
    problems += [f"not answered: {failure}" for failure in failures]
    for name, sizes in going.memory.items():
        quarter = max(1, len(sizes) // 4)
        first, last = max(sizes[:quarter]), max(sizes[-quarter:])
        print(f"{name}: {first:.0f} MiB at most in the first quarter, {last:.0f} in the last")
        if last > MOST_GROWTH * first + WARM_UP:
            problems.append(f"the memory of {name} grows")
    queries = collections.Counter(engram["query"] for engram in fleet.engrams())
    gradings = fleet.gradings()
    graded = collections.Counter(event["query_id"] for event in gradings)
    problems += [f"remembered {count} times: {query}" for query, count in queries.items() if count > 1]
    twice = {query_id for query_id, count in graded.items() if count > 1}
    problems += [f"graded more than once: {json.dumps(event)}" for event in gradings if event["query_id"] in twice]
    if len(queries) != n_answered:
        problems.append(f"{n_answered} were answered, and {len(queries)} are remembered")
    if n_graded != n_answered or len(graded) != n_answered:
        problems.append(f"{n_answered} were answered, and {n_graded} have a grade ({len(graded)} by the events)")
    return problems


def grades_per_second(fleet, n_workers, first):
    """How many answers that wait already are graded a second."""
    count = MEASURED * n_workers
    for worker in fleet.workers:
        worker.end()
    before = len(fleet.gradings())
    n_answered, failures = answered(fleet.ask(first, count, 0))
    assert n_answered == count, failures
    for worker in fleet.workers[:n_workers]:
        worker.start()
    assert wait_until(PATIENCE, lambda: len(fleet.gradings()) == before + count), "some are not graded"
    times = sorted(event["at"] / 1000 for event in fleet.gradings())[-count:]
    # Neither while it begins, nor at the end, when some workers have nothing left to do.
    measured = times[count // 10 : -count // 10]
    return (len(measured) - 1) / (measured[-1] - measured[0])


def throughput(fleet):
    one = grades_per_second(fleet, 1, fleet.arguments.answers + 1)
    eight = grades_per_second(fleet, N_WORKERS, fleet.arguments.answers + 1 + MEASURED)
    share = eight / (N_WORKERS * one)
    print(f"one worker gives {one:.2f} grades a second, eight {eight:.2f}: {share:.3f} of eight times one")
    return [] if share >= LEAST_SHARE else [f"eight workers give less than {LEAST_SHARE} of eight times one"]


def main():
    if sys.argv[1:2] == ["--client"]:
        return client(*map(int, sys.argv[2:4]), float(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hone", type=pathlib.Path, default=ROOT / "target/release/hone", help="the program")
    parser.add_argument("--answers", type=int, default=10_000, help="how many questions are asked")
    parser.add_argument("--seconds", type=float, default=1200, help="the time over which they are asked")
    parser.add_argument("--service", type=float, default=0.5, help="the seconds that a worker takes for an answer")
    parser.add_argument("--no-throughput", action="store_true", help="leaves out the rates of one worker and of eight")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the random choices")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not (sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip")):
        sys.exit("error: hosts are network namespaces, which need Linux, root and iproute2")
    arguments.hone = arguments.hone.resolve()
    if not arguments.worker:
        # All namespaces and programs end with this one.
        apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        os.execvp("unshare", [*apart, sys.executable, __file__, *sys.argv[1:], "--worker", worker_program()])
    os.makedirs("/run/netns", exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/netns")
    run("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        fleet = prepare(arguments, pathlib.Path(scratch))
        problems = ordeal(fleet) or ([] if arguments.no_throughput else throughput(fleet))
        for problem in problems[:20]:
            print(f"WRONG: {problem}")
        for program in [*fleet.served, *fleet.workers, fleet.nats, fleet.postgres]:
            with contextlib.suppress(ProcessLookupError):
                program.end()
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
