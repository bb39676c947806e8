"""Writes docs/reference/commands.md from the help of the program and of each of its commands. With --check it compares the page.

    python3 scripts/record/reference/commands.py [--check] PROGRAM
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from page import write_or_check

INTRODUCTION = """\
# Command reference

<!-- Written by scripts/record.sh reference commands, from the program's help. -->

Every command, with the help that `--help` prints. Results go to stdout, everything else to stderr, and every command
that prints results accepts `--json`. The exit codes are 0 for success, 1 for a failure, 2 for incorrect usage, 3 for a
score below a threshold that you set or a text that is blocked, and 130 after Ctrl-C.
"""
# Its lines are as wide as in a terminal of this many columns.
COLUMNS = "100"


class Program:
    """The program under the name `hone`, which its help shows, in a home and with a configuration that are empty."""

    def __init__(self, path, folder):
        self.path = folder / "hone"
        self.path.symlink_to(pathlib.Path(path).resolve())
        own = {name: value for name, value in os.environ.items() if not name.startswith("HONE_")}
        places = {"HONE_HOME": folder / "home", "HONE_CONFIG": folder / "home", "HONE_OFFLINE": "1", "COLUMNS": COLUMNS}
        self.environment = own | {name: str(value) for name, value in places.items()} | {"NO_COLOR": "1"}
        (folder / "home").mkdir()

    def says(self, *arguments):
        """What it prints; None if it fails."""
        ran = subprocess.run(
            [self.path, *arguments], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        return ran.stdout if ran.returncode == 0 else None

    def help_of(self, command):
        if not command:
            # The whole list, where the short help leaves commands out.
            return self.says("help", "--all") or self.says("--help")
        return self.says(*command, "--help")


def subcommands(text):
    """Words that the help may list as commands; the caller asks the program whether they are."""
    for match in re.finditer(r"^  ([a-z][a-z-]*)(?:, [a-z-]+)*(?: {2,}\S|$)", text, re.MULTILINE):
        if match[1] != "help":
            yield match[1]


def described(program, command):
    text = program.help_of(command)
    named = " ".join(["hone", *command])
    if text is None or f"Usage: {named}" not in text:
        return
    yield f"{'#' * (2 + (len(command) > 1))} {named}"
    yield ""
    yield "```text"
    yield from (line.rstrip() for line in text.strip().splitlines())
    yield "```"
    yield ""
    seen = set()
    for name in subcommands(text):
        if name not in seen:
            seen.add(name)
            yield from described(program, [*command, name])


def main():
    *options, path = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        program = Program(path, pathlib.Path(folder))
        lines = [INTRODUCTION, *described(program, [])]
    if len(lines) < 100:
        sys.exit(f"error: {path} does not print its help")
    sys.exit(write_or_check("commands.md", "\n".join(lines).rstrip() + "\n", "--check" in options))


main()
