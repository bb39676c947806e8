"""Tests of scripts/checks/words.py: it finds what it should, and leaves alone what is right."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
import words


class Words(unittest.TestCase):
    def check(self, text, *expected):
        found = list(words.wrong_words(text))
        self.assertEqual(len(found), len(expected), found)
        for part, wrong in zip(expected, found):
            self.assertIn(part, wrong)

    def test_openings_are_found(self):
        self.check("What was seen where", "What was seen where")
        self.check("It is fast. That of the judge is not.", "That of the judge")
        self.check("| setting | The same, for facts |", "The same, for facts")
        self.check("**Those of others** differ.", "Those of others")

    def test_questions_code_and_quotations_are_left_alone(self):
        self.check("What is the capital of France?")
        self.check("`What it is` is code, and so is `That of`.")
        self.check('It says "What must come of it comes of it."')
        self.check("The same seed gives the same text.")

    def test_phrases_are_found(self):
        self.check("A model that cannot be had is skipped.", "cannot be had")
        self.check("It answers whoever asks.", "whoever asks")

    def page(self, text):
        folder = tempfile.TemporaryDirectory(dir=words.ROOT / "docs")
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "page.md")
        path.write_text(text, encoding="utf-8")
        return words.read_page(path)

    def test_links_and_widths_are_checked(self):
        page = self.page("# One heading\n\n[right](#one-heading) [gone](gone.md) [lost](#two) [web](https://example.org)\n")
        found = list(words.check_links(page))
        self.assertEqual([("gone.md" in wrong, "#two" in wrong) for wrong in found], [(True, False), (False, True)])
        self.assertEqual(len(list(words.check_width(self.page("a " * 61 + "\n```\n" + "b" * 200 + "\n```\n")))), 1)

    def test_examples_are_checked(self):
        commands = {(): set(), ("memory",): set(), ("memory", "list"): {"--facts"}, ("chat",): {"-f", "--seed"}}
        check = lambda line: list(words.check_examples(self.page(f"```sh\n{line}\n```\n"), commands))
        self.assertEqual(check('git diff | hone chat "a --wrong text" -f x --seed 1   # hone chat --none'), [])
        self.assertIn("--sead", check("hone chat --sead 1")[0])
        self.assertIn("no such command", check("hone memory lists --facts")[0])
        self.assertIn("no such command", check("hone chatt")[0])
        self.assertEqual(len(check("hone memory list --facts; hone memory list --fact")), 1)


if __name__ == "__main__":
    unittest.main()
