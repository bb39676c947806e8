"""Writes docs/reference/configuration.md from config/*.toml. With --check it compares the page.

    python3 scripts/record/reference/configuration.py [--check]
"""

import re
import sys
import tomllib

from page import ROOT, WIDTH, wrapped, write_or_check

# The files of settings, in the order of the page.
SECTIONS = [
    "engine",
    "sampling",
    "chat",
    "judge",
    "memory",
    "server",
    "gate",
    "review",
    "critique",
    "notes",
    "research",
    "bus",
]
INTRODUCTION = """\
# Configuration reference

<!-- Written by scripts/record.sh reference configuration. Edit the comments in config/ instead. -->

Every setting has a default in [config/](../../config). A setting is overridden, in this order, by:

1. a file of the same name in your configuration folder: `~/.config/hone/engine.toml` for the section `engine`. The
   folder is `$XDG_CONFIG_HOME/hone` if that variable is set, or the one that `HONE_CONFIG` names;
2. a variable named after the key: `HONE_ENGINE_MODEL` for `engine.model`;
3. a flag, if the command has one: `--model`;
4. in a chat, `/set` for the sampling settings.

`hone config` shows the value of every key and its source. An unknown key is an error that names the key.

Four more variables are not settings: `HONE_HOME` is the folder for models, memory and conversations, `HONE_CONFIG` the
folder for configuration files, `HONE_OFFLINE=1` disables downloads and requests to MCP servers on other machines, and
`HONE_LOG` filters the log.
"""


def read(name):
    text = (ROOT / "config" / f"{name}.toml").read_text(encoding="utf-8")
    return text, tomllib.loads(text)


def blocks(text):
    """The file in groups: the lines of a comment, and the keys and headers that follow it without another comment."""
    comment, names, inside = [], [], None
    for line in [*text.splitlines(), ""]:
        if inside:
            inside = None if closes(line, inside) else inside
            continue
        if line.startswith("#") or not line.strip():
            if names:
                yield comment, names
                comment, names = [], []
            if line.startswith("#"):
                comment.append(line.removeprefix("#").removeprefix(" "))
            elif comment:
                yield comment, []
                comment = []
            continue
        match = re.match(r"(\[+[\w.-]+\]+|[\w-]+) *(?:= *(.*))?", line)
        names.append(match[1])
        inside = opens(match[2] or "")
    if names or comment:
        yield comment, names


def opens(value):
    """What ends a value that goes on in the next line."""
    if value.startswith('"""') and value.count('"""') == 1:
        return '"""'
    if value.startswith("[") and "]" not in value:
        return "]"
    return None


def closes(line, end):
    return line.rstrip().endswith(end)


def shown(value, file):
    """A default, in TOML."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        if "\n" in value or len(value) > 80:
            return f"the text in [config/{file}.toml](../../config/{file}.toml)"
        return f"`{quoted(value)}`"
    if isinstance(value, list):
        text = "[" + ", ".join(quoted(item) if isinstance(item, str) else str(item) for item in value) + "]"
        return f"`{text}`" if len(text) <= 80 else f"the list in [config/{file}.toml](../../config/{file}.toml)"
    return f"`{value}`"


def quoted(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def paragraph(comment):
    """A comment as one paragraph."""
    return escaped_prose(" ".join(line.strip() for line in comment if line.strip()))


def escaped_prose(text):
    """Text outside of code spans, with what Markdown would read as markup escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    markup = r"([<\\]|\*(?=\S)|\b_(?!\w)|(?<!\w)_)"
    return "".join(part if part.startswith("`") else re.sub(markup, r"\\\1", part) for part in parts)


def entry(comment, keys, table, file):
    """The lines for keys that share a comment."""
    head = ", ".join(f"**`{key}`** = {shown(table[key], file)}" for key in keys)
    yield wrapped(f"- {head}").replace("\n", "\n  ")
    if comment:
        yield ""
        yield wrapped(paragraph(comment), "  ")
    yield ""


def section(name):
    text, table = read(name)
    yield f"## {name}"
    yield ""
    yield f"File [config/{name}.toml](../../config/{name}.toml), keys `{name}.KEY`, variables `HONE_{name.upper()}_KEY`."
    yield ""
    for comment, keys in blocks(text):
        if keys:
            yield from entry(comment, keys, table, name)
        elif comment:
            yield wrapped(paragraph(comment))
            yield ""


def judges():
    text, table = read("judges")
    yield "## judges"
    yield ""
    yield "File [config/judges.toml](../../config/judges.toml), keys `judges.PROFILE.KEY`."
    yield ""
    keys_of_plain = False
    for comment, keys in blocks(text):
        if keys and keys[0] == "[plain]":
            yield "### Keys of a profile"
            yield ""
            yield "The defaults are those of `plain`."
            yield ""
            keys_of_plain, keys = True, keys[1:]
        elif keys and keys[0].startswith("["):
            break
        if keys:
            yield from entry(comment, keys, table["plain"], "judges")
        elif comment and not keys_of_plain:
            yield from prose(comment)
        elif comment:
            yield wrapped(paragraph(comment))
            yield ""
    yield "### Profiles"
    yield ""
    for name, profile in table.items():
        about = " ".join(profile.get("about", "").split())
        yield wrapped(f"- **`{name}`**: {escaped_prose(about)}").replace("\n", "\n  ")
    yield ""


def prose(comment):
    """A comment of several paragraphs, which empty lines separate."""
    lines = []
    for line in [*comment, ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            yield wrapped(paragraph(lines))
            yield ""
            lines = []


def described_keys(comment):
    """The keys that a comment at the top of a file describes: a name, two spaces, and the text, which may go on below it."""
    introduction, keys = [], []
    for line in comment:
        match = re.match(r"((?:[a-z_]+, )*[a-z_]+) {2,}(\S.*)$", line)
        if match:
            keys.append((match[1], [match[2]]))
        elif keys and line.strip():
            keys[-1][1].append(line)
        elif line.strip():
            introduction.append(line)
    return introduction, keys


def tables(name, names_of):
    """A file of tables of one kind, whose keys the comment at its top describes."""
    text, table = read(name)
    comment = next(comment for comment, _ in blocks(text))
    introduction, keys = described_keys(comment)
    yield f"## {name}"
    yield ""
    yield f"File [config/{name}.toml](../../config/{name}.toml)."
    yield ""
    yield wrapped(paragraph(introduction))
    yield ""
    for names, about in keys:
        each = ", ".join(f"**`{key}`**" for key in names.split(", "))
        yield wrapped(f"- {each}: {paragraph(about)}").replace("\n", "\n  ")
    yield ""
    yield wrapped(f"The tables of the defaults are {names_of(table)}.")
    yield ""


def listed(names):
    return ", ".join(f"`{name}`" for name in names)


def folders():
    yield "## rubrics"
    yield ""
    yield wrapped(
        "Folder [config/rubrics](../../config/rubrics). A rubric has a `criterion` and the meaning of each of five `scores`. "
        "A file `NAME.toml` in the folder `rubrics` of your configuration adds one, and `judge.rubric` or `--rubric` chooses it."
    )
    yield ""
    for path in sorted((ROOT / "config" / "rubrics").glob("*.toml")):
        criterion = tomllib.loads(path.read_text(encoding="utf-8"))["criterion"]
        yield wrapped(f"- **`{path.stem}`**: {escaped_prose(criterion)}").replace("\n", "\n  ")
    yield ""
    yield "## Files that are not settings"
    yield ""
    yield wrapped(
        "[config/examination](../../config/examination) has the questions that judges are examined with, and "
        "[config/likelihood.toml](../../config/likelihood.toml) the fitted coefficients of the likelihood judge. "
        "Both are compiled into the program, and no file of yours replaces them."
    )


def page():
    yield INTRODUCTION
    for name in SECTIONS:
        yield from section(name)
    yield from judges()
    yield from tables("evaluators", listed)
    yield from tables("phases", lambda table: listed(phase["name"] for phase in table["phases"]))
    yield from folders()


def main():
    known = {*SECTIONS, "judges", "evaluators", "phases", "likelihood", "launch"}
    there = {path.stem for path in (ROOT / "config").glob("*.toml")}
    if known != there:
        sys.exit(f"error: scripts/record/reference/configuration.py does not fit config/: {sorted(known ^ there)}")
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(page())).rstrip() + "\n"
    assert max(map(len, text.splitlines())) <= WIDTH + 4, [line for line in text.splitlines() if len(line) > WIDTH + 4]
    sys.exit(write_or_check("configuration.md", text, "--check" in sys.argv[1:]))


main()
