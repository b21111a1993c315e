#!/usr/bin/env python3
"""A program with a policy from outside the source tree runs it, verifies it and reports it like any other."""
import os
import unittest

from program import ROOT, ProgramTest

HALF = os.environ["SPILLWAY_HALF"]


class ExtraPolicy(ProgramTest):
    def test_a_policy_from_outside_is_run_verified_and_compared(self):
        outcome = self.start('provisioning.policies=["keep", "half", "full"]', program=HALF)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assert_follows_schema(outcome)
        self.assertEqual([(f["policy"], f["status"]) for f in outcome.figures()],
                         [(policy, "VALID") for policy in ("keep", "half", "full")])
        keep, half, full = (run["summary"] for run in outcome.result()["runs"])
        self.assertEqual(half["predicted_activation_error"], 0)
        again = [summary["hfu_causal"] / summary["mfu_causal"] - 1 for summary in (keep, half, full)]
        self.assertEqual(again[0], 0)
        self.assertAlmostEqual(again[1] / again[2], 0.5)  # it recomputes in every second micro-batch

    def test_the_guide_shows_the_file_as_it_is(self):
        self.assertIn((ROOT / "tests/extra_policy/half.cpp").read_text(), (ROOT / "CONTRIBUTING.md").read_text())

    def test_help_lists_it(self):
        self.assertIn("half", self.execute([HALF, "run", "--help"]).out)


if __name__ == "__main__":
    unittest.main()
