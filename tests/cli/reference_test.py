"""The demo and the recorded loads against results/reference: virtual seconds do not depend on the host."""
import re
import unittest

import program


class ReferenceResults(program.ProgramTest):
    def compare(self, case):
        outcome = self.start(case=case, ranks=16, limit=1500)
        self.assertEqual(outcome.code, 0, outcome.err)
        text = (program.ROOT / "results" / "reference" / f"{case}.txt").read_text()
        expected = re.findall(r"^PROJECTED .*$", text, re.MULTILINE)
        self.assertGreaterEqual(len(expected), 4)
        self.assertEqual(re.findall(r"^PROJECTED .*$", outcome.out, re.MULTILINE), expected)

    def test_demo(self):
        self.compare("demo")

    def test_recorded_loads(self):
        self.compare("trace")


if __name__ == "__main__":
    unittest.main()
