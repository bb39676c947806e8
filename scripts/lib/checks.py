"""Runs the checks of .ci/checks.toml whose inputs have changed since they passed: the program of scripts/check.sh.

A check's inputs are its command, the paths that it names, the scripts that the command starts, and the crates that it compiles,
with the crates that these depend on. Their hash is taken of what git would store of the working tree, whether it is committed or
not. A check that passes is recorded with it in .ci/passed.toml, which is committed with the change.

The hash knows the repository only: after an update of the compiler or of the system, `--all` runs everything.
"""

import argparse
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

CHECKS = ".ci/checks.toml"
PASSED = ".ci/passed.toml"
# The exit status of a check that this machine cannot run; it neither passes nor fails.
NOT_HERE = 77
SCRIPT = re.compile(r"\bscripts/[\w./-]+\.\w+")


class Wrong(Exception):
    """Something is wrong with the list of checks, or with what was asked for."""


@dataclasses.dataclass
class Check:
    """A row of the list."""

    name: str
    command: str
    proves: str
    paths: list[str] = dataclasses.field(default_factory=list)
    crates: list[str] = dataclasses.field(default_factory=list)
    manual: str = ""


def read_toml(path):
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{path}: {error}") from None


def read_checks(root):
    """The rows of the list, in its order, with the groups of paths that they name."""
    table = read_toml(root / CHECKS)
    groups = table.pop("groups", {})
    checks = {}
    for name, row in table.items():
        try:
            check = Check(name, **row)
        except TypeError as error:
            raise Wrong(f"{CHECKS}: {name}: {str(error).removeprefix('Check.__init__() ')}") from None
        check.paths = [path for each in check.paths for path in resolved(name, each, groups)]
        check.crates = [folder for each in check.crates for folder in crates_at(root, each)]
        checks[name] = check
    return checks


def resolved(name, path, groups):
    if not path.startswith("@"):
        return [path]
    if path[1:] not in groups:
        raise Wrong(f"{CHECKS}: {name}: there is no group of paths {path}")
    return groups[path[1:]]


def crates_at(root, pattern):
    """The folders that a pattern means: crates/* are all crates there."""
    found = [path.parent.relative_to(root).as_posix() for path in sorted(root.glob(f"{pattern}/Cargo.toml"))]
    return found or [pattern]


def read_passed(root):
    path = root / PASSED
    return read_toml(path) if path.exists() else {}


def write_passed(root, passed, names):
    """A line for each check, sorted, so that branches that ran other checks merge without conflict."""
    lines = [f'{name} = "{passed[name]}"\n' for name in sorted(passed.keys() & names)]
    head = "# The inputs that each check last passed with. Written by scripts/check.sh; after a conflict, keep either line.\n\n"
    (root / PASSED).write_text(head + "".join(lines), encoding="utf-8")


class Tree:
    """The working tree as git would store it, staged in a folder of its own."""

    def __init__(self, root, folder):
        self.root = root
        # A checkout that another user owns, as in containers, is read as well.
        self._environment = {
            **os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": str(root)}
        self._environment = self._stage(folder)

    def _stage(self, folder):
        objects, index = folder / "objects", folder / "index"
        objects.mkdir()
        own = self._path("index")
        if own.exists():
            # With its time: git takes a file that is as old as the index for possibly changed.
            shutil.copy2(own, index)
        environment = {
            **self._environment,
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._path("objects")),
        }
        self._git("add", "--all", environment=environment)
        return environment

    def _git(self, *arguments, environment=None):
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.root, env=environment or self._environment, capture_output=True, text=True)
        if done.returncode:
            raise Wrong(f"git {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def _path(self, name):
        return (self.root / self._git("rev-parse", "--git-path", name).strip()).resolve()

    @functools.cache
    def files(self, *pathspecs):
        """Mode, object and path of every file that matches one of git's pathspecs."""
        return [entry for entry in self._git("ls-files", "--stage", "-z", "--", *pathspecs).split("\0") if entry]


def pathspecs_of(root, check):
    """What the check depends on: lists of pathspecs, each of which has to match something."""
    inputs = [(path,) for path in check.paths]
    if check.crates:
        inputs += [("Cargo.toml",), ("Cargo.lock",)]
        for folder in sorted(crates_below(root, check)):
            # Of a crate that another depends on, nobody else compiles the tests.
            others = [] if folder in check.crates else [f":(exclude){folder}/{each}" for each in ("tests", "benches", "examples")]
            inputs.append((folder, *others))
    return inputs + [(script,) for script in sorted(scripts_of(root, check.command))]


def crates_below(root, check):
    """The folders of the check's crates and of all crates of the repository that they depend on."""
    workspace = read_toml(root / "Cargo.toml")
    shared = workspace.get("workspace", {}).get("dependencies", {})
    patches = (patch for source in workspace.get("patch", {}).values() for patch in source.values())
    found, left = set(), check.crates + [patch["path"] for patch in patches if "path" in patch]
    while left:
        folder = left.pop()
        if folder in found:
            continue
        found.add(folder)
        manifest = root / folder / "Cargo.toml"
        if not manifest.exists():
            raise Wrong(f"{CHECKS}: {check.name}: {folder}/Cargo.toml does not exist")
        left += dependencies(root, manifest, shared, with_tests=folder in check.crates)
    return found


def dependencies(root, manifest, shared, with_tests):
    """The folders of the crates of the repository that a crate depends on, on any system."""
    table = read_toml(manifest)
    kinds = ["dependencies", "build-dependencies"] + (["dev-dependencies"] if with_tests else [])
    for part in [table, *table.get("target", {}).values()]:
        for name, needed in ((name, needed) for kind in kinds for name, needed in part.get(kind, {}).items()):
            base = manifest.parent
            if isinstance(needed, dict) and needed.get("workspace"):
                needed, base = shared[name], root
            if isinstance(needed, dict) and "path" in needed:
                yield (base / needed["path"]).resolve().relative_to(root).as_posix()


def scripts_of(root, command):
    """The scripts that a command names, and those that shell scripts among them name in turn, other than in comments."""
    found, left = set(), [command]
    while left:
        for script in SCRIPT.findall(left.pop()):
            path = root / script
            if script not in found and (path.exists() or script in command):
                found.add(script)
                if path.suffix == ".sh" and path.exists():
                    left.append(without_comments(path.read_text(encoding="utf-8")))
    return found


def without_comments(text):
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def hash_of(root, tree, check):
    """What identifies the check's inputs."""
    entries = set()
    for pathspecs in pathspecs_of(root, check):
        matching = tree.files(*pathspecs)
        if not matching:
            raise Wrong(f"{CHECKS}: {check.name}: {pathspecs[0]} does not exist")
        entries.update(matching)
    text = "\n".join([check.command, *sorted(entries)])
    return hashlib.sha256(text.encode()).hexdigest()


def hashes(root, checks):
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(root, pathlib.Path(folder))
        return {name: hash_of(root, tree, check) for name, check in checks.items()}


def state(check, hashed, passed):
    if passed.get(check.name) == hashed[check.name]:
        return "passed"
    if check.manual:
        return "manual"
    return "changed" if check.name in passed else "never"


def seconds(duration):
    return f"{duration // 60:.0f} min {duration % 60:.0f} s" if duration >= 60 else f"{duration:.1f} s"


def run(root, check, arguments):
    """How a check ended ("passed", "failed", "not here"), and the seconds that it took."""
    print(f"\n== {check.name}: {check.proves}\n$ {check.command}", flush=True)
    begin = time.monotonic()
    status = subprocess.run(["bash", "-c", f'{check.command} "$@"', "check", *arguments], cwd=root).returncode
    ended = {0: "passed", NOT_HERE: "not here"}.get(status, "failed")
    return ended, time.monotonic() - begin


def record(root, checks, name, before):
    """Keeps that a check has passed, unless its inputs became others meanwhile. Returns why it was not kept."""
    if hashes(root, {name: checks[name]})[name] != before:
        return "not recorded: its inputs changed while it ran"
    write_passed(root, {**read_passed(root), name: before}, checks.keys())
    return ""


def run_all(root, checks, names, options):
    """Runs checks in turn; a line for each, and the names of those that failed."""
    hashed = hashes(root, checks)
    table, failed = [], []
    for name in names:
        ended, duration = run(root, checks[name], options.arguments)
        note = ""
        if ended == "passed":
            if options.arguments or os.environ.get("HONE"):
                note = "not recorded: it was run otherwise than the list says"
            else:
                note = record(root, checks, name, hashed[name])
        elif ended == "failed":
            failed.append(name)
        table.append((name, ended, seconds(duration), note))
        if failed and options.fail_fast:
            break
    return table, failed


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def chosen(checks, states, options):
    """The names of the checks to run."""
    if unknown := [name for name in options.names if name not in checks]:
        raise Wrong(f"no check is called {', '.join(unknown)}: --list lists them")
    if options.names:
        return options.names
    return [name for name in checks if options.all or states[name] in ("changed", "never")]


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="scripts/check.sh",
        description="Runs the checks of .ci/checks.toml whose inputs have changed since they passed, and records those that pass in "
        ".ci/passed.toml, which is committed with the change.",
        epilog="What follows -- goes to the command of the one check that is named; such a run is not recorded.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="run these, whether anything has changed or not")
    parser.add_argument("--all", action="store_true", help="run every check")
    parser.add_argument("--list", action="store_true", help="list every check with its state and what it proves")
    parser.add_argument("--dry-run", action="store_true", help="list what would run")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first check that fails")
    own, _, others = split(arguments)
    options = parser.parse_args(own)
    options.arguments = others
    if others and len(options.names) != 1:
        parser.error("what follows -- belongs to one check: name it")
    return options


def split(arguments):
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at:at + 1], arguments[at + 1:]


def carry_out(root, options):
    checks = read_checks(root)
    hashed, passed = hashes(root, checks), read_passed(root)
    states = {name: state(each, hashed, passed) for name, each in checks.items()}
    if options.list:
        print_table([(name, states[name], each.proves + (f" ({each.manual})" if each.manual else "")) for name, each in checks.items()])
        return 0
    names = chosen(checks, states, options)
    left_out = [(name, f"skipped: {'manual' if states[name] == 'manual' else 'its inputs passed already'}")
                for name in checks if name not in names and not options.names]
    print_table([*((name, "runs") for name in names), *left_out] or [("nothing to run",)])
    if options.dry_run or not names:
        return 0
    table, failed = run_all(root, checks, names, options)
    print()
    print_table(table)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main(arguments):
    sys.stdout.reconfigure(line_buffering=True)
    # Whoever reads no more, as head does, ends it without a complaint.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return carry_out(pathlib.Path(__file__).resolve().parents[2], parse(arguments))
    except Wrong as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
