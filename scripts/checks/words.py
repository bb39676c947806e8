#!/usr/bin/env python3
"""Checks the words that people read: README.md, CONTRIBUTING.md, CHANGELOG.md, docs/ and the texts of the page.

It finds openings of sentences and phrases that read translated, a README that is longer than a page, lines that are too wide, links
that lead nowhere, pages that docs/SUMMARY.md does not list, commands and flags in examples that the program does not have, and a
docs/reference/configuration.md, or figures of the likelihood judge, that are out of date.

    scripts/check.sh words
"""

import dataclasses
import html.parser
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
README_LINES = 120
WIDTH = 120

# Sentences may not begin so.
OPENING = re.compile(r"(?:What\b|That of\b|Those of\b|The same(?:,| (?:of|as|for|where|is|with|holds)\b))")
# Nor may a text hold one of these.
PHRASES = re.compile(
    r"\b(?:cannot be had|is there no more|so many as|whoever asks|for ever|lets? go of|because cancelled|is none|none that there is)\b",
    re.IGNORECASE,
)
# Between two sentences, or two cells of a table.
BOUNDARY = re.compile(r"(?<=[.!?:])[*_]*\s+|\s*\|\s*")
# Decisions are a record, and the reference of the commands is the program's own help.
EXEMPT = ("docs/decisions/", "docs/reference/commands.md")


@dataclasses.dataclass
class Page:
    """A page of Markdown without its code blocks."""

    path: pathlib.Path
    lines: list[tuple[int, str]]
    blocks: list[tuple[int, str, list[str]]]

    @property
    def name(self):
        return self.path.relative_to(ROOT).as_posix()


def read_page(path):
    """The lines of prose with their numbers, and the code blocks with the number and the language of each."""
    lines, blocks, block = [], [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            if block:
                blocks.append(block)
                block = None
            else:
                block = (number, line.strip().removeprefix("```"), [])
        elif block:
            block[2].append(line)
        else:
            lines.append((number, line))
    return Page(path, lines, blocks)


def pages():
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [read_page(path) for path in paths + sorted((ROOT / "docs").rglob("*.md"))]


def paragraphs(page):
    """The text of each paragraph, item, cell or heading with the number of its first line."""
    start, words = 0, []
    for number, line in [*page.lines, (0, "")]:
        begins = re.match(r"\s*(?:[-*#>|]|\d+\.|$)", line)
        if begins and words:
            yield start, " ".join(words)
            words = []
        text = re.sub(r"^\s*(?:[-*>] |#+ |\d+\. )", "", line).strip()
        if text:
            start = start if words else number
            words.append(text)


def without_code(text):
    """The text with code, quotations and addresses replaced, so that they begin no sentence."""
    text = re.sub(r"`[^`]*`", "`code`", text)
    text = re.sub(r'"[^"]*"|“[^”]*”', '"text"', text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def wrong_words(text):
    """The openings and phrases that are wrong in a paragraph. A question may begin with What."""
    plain = without_code(text)
    for sentence in BOUNDARY.split(plain):
        sentence = sentence.strip("*_( ")
        if OPENING.match(sentence) and not sentence.endswith("?"):
            yield f"a sentence begins so: {sentence[:60]}"
    for match in PHRASES.finditer(plain):
        yield f"say it otherwise: {match[0]}"


def check_words(page):
    if not page.name.startswith(EXEMPT):
        for number, text in paragraphs(page):
            for wrong in wrong_words(text):
                yield f"{page.name}:{number}: {wrong}"


def check_width(page):
    """Tables and lines of a single address cannot be wrapped."""
    if page.name.startswith(EXEMPT):
        return
    for number, line in page.lines:
        if len(line) > WIDTH and not line.startswith(("|", "![")):
            yield f"{page.name}:{number}: {len(line)} columns; {WIDTH} are the limit"


def anchors(path):
    """The anchors of a page's headings, as they are made on the web."""
    found = set()
    for _, line in read_page(path).lines:
        heading = re.match(r"#+ +(.*)", line)
        if heading:
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            found.add(re.sub(r"[^\w -]", "", text).strip().replace(" ", "-"))
    return found


def check_links(page):
    for number, line in page.lines:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            place, _, anchor = target.partition("#")
            path = (page.path.parent / place).resolve() if place else page.path
            if not path.exists():
                yield f"{page.name}:{number}: {target} does not exist"
            elif anchor and anchor not in anchors(path):
                yield f"{page.name}:{number}: {target} has no such heading"


def check_summary():
    listed = {target for _, line in read_page(ROOT / "docs/SUMMARY.md").lines for target in re.findall(r"\]\(([^)]+)\)", line)}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        if name != "SUMMARY.md" and name not in listed and not name.startswith("decisions/"):
            yield f"docs/SUMMARY.md does not list {name}"


def known_commands():
    """The flags of every command, by its words, from the reference."""
    found = {}
    page = read_page(ROOT / "docs/reference/commands.md")
    headings = [(number, line) for number, line in page.lines if line.startswith("#") and " hone" in line]
    for (_, heading), (_, _, block) in zip(headings, page.blocks):
        flags = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", "\n".join(block))
        found[tuple(heading.lstrip("# ").split()[1:])] = {*flags, "--help", "--version"}
    return found


def examples(page):
    """The commands of hone in the examples of a page, as words."""
    for number, language, block in page.blocks:
        if language not in ("sh", "console"):
            continue
        lines = block if language == "sh" else [line[2:] for line in block if line.startswith("$ ")]
        for line in re.sub(r"\\\n *", " ", "\n".join(lines)).splitlines():
            # A quoted text is one word; a comment is none.
            line = re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", line)
            line = re.sub(r"(?:^|\s)#.*", "", line)
            for command in re.split(r"\||;|&&|<|>", line):
                words = command.split()
                if words and words[0] == "hone":
                    yield number, words[1:]


def check_examples(page, commands):
    for number, words in examples(page):
        command = ()
        while len(command) < len(words) and (*command, words[len(command)]) in commands:
            command = (*command, words[len(command)])
        rest = words[len(command) :]
        has_subcommands = any(other[: len(command)] == command and other != command for other in commands)
        if has_subcommands and rest and rest[0] != "TEXT" and not rest[0].startswith("-"):
            yield f"{page.name}:{number}: hone {' '.join(words)}: there is no such command"
        for word in rest:
            flag = word.split("=")[0]
            if re.match(r"--?[A-Za-z]", flag) and flag not in commands[command]:
                yield f"{page.name}:{number}: hone {' '.join(command)} takes no {flag}"


class Texts(html.parser.HTMLParser):
    """What a person reads or hears of an HTML file."""

    def __init__(self):
        super().__init__()
        self.found, self.hidden = [], False

    def handle_starttag(self, tag, attrs):
        self.hidden = tag in ("script", "style")
        spoken = [value for name, value in attrs if name in ("title", "placeholder", "aria-label", "alt") and value]
        self.found += [(self.getpos()[0], value) for value in spoken]

    def handle_endtag(self, tag):
        self.hidden = False

    def handle_data(self, data):
        if data.strip() and not self.hidden:
            self.found.append((self.getpos()[0], data.strip()))


def texts_of_script(text):
    """String literals of a script that have words, without comments."""
    text = re.sub(r"^\s*(?://|/?\*).*", "", text, flags=re.MULTILINE)
    for match in re.finditer(r"'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`", text):
        literal = next(group for group in match.groups() if group is not None)
        if " " in literal:
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"\$\{[^}]*\}", "`code`", literal)


def check_interface():
    """The texts of the web page."""
    for path in sorted((ROOT / "crates/server/page").iterdir()):
        text = path.read_text(encoding="utf-8") if path.suffix in (".html", ".js") else ""
        found = texts_of_script(text)
        if path.suffix == ".html":
            parser = Texts()
            parser.feed(text)
            found = parser.found
        for number, literal in found:
            for wrong in wrong_words(literal):
                yield f"{path.relative_to(ROOT).as_posix()}:{number}: {wrong}"


def check_help():
    """The program's own help, line by line: behind a command or a flag stands its description."""
    page = read_page(ROOT / "docs/reference/commands.md")
    for number, _, block in page.blocks:
        for offset, line in enumerate(block, 1):
            for wrong in wrong_words(re.split(r"\s{2,}", line.strip())[-1]):
                yield f"{page.name}:{number + offset}: {wrong}"


def check_readme():
    n_lines = len((ROOT / "README.md").read_text(encoding="utf-8").splitlines())
    if n_lines > README_LINES:
        yield f"README.md has {n_lines} lines; {README_LINES} are the limit: the rest belongs in docs/"


def check_configuration():
    command = [sys.executable, "-B", "scripts/record/reference/configuration.py", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        yield ran.stdout + ran.stderr.strip()


def check_figures():
    """The figures of the likelihood judge on its own answers are those that scripts/record.sh likelihood has written."""
    fit = tomllib.loads((ROOT / "config/likelihood.toml").read_text(encoding="utf-8"))["model"][0]["own"]
    auc = "{value:.2f} ({low:.2f} to {high:.2f})".format(**fit["auc"])
    marked = ["{correct} of {marked}".format(**fit[name]) for name in ("likely_right", "likely_wrong") if name in fit]
    for path, figures in {
        "README.md": marked, "docs/benchmarks.md": [auc, *marked], "docs/grades-and-judges.md": [auc],
    }.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        yield from (f"{path} does not say {figure!r}, as config/likelihood.toml does" for figure in figures if figure not in text)


def main():
    commands = known_commands()
    assert ("memory", "search") in commands and "--file" in commands["chat",], "docs/reference/commands.md was not understood"
    wrong = [*check_readme(), *check_help(), *check_summary(), *check_interface(), *check_configuration(), *check_figures()]
    n_examples = 0
    for page in pages():
        wrong += [*check_words(page), *check_width(page), *check_links(page), *check_examples(page, commands)]
        n_examples += len(list(examples(page)))
    print("\n".join(wrong) or f"the words are in order; {n_examples} examples have commands and flags that exist")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
