"""What the generators of the reference pages share: writing a page, or comparing it with the one that is there."""

import difflib
import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[3]
WIDTH = 116


def wrapped(text, indent=""):
    """A paragraph in lines of the documentation's width."""
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def write_or_check(name, text, check):
    """Writes a page of docs/reference, or says how it differs from the one that is there. Returns the exit code."""
    path = ROOT / "docs" / "reference" / name
    if not check:
        path.write_text(text, encoding="utf-8")
        return 0
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    if there == text:
        return 0
    where = f"docs/reference/{name}"
    sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True), where, "generated"))
    print(f"error: {where} is out of date: scripts/record.sh reference {path.stem}", file=sys.stderr)
    return 1
