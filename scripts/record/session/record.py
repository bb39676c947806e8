"""Runs a conversation with hone in a terminal of its own and writes it as an asciinema cast (version 2).

    record.py HONE MODELS CAST

MODELS is the folder of scripts/lib/fetch-test-models.sh.
The prompt of the shell and the command that is typed there are drawn; everything else is what hone writes. What is typed
waits for what it answers, so the recording is complete however fast the machine is.
"""

import codecs
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pyte

COLUMNS, LINES = 80, 24
# The conversation: what is typed, and what the screen shows once it is answered.
STEPS = [
    ("In which city is the Eiffel Tower?\r", r"◇ likely"),
    ("What colour is grass?\r", r"◇ likely wrong"),
    ("/why\r", r"Against it"),
    ("/bad\r", r"noted: a bad answer"),
]
# The longest wait for anything, in seconds.
PATIENCE = 120


class Recording:
    """The events of a cast: what was written, and when."""

    def __init__(self):
        self.began = time.monotonic()
        self.events = []

    def write(self, text):
        self.events.append([round(time.monotonic() - self.began, 3), "o", text])

    def save(self, path):
        header = {"version": 2, "width": COLUMNS, "height": LINES, "title": "hone answers and grades itself"}
        lines = [header, *self.events]
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


class Terminal:
    """hone in a terminal, which answers what programs ask terminals."""

    def __init__(self, recording, command, environment):
        self.recording = recording
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.Stream(self.screen)
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.program = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def read(self, seconds):
        """Reads for a while; false once there is nothing more to come."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                return True
            try:
                text = self.decoder.decode(os.read(self.master, 65536))
            except OSError:
                return False
            self.recording.write(text)
            self.stream.feed(text)
            # The line editor asks where the cursor is.
            if "\x1b[6n" in text:
                cursor = self.screen.cursor
                os.write(self.master, f"\x1b[{cursor.y + 1};{cursor.x + 1}R".encode())
        return True

    def wait_for(self, pattern):
        until = time.monotonic() + PATIENCE
        while not re.search(pattern, "\n".join(self.screen.display)):
            if time.monotonic() > until:
                sys.exit(f"nothing like {pattern!r} on the screen:\n" + "\n".join(self.screen.display))
            self.read(0.1)

    def type(self, text, pauses):
        for character in text:
            os.write(self.master, character.encode())
            self.read(pauses.uniform(0.04, 0.09))


def converse(recording, hone, environment, pauses):
    recording.write("$ ")
    time.sleep(0.6)
    for character in "hone chat":
        recording.write(character)
        time.sleep(pauses.uniform(0.04, 0.09))
    recording.write("\r\n")
    terminal = Terminal(recording, [hone, "chat", "--seed", "2"], environment)
    terminal.wait_for(r"\n> *\n")
    for typed, answered in STEPS:
        terminal.read(1)
        terminal.type(typed, pauses)
        terminal.wait_for(answered)
    terminal.read(1.5)
    terminal.type("\x04", pauses)
    while terminal.read(1):
        pass
    if status := terminal.program.wait(PATIENCE):
        sys.exit(f"hone ended with {status}")
    recording.write("$ ")


def main():
    hone, models, cast = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        names = ("PATH", "LANG", "TMPDIR")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= {"TERM": "xterm-256color", "HONE_HOME": home, "HONE_CONFIG": f"{home}/config", "HONE_OFFLINE": "1"}
        environment["HONE_MEMORY_EMBEDDER"] = f"{models}/all-MiniLM-L6-v2"
        model = f"{models}/SmolLM2-135M-Instruct.Q4_1.gguf"
        subprocess.run([hone, "pull", model, "--name", "smollm2:135m"], env=environment, check=True, capture_output=True)
        pathlib.Path(home, "config").mkdir()
        # The hint to a better model depends on the machine.
        pathlib.Path(home, "hinted").write_text("true")
        recording = Recording()
        converse(recording, hone, environment, random.Random(1))
    recording.save(pathlib.Path(cast))


main()
