"""Tests of checks.py, in repositories of their own."""

import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import checks

CHECKS = """
[groups]
texts = ["texts"]

[first]
command = "scripts/first.sh"
proves = "the first thing"
paths = ["@texts"]

[second]
command = "echo ran >>../second"
proves = "the second thing"
crates = ["crates/top"]

[nightly]
command = "true"
proves = "a third thing"
paths = ["texts"]
manual = "needs a nightly toolchain"
"""

FILES = {
    ".ci/checks.toml": CHECKS,
    ".gitignore": "/ignored\n",
    "texts/a": "a",
    "other": "other",
    "scripts/first.sh": "# scripts/unrelated.sh\n. scripts/helper.sh\necho ran >>../first",
    "scripts/helper.sh": "true",
    "scripts/unrelated.sh": "true",
    "Cargo.toml": '[workspace.dependencies]\nbottom = { path = "crates/bottom" }\n'
    '[patch.crates-io]\nelsewhere = { path = "patched" }\n',
    "Cargo.lock": "",
    "patched/Cargo.toml": "",
    "crates/top/Cargo.toml": "[target.'cfg(unix)'.dependencies]\nbottom.workspace = true\n",
    "crates/top/tests/it.rs": "",
    "crates/bottom/Cargo.toml": '[dev-dependencies]\naside = { path = "../aside" }\n',
    "crates/bottom/src/lib.rs": "",
    "crates/bottom/tests/it.rs": "",
    "crates/aside/Cargo.toml": "",
}


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve() / "repository"
        self.root.mkdir()
        environment = {name: value for name, value in os.environ.items() if name != "HONE" and not name.startswith("GIT_")}
        self.enterContext(mock.patch.dict(os.environ, environment, clear=True))
        self.git("init", "--quiet")
        for name, text in FILES.items():
            self.write(name, text)
        self.commit()

    def git(self, *arguments):
        command = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.PIPE, text=True).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)

    def check(self, *arguments):
        """The exit status, and what was written."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                status = checks.carry_out(self.root, checks.parse(arguments))
            except SystemExit as error:
                status = error.code
        return status, output.getvalue()

    def states(self):
        _, output = self.check("--list")
        return {line.split()[0]: line.split()[1] for line in output.splitlines()}

    def ran(self, name):
        """How often a check has run."""
        marks = self.root.parent / name
        return len(marks.read_text().splitlines()) if marks.exists() else 0

    def assert_wrong(self, message, *arguments):
        with self.assertRaisesRegex(checks.Wrong, message):
            checks.carry_out(self.root, checks.parse(arguments))

    def test_what_passed_is_skipped_until_its_inputs_change(self):
        self.assertEqual(self.states(), {"first": "never", "second": "never", "nightly": "manual"})
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.states(), {"first": "passed", "second": "passed", "nightly": "manual"})
        self.assertEqual(self.check()[0], 0)
        self.assertEqual((self.ran("first"), self.ran("second")), (1, 1))
        self.write("texts/a", "b")
        self.assertEqual(self.states(), {"first": "changed", "second": "passed", "nightly": "manual"})
        self.check()
        self.assertEqual((self.ran("first"), self.ran("second")), (2, 1))

    def test_committing_changes_nothing(self):
        self.write("texts/new", "not yet added")
        self.check()
        self.commit()
        self.assertEqual(self.states()["first"], "passed")
        clone = self.root.parent / "clone"
        self.git("clone", "--quiet", str(self.root), str(clone))
        self.root = clone
        self.assertEqual(self.states()["first"], "passed")

    def test_the_repository_is_left_alone(self):
        self.write("texts/new", "not yet added")
        before = self.git("status", "--porcelain"), self.git("count-objects")
        self.check("--dry-run")
        self.assertEqual((self.git("status", "--porcelain"), self.git("count-objects")), before)

    def test_each_input_counts_and_nothing_else_does(self):
        self.check()
        self.commit()
        inputs = {
            "first": ["texts/a", "texts/new", "scripts/first.sh", "scripts/helper.sh"],
            "second": ["Cargo.toml", "Cargo.lock", "crates/top/tests/it.rs", "crates/bottom/src/lib.rs",
                "patched/Cargo.toml"],
            "": ["other", "ignored", "scripts/unrelated.sh", "crates/bottom/tests/it.rs", "crates/aside/Cargo.toml"],
        }
        for name, paths in inputs.items():
            for path in paths:
                with self.subTest(path):
                    self.write(path, FILES.get(path, "") + "\n# another line")
                    changed = [each for each, state in self.states().items() if state == "changed"]
                    self.assertEqual(changed, [name] if name else [])
                    self.git("reset", "--quiet", "--hard")
                    self.git("clean", "--quiet", "--force")

    def test_another_command_is_another_check(self):
        self.check()
        self.write(".ci/checks.toml", CHECKS.replace('"echo ran >>../second"', '"echo ran >>../second; true"'))
        self.assertEqual(self.states()["second"], "changed")

    def test_all_that_fail_are_named_at_the_end(self):
        self.write("scripts/first.sh", "exit 1")
        status, output = self.check("--all")
        self.assertEqual((status, output.splitlines()[-1]), (1, "failed: first"))
        self.assertEqual(self.states(), {"first": "never", "second": "passed", "nightly": "passed"})

    def test_the_first_that_fails_can_be_the_last(self):
        self.write("scripts/first.sh", "exit 1")
        self.assertEqual(self.check("--fail-fast")[0], 1)
        self.assertEqual(self.ran("second"), 0)

    def test_what_a_machine_cannot_run_neither_passes_nor_fails(self):
        self.write("scripts/first.sh", "exit 77")
        status, output = self.check("first")
        self.assertEqual(status, 0)
        self.assertIn("not here", output)
        self.assertEqual(self.states()["first"], "never")

    def test_named_checks_run_even_if_nothing_has_changed(self):
        self.check("second", "nightly")
        self.check("second")
        self.assertEqual((self.ran("first"), self.ran("second")), (0, 2))
        self.assertEqual(self.states()["nightly"], "passed")

    def test_inputs_that_change_meanwhile_are_not_recorded(self):
        self.write("scripts/first.sh", "echo b >texts/a")
        self.assertEqual(self.check("first")[0], 0)
        self.assertEqual(self.states()["first"], "never")

    def test_other_runs_than_that_of_the_list_are_not_recorded(self):
        self.check("second", "--", "2>&1")
        with mock.patch.dict(os.environ, HONE="target/release/hone"):
            self.check("second")
        self.assertEqual((self.ran("second"), self.states()["second"]), (2, "never"))

    def test_a_dry_run_says_what_would_run(self):
        status, output = self.check("--dry-run")
        self.assertEqual((status, self.ran("first")), (0, 0))
        self.assertRegex(output, r"first +runs\n(.*\n)*nightly +skipped: manual")

    def test_a_row_that_rots_is_an_error(self):
        for old, new, message in [
            ("texts = [\"texts\"]", "texts = [\"gone\"]", "first: gone does not exist"),
            ("crates/top", "crates/gone", "second: crates/gone/Cargo.toml does not exist"),
            ("scripts/first.sh", "scripts/gone.sh", "first: scripts/gone.sh does not exist"),
            ("@texts", "@others", "first: there is no group of paths @others"),
            ("proves = \"the first thing\"", "shows = \"a thing\"", "first: .*shows"),
        ]:
            with self.subTest(message):
                self.write(".ci/checks.toml", CHECKS.replace(old, new))
                self.assert_wrong(message, "--list")

    def test_unknown_names_are_refused(self):
        self.assert_wrong("no check is called third", "first", "third")

    def test_lines_of_checks_that_are_gone_go(self):
        self.write(".ci/passed.toml", 'gone = "0"\n')
        self.check("second")
        self.assertEqual(sorted(checks.read_passed(self.root)), ["second"])

    def test_what_is_no_checkout_is_named(self):
        shutil.rmtree(self.root / ".git")
        self.assert_wrong("git rev-parse: .*not a git repository", "--list")

    def test_a_conflict_is_named(self):
        self.write(".ci/passed.toml", "<<<<<<< ours\n")
        self.assert_wrong("passed.toml", "--list")


class Rows(unittest.TestCase):
    def test_the_list_of_this_repository_is_sound(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        checks.hashes(root, checks.read_checks(root))


if __name__ == "__main__":
    unittest.main()
