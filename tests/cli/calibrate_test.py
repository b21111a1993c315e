#!/usr/bin/env python3
"""spillway calibrate: a machine file that a case can name, written once."""
import re
import unittest

from program import ROOT, RUNS, SPILLWAY, ProgramTest

KEY = re.compile(r"^(\w+) = ", re.MULTILINE)


class Calibrate(ProgramTest):
    def calibrate(self, *arguments, ranks=2):
        return self.execute([ROOT / "packaging/mpirun.sh", ranks, SPILLWAY, "calibrate", "--quick", *arguments])

    def test_two_ranks_write_every_key_of_a_machine_file_with_its_source(self):
        outcome = self.calibrate("--output", "here.toml")
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        text = (self.scratch / "here.toml").read_text()
        mini = (ROOT / "inputs/machines/mini.toml").read_text()
        self.assertEqual(set(KEY.findall(text)), set(KEY.findall(mini)))
        lines = text.splitlines()
        for number, line in enumerate(lines):
            self.assertLessEqual(len(line), 120)
            if KEY.match(line):
                self.assertTrue(lines[number - 1].startswith("# "), line)
                self.assertRegex(outcome.out, re.escape(line.split(" = ")[0]))
        self.assertIn("ranks_per_node = 2", text)

        run = [SPILLWAY, "run", RUNS / "tiny.toml", "--set", "machine=here.toml"]
        checked = self.execute([*run, "--validate-only"])
        self.assertEqual(checked.code, 0, checked.err)
        self.assertIn("machine here.toml", checked.out)

        again = self.calibrate("--output", "here.toml")
        self.assert_refused(again, 2, "here.toml", "exists already")
        self.assertEqual((self.scratch / "here.toml").read_text(), text)
        self.assertEqual([file.name for file in self.scratch.iterdir()], ["here.toml"])

    def test_one_rank_says_what_it_could_not_measure(self):
        outcome = self.calibrate("--output", "alone.toml", ranks=1)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        text = " ".join((self.scratch / "alone.toml").read_text().replace("\n# ", " ").split())
        self.assertIn("not measured, no node had two ranks", text)
        self.assertIn("not measured, the job had one node", text)

    def test_outputs_that_cannot_be_are_refused_before_anything_is_measured(self):
        for name, word in (("machine.txt", ".toml"), ("absent/machine.toml", "no folder absent")):
            outcome = self.calibrate("--output", name)
            self.assert_refused(outcome, 2, name, word)
            self.assertLess(outcome.seconds, 20)

    def test_a_name_that_no_file_system_takes_is_refused_on_all_ranks(self):
        self.assert_refused(self.calibrate("--output", "a" * 300 + ".toml"), 3, "too long")

    def test_help_names_the_command_and_its_options(self):
        self.assertIn("calibrate", self.execute([SPILLWAY, "--help"]).out)
        help_text = self.execute([SPILLWAY, "calibrate", "--help"]).out
        for word in ("--output", "--quick", "machine-HOST.toml"):
            self.assertIn(word, help_text)


if __name__ == "__main__":
    unittest.main()
