#!/usr/bin/env python3
"""One rank dies, or throws: nobody waits for it, and the job says so and fails."""
import unittest

from program import FAULTY, ProgramTest

PHASES = ["start", "verification", "measurement", "gate", "forward", "backward", "reduction", "restart", "report"]
# A burst that `keep` does not survive, so that the case restarts and every phase is reached.
SPIKE = ['provisioning.policies=["keep"]', "provisioning.margin=1", "memory.cap=120 KiB"]
SECONDS = 30


class Endings(ProgramTest):
    def end(self, how, phase, rank):
        return self.start(*SPIKE, program=FAULTY, environment={"SPILLWAY_END": f"{how} {phase} {rank}"}, limit=60)

    def test_the_case_reaches_every_phase(self):
        outcome = self.start(*SPIKE, program=FAULTY)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertGreaterEqual(outcome.result()["runs"][0]["summary"]["restarts"], 1)

    def test_a_killed_rank_ends_the_job_in_every_phase(self):
        for number, phase in enumerate(PHASES):
            for rank in {number % 4, 3}:
                with self.subTest(phase=phase, rank=rank):
                    outcome = self.end("kill", phase, rank)
                    self.assertNotEqual(outcome.code, 0)
                    self.assertLess(outcome.seconds, SECONDS)
                    self.assertRegex(outcome.err + outcome.out, r"(?i)signal|killed|terminat")

    def test_an_exception_of_one_rank_ends_the_job_with_its_message(self):
        for phase in ("verification", "gate", "backward", "reduction", "restart"):
            for rank in (0, 1):
                with self.subTest(phase=phase, rank=rank):
                    outcome = self.end("throw", phase, rank)
                    self.assertEqual(outcome.code, 1, outcome.err)
                    self.assertLess(outcome.seconds, SECONDS)
                    self.assertEqual(len(outcome.errors()), 1, outcome.err)
                    self.assertIn(f"rank {rank} on ", outcome.errors()[0])
                    self.assertIn("a fault that a test put here", outcome.errors()[0])
                    self.assertEqual(outcome.figures(), [])


if __name__ == "__main__":
    unittest.main()
