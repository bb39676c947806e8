#!/usr/bin/env python3
"""Runs the examples of README.md, CONTRIBUTING.md and docs/, as a reader who copies them does.

The commands of a page run in their order, in a home and a folder of their own, without network access, with the
built-in model under the names of the models that the page installs. A command passes if it ends with exit status 0 and
prints what its comment or the lines below it show. Servers listen at the port that the page names. Settings are read by
`hone config`; programs in Python and JavaScript run with the versions of the packages that their page names.
scripts/checks/examples.toml says what has to be there beforehand, and which commands are run otherwise, or only parsed,
and why. Commands within the text are parsed, too. docs/reference/commands.md has to be what the program's help says.

    scripts/check.sh examples
    scripts/checks/examples.py docs/memory.md

HONE names another program than the debug build.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

sys.dont_write_bytecode = True
import words

ROOT = words.ROOT
KNOWN = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# Pages whose examples nobody types.
EXEMPT = ("CHANGELOG.md", "docs/decisions/", "docs/reference/")
COMMANDS = ("sh", "console")
BUILT_IN = "smollm2:135m"
EMBEDDER = "all-minilm:l6-v2"
# Where the examples reach their server.
PORT = 11435
# Seconds that a command may take; far more than any does.
PATIENCE = 120
# The exit status that says that this machine cannot run the check.
NOT_HERE = 77
# How many lines of a failed command's output are shown.
SHOWN = 12


@dataclasses.dataclass
class Example:
    """A command, or the whole content of a block of another language."""

    page: str
    line: int
    language: str
    text: str
    # The lines that it prints, where the page shows them.
    shown: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Outcome:
    """An example was run, parsed or left out, the latter two for a reason; and what is wrong with it."""

    how: str
    why: str = ""
    wrong: str = ""


class Wrong(Exception):
    """An example does not hold."""


# --- Pages and their examples


def pages(names):
    found = [page for page in words.pages() if not page.name.startswith(EXEMPT)]
    if unknown := sorted(set(names) - {page.name for page in found}):
        raise SystemExit(f"error: {', '.join(unknown)}: no examples are read there")
    return [page for page in found if not names or page.name in names]


def is_complete(command):
    """Whether a shell would not wait for another line."""
    parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
    return parsed.returncode == 0 and not command.endswith("\\")


def commands(page, number, language, lines):
    """The commands of a block; in a transcript, with the lines that they print."""
    found, begun = [], None
    for line_number, line in enumerate(lines, number + 1):
        if language == "console" and not begun and not line.startswith("$ "):
            found[-1].shown.append(line)
            continue
        begun = begun or Example(page.name, line_number, language, "")
        begun.text += ("\n" if begun.text else "") + (line.removeprefix("$ ") if language == "console" else line)
        if is_complete(begun.text):
            found += [begun] if begun.text.strip() else []
            begun = None
    # What no shell takes fails when it is run.
    return [*found, begun] if begun else found


def examples(page):
    for number, language, lines in page.blocks:
        if language in COMMANDS:
            yield from commands(page, number, language, lines)
        else:
            yield Example(page.name, number + 1, language, "\n".join(lines) + "\n")


def commands_within(page):
    """The commands of hone that stand in the text, each once."""
    seen = set()
    for number, text in words.paragraphs(page):
        for command in re.findall(r"`(hone [a-z][^`]*)`", text):
            if command not in seen:
                seen.add(command)
                yield Example(page.name, number, "sh", command)


def without_comment(example):
    """A command without the comment behind it."""
    if example.language in COMMANDS:
        for comment in re.finditer(r"\s+# ", example.text):
            if is_complete(command := example.text[: comment.start()]):
                return command
    return example.text


def rows_for(example, kind):
    """The rows of a table of examples.toml that are about an example."""
    text = without_comment(example)
    for row in KNOWN[kind]:
        wanted = (row.get("page", example.page), row.get("language", example.language))
        if wanted == (example.page, example.language) and re.search(row.get("match", ""), text):
            yield row


def row_for(example, kind):
    return next(rows_for(example, kind), None)


def file_named_by(example):
    """The file that the first line of a block names, a comment."""
    named = re.match(r"# (\S+)\n", example.text) if example.language not in COMMANDS else None
    return named[1] if named else ""


# --- What all pages need


class Kit:
    """The program and the models."""

    def __init__(self, instruction_set=None):
        shell('. scripts/lib/programs.sh; install_programs "The examples" curl git node npm >&2')
        self.hone = shell('. scripts/lib/program.sh; build_program; echo "$hone"')
        self.models = pathlib.Path(shell("scripts/lib/fetch-test-models.sh"))
        self._folder = tempfile.TemporaryDirectory()
        scratch = pathlib.Path(self._folder.name)
        self.programs, self.parsers, self.home = scratch / "programs", scratch / "parsers", scratch / "home"
        chosen = f"export HONE_ENGINE_INSTRUCTION_SET={instruction_set}\n" if instruction_set else ""
        write_script(self.programs / "hone", f'{chosen}exec "{self.hone}" "$@"')
        # To `hone launch`, all that follows an agent's name is the agent's; with --print it starts none.
        write_script(self.parsers / "hone", f'[ "$1" = launch ] || set -- "$@" --help\nexec "{self.hone}" "$@"')
        # `hone serve --open` opens no browser.
        for opener in ("xdg-open", "open"):
            write_script(self.programs / opener, ":")
        self._install_built_in()

    def _install_built_in(self):
        environment = own_environment() | {"HONE_HOME": str(self.home), "HONE_OFFLINE": "1"}
        command = [self.hone, "pull", self.models / "SmolLM2-135M-Instruct.Q4_1.gguf", "--name", BUILT_IN]
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def install(self, names, home):
        """Installs the built-in model in a home, also under these names, and the embedder."""
        source = folder_of(self.home, BUILT_IN)
        manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
        for name in [BUILT_IN, *names]:
            folder = folder_of(home, name)
            link(source / "model.gguf", folder / "model.gguf")
            write_manifest(folder, manifest | {"name": name})
        self._install_embedder(home)

    def _install_embedder(self, home):
        """As `hone pull` does, which would download it."""
        folder, records = folder_of(home, EMBEDDER), []
        for path in (self.models / "all-MiniLM-L6-v2").iterdir():
            link(path, folder / path.name)
            data = path.read_bytes()
            records.append({"name": path.name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)})
        write_manifest(folder, {"name": EMBEDDER, "source": "tests", "added": 0, "files": records})

    def close(self):
        self._folder.cleanup()


def shell(script):
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def folder_of(home, model):
    return home / "models" / model.replace(":", "@")


def link(source, target):
    """A file under another name, without a copy where the file system can do that."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_manifest(folder, manifest):
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def own_environment():
    """This process's variables without those that hone or its clients read."""
    foreign = re.compile(r"(?:HONE|XDG|OLLAMA|OPENAI|ANTHROPIC|LLM|HF|LLAMA|GIT)_")
    return {name: value for name, value in os.environ.items() if not foreign.match(name)}


# --- Packages of the clients


PACKAGES = ROOT / "target" / "example-packages"


def languages(page):
    return {language for _, language, _ in page.blocks}


def packages_of(page):
    """The versions that a page says it was tested with, and those that examples.toml adds."""
    first = next((text for _, text in words.paragraphs(page) if text.startswith("Tested with")), "")
    tested = re.findall(r"`([\w-]+==[\d.]+)`", first) if needs_packages(page) else []
    return sorted({*tested, *known(page).get("packages", [])})


def known(page):
    return KNOWN["pages"].get(page.name, {})


def needs_packages(page):
    return bool(languages(page) & {"python", "js"}) or "packages" in known(page)


def environment_of(page):
    """The folder with the packages of a page: LiteLLM demands other versions than the others do."""
    return PACKAGES / ("litellm" if page.name.endswith("litellm.md") else "python")


def install_packages(chosen):
    """Installs the packages of these pages with those of the pages that share their folder, unless they are there."""
    wanted = collections.defaultdict(set)
    for page in pages([]):
        wanted[environment_of(page)].update(packages_of(page))
    for folder in {environment_of(page) for page in chosen}:
        install_python(folder, sorted(wanted[folder]))
    if any("js" in languages(page) for page in chosen):
        install_node(PACKAGES / "node")


def is_installed(folder, text):
    """Whether a folder was installed for this text."""
    marker = folder / "installed-for"
    return marker.exists() and marker.read_text(encoding="utf-8") == text


def install_python(folder, packages):
    text = " ".join(packages)
    if not is_installed(folder, text):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        (folder / "installed-for").write_text(text, encoding="utf-8")


def install_node(folder):
    source = ROOT / "tests" / "clients"
    text = (source / "package-lock.json").read_text(encoding="utf-8")
    if not is_installed(folder, text):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy2(source / name, folder)
        subprocess.run(["npm", "ci", "--prefix", folder, "--no-audit", "--no-fund", "--silent"], check=True)
        (folder / "installed-for").write_text(text, encoding="utf-8")


# --- Running commands


class Machine:
    """The machine of one reader: a home, a folder to work in, and what runs in the background."""

    def __init__(self, kit, folder, variables, tools):
        self.home, self.folder = folder / "home", folder / "work"
        self._logs, self._last = folder / "logs", folder / "last"
        # What runs in the background: its process, and its row in examples.toml, by that row's pattern.
        self._exports, self._lasting = "", {}
        self._logs.mkdir(parents=True)
        for path in (self.folder, self.home, temporary := folder / "tmp"):
            path.mkdir(parents=True)
        (self.home / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n", encoding="utf-8")
        self.data = self.home / ".local" / "share" / "hone"
        own = {
            "HOME": self.home, "HONE_HOME": self.data, "HONE_OFFLINE": "1", "ROOT": ROOT, "LAST": self._last,
            "PATH": ":".join(map(str, [kit.programs, *tools, os.environ["PATH"]])), "TERM": "dumb",
            "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._environment = own_environment() | {name: str(value) for name, value in own.items()} | variables

    def _start(self, text, **streams):
        script = f"set -o pipefail\n{self._exports}{text}"
        return subprocess.Popen(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, start_new_session=True, **streams)

    def run(self, text):
        """The exit status of a command, and what it prints."""
        with self._start(text, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            return self._ended(text, process, process.stdout.fileno())

    def run_in_terminal(self, text, typed):
        """The same in a terminal that moves no cursor, with lines that are typed at once."""
        keyboard, screen = pty.openpty()
        try:
            name = os.ttyname(screen)
            os.write(keyboard, typed.encode())
            # The first terminal that a session opens becomes its own.
            with self._start(f"exec <{name}\n{text}", stdin=screen, stdout=screen, stderr=screen) as process:
                os.close(screen)
                return self._ended(text, process, keyboard)
        finally:
            os.close(keyboard)

    def _ended(self, text, process, stream):
        output = read(process, stream)
        self._last.write_text(output, encoding="utf-8")
        if text.startswith("export "):
            self._exports += text + "\n"
        return process.wait(), output

    def run_lasting(self, text, row):
        """Starts what ends when it is told to, and waits until it is ready. Returns what it has printed."""
        kind = row["match"]
        self._stop(kind)
        path = self._logs / str(len(self._lasting))
        with path.open("wb") as log:
            process = self._start(text, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._lasting[kind] = (process, path, row)
        until = time.monotonic() + PATIENCE
        while not re.search(row["ready"], output := path.read_text(encoding="utf-8", errors="replace")):
            if process.poll() is not None:
                del self._lasting[kind]
                raise Wrong(failure(process.poll(), output))
            if time.monotonic() > until:
                raise Wrong(failure(None, output))
            time.sleep(0.02)
        return output

    def _stop(self, kind):
        """Ends with Ctrl-C what was started so."""
        if kind not in self._lasting:
            return
        process, log, row = self._lasting.pop(kind)
        signal_group(process, signal.SIGINT)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            signal_group(process, signal.SIGKILL)
            status = None
        if status not in (0, 130, -signal.SIGINT, row.get("ends_with")):
            output = log.read_text(encoding="utf-8", errors="replace")
            raise Wrong(f"after Ctrl-C: {failure(status, output)}")

    def stop(self):
        """Ends what runs in the background, the latest first."""
        for kind in reversed(list(self._lasting)):
            self._stop(kind)

    def kill(self):
        for process, _, _ in self._lasting.values():
            signal_group(process, signal.SIGKILL)


def signal_group(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def read(process, stream):
    """Everything that a process writes. It is killed if that takes too long."""
    output = b""
    timer = threading.Timer(PATIENCE, signal_group, (process, signal.SIGKILL))
    timer.start()
    # A terminal that nobody has open any more cannot be read.
    with contextlib.suppress(OSError):
        while piece := os.read(stream, 1 << 16):
            output += piece
    timer.cancel()
    return output.decode(errors="replace").replace("\r\n", "\n")


def failure(status, output):
    ended = f"did not end within {PATIENCE} seconds" if status in (None, -signal.SIGKILL) else f"exit status {status}"
    return "\n".join([ended, *output.rstrip().splitlines()[-SHOWN:]])


def changed(example):
    """A command without what would take long, or start what is not there."""
    text = without_comment(example)
    for row in rows_for(example, "instead"):
        text = re.sub(row["match"], row["text"], text)
    return text


def filled_in(machine, example):
    """A command with a reader's own ids in the place of words that stand for them."""
    text = changed(example)
    for row in rows_for(example, "placeholder"):
        status, output = machine.run(row["command"])
        if status or not output.strip():
            raise Wrong(f"there is nothing to put in the place of {row['name']}: {failure(status, output)}")
        text = re.sub(rf"\b{row['name']}\b", output.strip(), text)
    return text


def run_command(machine, example):
    """Runs a command. Returns what it printed."""
    text = filled_in(machine, example)
    if row := row_for(example, "lasting"):
        return machine.run_lasting(text, row)
    typed = row_for(example, "typed")
    status, output = machine.run_in_terminal(text, typed["text"]) if typed else machine.run(text)
    row = row_for(example, "status")
    if status not in (row["may_be"] if row else [0]):
        raise Wrong(failure(status, output))
    return output


def check_comment(example, output):
    """JSON and addresses in a comment are what the command prints."""
    promised = re.search(r"\s#\s+(\{.*\}|http\S+)$", example.text)
    if promised and promised[1] not in output:
        raise Wrong(f"does not print {promised[1]}, but\n{output.rstrip()}")


def check_shown(example, output):
    printed = [line.rstrip() for line in output.rstrip().splitlines()]
    if printed != [line.rstrip() for line in example.shown]:
        raise Wrong("\n".join(["prints something else:", *printed]))


def is_as_recorded(machine):
    """Whether this processor chooses the words of the transcripts: instruction sets differ in the last bits."""
    _, output = machine.run("hone doctor --json")
    return "avx512vnni" in output


# --- Checking pages


class Reader:
    """A reader of a page, who follows its examples."""

    def __init__(self, kit, page, folder):
        self.kit, self.page, self.scratch, self.known = kit, page, folder, known(page)
        self.machine = self._new_machine("reader", self.known.get("models", []))

    def _new_machine(self, name, models):
        tools = [environment_of(self.page) / "bin"] if needs_packages(self.page) else []
        variables = KNOWN["environment"] | self.known.get("environment", {})
        machine = Machine(self.kit, self.scratch / name, variables, tools)
        self.kit.install(models, machine.data)
        self._write_files(machine.folder)
        return machine

    def _write_files(self, folder):
        texts = {name: KNOWN["files"][name].lstrip("\n") for name in self.known.get("files", [])}
        # A command may come before the file that it reads.
        shown = {file_named_by(example): example.text for example in examples(self.page)}
        texts |= {name: text for name, text in shown.items() if re.match(r"\w", name)}
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if "js" in languages(self.page):
            (folder / "node_modules").symlink_to(PACKAGES / "node" / "node_modules")

    def follow(self):
        """Yields each example with its outcome. What is to be done beforehand is one only if it fails."""
        for command in self.known.get("before", []):
            example = Example(self.page.name, 1, "sh", command)
            if (outcome := attempt(self._run, example)).wrong:
                yield example, outcome
        for example in examples(self.page):
            yield example, attempt(self._follow, example)
        for example in commands_within(self.page):
            yield example, attempt(self._parse, example, "in the text")
        try:
            self.machine.stop()
        except Wrong as wrong:
            yield Example(self.page.name, 1, "sh", "what lasts"), Outcome("run", wrong=str(wrong))

    def close(self):
        self.machine.kill()

    def _follow(self, example):
        if row := row_for(example, "left_out"):
            return Outcome("left out", row["why"])
        if row := row_for(example, "parsed"):
            return self._parse(example, row["why"])
        if example.language == "console":
            return self._transcribe(example)
        return self._run(example) if example.language in COMMANDS else self._use(example)

    def _run(self, example):
        check_comment(example, run_command(self.machine, example))
        for row in rows_for(example, "after"):
            run_command(self.machine, dataclasses.replace(example, text=row["run"]))
        return Outcome("run")

    def _transcribe(self, example):
        """Transcripts are those of a new installation."""
        machine = self._new_machine(f"reader-{example.line}", [])
        output = run_command(machine, example)
        if not is_as_recorded(machine):
            return Outcome("run", "not compared: another instruction set")
        check_shown(example, output)
        return Outcome("run")

    def _parse(self, example, why):
        program = example.text.split()[0]
        if program == "hone":
            path = f"PATH={shlex.quote(str(self.kit.parsers))}:$PATH"
            status, output = self.machine.run(f"{path}\n{changed(example)}")
            if status:
                raise Wrong(failure(status, output))
        elif "/" in program and not os.access(ROOT / program, os.X_OK):
            raise Wrong(f"{program} does not exist")
        elif not is_complete(example.text):
            raise Wrong("is not what a shell takes")
        return Outcome("parsed", why)

    def _use(self, example):
        """Puts a file that the page shows in its place, and has it read by what it is for."""
        row = row_for(example, "content")
        if row is None:
            raise Wrong(f"{pathlib.Path(__file__).stem}.toml does not say what it is for")
        name = row.get("save") or file_named_by(example)
        path = self.machine.folder / name.replace("~", str(self.scratch / "elsewhere"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(example.text, encoding="utf-8")
        status, output = self.machine.run(row["run"].replace("FILE", shlex.quote(str(path))))
        if status:
            raise Wrong(failure(status, output))
        return Outcome("run")


def attempt(check, example, *more):
    try:
        return check(example, *more)
    except Wrong as wrong:
        return Outcome("run", wrong=str(wrong))


def followed(kit, page, folder):
    with contextlib.closing(Reader(kit, page, folder)) as reader:
        yield from reader.follow()


def check_page(kit, page, is_verbose):
    """Prints how many examples were run, parsed and left out, and what is wrong. Returns how many are wrong."""
    counts, wrong, begin = collections.Counter(), [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        begun = begin
        for example, outcome in followed(kit, page, pathlib.Path(folder)):
            counts[outcome.how, outcome.why] += 1
            wrong += [described(example, outcome)] if outcome.wrong else []
            if is_verbose:
                print_example(example, outcome, time.monotonic() - begun)
            begun = time.monotonic()
    print(f"{page.name}: {summary(counts)}; {time.monotonic() - begin:.0f} s")
    print("".join(f"{each}\n" for each in wrong), end="", flush=True)
    return len(wrong)


def print_example(example, outcome, seconds):
    first = without_comment(example).splitlines()[0]
    print(f"{seconds:6.1f} s  {example.line:4}  {outcome.how:8}  {first}", flush=True)


def described(example, outcome):
    command = example.text if example.language in COMMANDS else f"the block of {example.language}"
    return f"{example.page}:{example.line}: {command}\n    " + outcome.wrong.replace("\n", "\n    ")


def summary(counts):
    parts = []
    for how in ("run", "parsed", "left out"):
        n_examples = sum(count for (each, _), count in counts.items() if each == how)
        reasons = [f"{count}: {why}" for (each, why), count in counts.items() if each == how and why]
        if n_examples:
            parts.append(f"{n_examples} {how}" + (f" ({'; '.join(reasons)})" if reasons else ""))
    return ", ".join(parts) or "no examples"


def check_reference(kit):
    """Returns whether the reference of the commands differs from the program's help."""
    command = [sys.executable, "-B", "scripts/record/reference/commands.py", "--check", kit.hone]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def port_is_taken():
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


def check(kit, chosen, is_verbose):
    # Packages are installed while the pages are checked that need none.
    order = sorted(chosen, key=needs_packages)
    n_wrong = 0
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        installed = beside.submit(install_packages, [page for page in order if needs_packages(page)])
        for page in order:
            if needs_packages(page):
                installed.result()
            n_wrong += check_page(kit, page, is_verbose)
    return n_wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", metavar="PAGE", nargs="*", help="check these pages alone, such as docs/memory.md")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every example with its seconds")
    parser.add_argument("--instruction-set", metavar="SET", help="run hone with these kernels, such as avx2")
    options = parser.parse_args()
    chosen = pages(options.pages)
    if port_is_taken():
        print(f"error: another program listens at port {PORT}, where the examples reach their server", file=sys.stderr)
        return NOT_HERE
    with contextlib.closing(Kit(options.instruction_set)) as kit:
        n_wrong = 0 if options.pages else check_reference(kit)
        n_wrong += check(kit, chosen, options.verbose)
    print(f"{n_wrong} examples are wrong" if n_wrong else "the examples hold")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
