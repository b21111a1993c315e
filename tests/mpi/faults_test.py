#!/usr/bin/env python3
"""Break the essential steps on purpose: the run's own verification must notice each."""
import unittest

from program import FAULTY, ProgramTest

FAULTS = ["dropped_token", "swapped_experts", "skipped_recompute", "stale_buffer", "missing_reduction", "wrong_residual",
          "wrong_router_weight", "lost_snapshot", "skipped_gradient"]
LAYOUTS = {"an expert group of two": ["parallel.expert_parallel=2"],
           "experts on every rank": ["parallel.expert_parallel=1", "routing.reference_ranks=2"]}
SHORT = ["training.iterations=2"]


class Faults(ProgramTest):
    def run_with(self, fault, settings):
        return self.start(*SHORT, *settings, program=FAULTY, environment={"SPILLWAY_FAULT": fault})

    def test_a_run_without_a_fault_is_valid(self):
        for layout, settings in LAYOUTS.items():
            with self.subTest(layout):
                outcome = self.run_with("none", settings)
                self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
                self.assertTrue(all(line["status"] == "VALID" for line in outcome.figures()), outcome.out)
                self.assertEqual(len(outcome.figures()), 4)

    def test_every_fault_is_found_by_the_verification(self):
        for fault in FAULTS:
            with self.subTest(fault):
                outcome = self.run_with(fault, LAYOUTS["an expert group of two"])
                self.assert_invalid(outcome)

    def test_faults_of_shared_gradients_are_found_where_experts_are_replicated(self):
        for fault in ("missing_reduction", "swapped_experts", "dropped_token", "wrong_router_weight"):
            with self.subTest(fault):
                self.assert_invalid(self.run_with(fault, LAYOUTS["experts on every rank"]))

    def test_gradients_that_are_not_summed_beside_cool_down_are_found(self):
        settings = [*LAYOUTS["experts on every rank"], "parallel.overlap_gradients=true"]
        self.assertEqual(self.run_with("none", settings).code, 0)
        self.assert_invalid(self.run_with("missing_reduction", settings))

    def test_ranks_of_a_group_that_order_their_messages_differently_are_told_so_instead_of_waiting_for_ever(self):
        settings = [*LAYOUTS["an expert group of two"], "parallel.schedule=dual_batch", "model.num_experts=8",
                    "parallel.fuse=always", "parallel.check_order=true"]
        self.assertEqual(self.run_with("none", settings).code, 0)
        outcome = self.run_with("disagreeing_plans", settings)
        self.assertEqual(outcome.code, 1, outcome.out + outcome.err)
        self.assertIn("messages of a group in different orders: rank", outcome.err)

    def assert_invalid(self, outcome):
        self.assertEqual(outcome.code, 1, outcome.out + outcome.err)
        self.assertIn("INVALID", outcome.out)
        self.assertNotIn("status=VALID", outcome.out)
        result = outcome.result()
        self.assertFalse(result["valid"])
        self.assertTrue(any("verification" in reason for reason in result["reasons"]), result["reasons"])
        self.assertTrue(all(run["fom"] is None for run in result["runs"]))
        self.assertTrue(all(line["tokens_per_second"] == "null" for line in outcome.figures()), outcome.out)
        self.assert_follows_schema(outcome)

    def test_a_product_done_twice_is_no_fault_of_the_result(self):
        outcome = self.run_with("extra_product", LAYOUTS["an expert group of two"])
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)


if __name__ == "__main__":
    unittest.main()
