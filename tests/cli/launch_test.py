#!/usr/bin/env python3
"""Launches that went wrong elsewhere."""
import os
import unittest

from program import RUNS, SPILLWAY, ProgramTest


class Launch(ProgramTest):
    def test_a_wrong_number_of_ranks_is_refused_with_the_product(self):
        outcome = self.start(ranks=2)
        self.assert_refused(outcome, 2, "4 ranks = pipeline_parallel 2 x data_parallel 2 x tensor_parallel 1", "started 2")
        self.assertFalse(outcome.folder.exists())

    def test_tasks_that_would_each_run_alone_are_refused(self):
        """srun without a process manager: N jobs of one rank, each with a table of its own."""
        outcome = self.execute([SPILLWAY, "run", RUNS / "tiny.toml", "--output", self.scratch / "results"],
                               {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"})
        self.assert_refused(outcome, 3, "4 tasks", "--mpi=pmix")

    def test_more_ranks_than_cores_need_permission_on_the_wall_clock(self):
        settings = ["clock=wall", "parallel.data_parallel=1", "parallel.expert_parallel=1", "training.iterations=1"]
        core = min(os.sched_getaffinity(0))
        crowded = ["taskset", "--cpu-list", core]
        outcome = self.start(*settings, ranks=2, before=crowded)
        self.assert_refused(outcome, 3, "2 ranks share the 1 cores", "--allow-oversubscribed")
        outcome = self.start(*settings, ranks=2, before=crowded, arguments=["--allow-oversubscribed"])
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertEqual([(line["line"], line["status"]) for line in outcome.figures()], [("FOM", "VALID")] * 4)
        warnings = outcome.result()["environment"]["warnings"]
        self.assertTrue(any("2 ranks share 1 cores" in warning for warning in warnings), warnings)

    def test_errors_of_the_input_come_once_from_many_ranks(self):
        self.assert_refused(self.start("training.iteratoins=5"), 2, "iteratoins")
        self.assert_refused(self.start("routing.calm=1.99"), 2, "calm")


if __name__ == "__main__":
    unittest.main()
