#!/usr/bin/env python3
"""Two ranks on the wall clock: copies and messages run beside computation, measured. Under the thread sanitizer this is the
run whose threads it watches."""
import json
import sys
import unittest

from program import ProgramTest
import validate_timeline

PAIR = ["clock=wall", "allow_oversubscribed=true", "parallel.pipeline_parallel=1", "routing.preset=balanced",
        "training.iterations=1", "parallel.network_thread=always"]
COPIES = ["training.sequence_length=2048", "model.hidden_size=512", "training.micro_batches=2", "memory.cap=80 MiB",
          "unified.worst_load=1"]
COMPUTE, NETWORK, OUT, BACK = 1, 2, 3, 4


class Overlap(ProgramTest):
    def record(self, policy, *settings):
        """Runs one policy; returns what the report says of it, and per rank and lane the spans (begin, end, name)."""
        file = self.scratch / "timeline.json"
        file.unlink(missing_ok=True)
        outcome = self.start(*PAIR, f'provisioning.policies=["{policy}"]', *settings, ranks=2, limit=600,
                             arguments=["--timeline", file])
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertEqual(validate_timeline.main([file]), 0)
        self.assertIn("overlap efficiency, measured", outcome.out)
        lanes = validate_timeline.spans_by_lane(json.loads(file.read_text())["traceEvents"])
        return outcome.result()["runs"][0]["summary"], lanes

    def beside_computation(self, lanes, rank, lane, names=("",)):
        """Seconds of the lane's spans with such names, all and those in which the rank computes."""
        spans = [s for s in lanes[rank, lane] if s[2].startswith(names)]
        common = sum(max(0, min(s[1], c[1]) - max(s[0], c[0])) for s in spans for c in lanes[rank, COMPUTE])
        return sum(s[1] - s[0] for s in spans), common

    def test_copies_run_beside_computation(self):
        summary, lanes = self.record("unified", *COPIES)
        for rank in (0, 1):
            (out, out_beside), (back, back_beside) = (self.beside_computation(lanes, rank, lane) for lane in (OUT, BACK))
            self.assertGreater(min(out, back), 0)
            self.assertGreater(out_beside + back_beside, 0,
                               f"rank {rank} copies for {out + back} us and computes in none of them")
        self.assertGreater(summary["hidden_fraction"]["mitigation"], 0)
        self.assertGreater(summary["overlap_efficiency"], 0)
        self.assertLessEqual(summary["overlap_efficiency"], 1)

    def test_rows_travel_beside_computation_in_fused_units(self):
        for thread in ("always", "never"):
            summary, lanes = self.record("full", "parallel.schedule=dual_batch", "training.sequence_length=512",
                                         f"parallel.network_thread={thread}")
            for rank in (0, 1):
                travelled, common = self.beside_computation(lanes, rank, NETWORK, ("dispatch", "combine"))
                self.assertGreater(common, 0, f"network thread {thread}: rank {rank} exchanges rows for {travelled} us and "
                                              "computes in none of them")
                if thread == "always":  # nobody else finds a message done in the middle of an operator
                    ends = [s[1] for s in lanes[rank, NETWORK] if s[2].startswith(("dispatch", "combine"))]
                    self.assertTrue(any(c[0] < end < c[1] for end in ends for c in lanes[rank, COMPUTE]),
                                    f"rank {rank}: no exchange ends while it computes")
            self.assertGreater(summary["hidden_fraction"]["all_to_all"], 0)

    def test_plain_order_hides_no_exchange(self):
        summary, _ = self.record("full")
        self.assertLess(summary["hidden_fraction"]["all_to_all"], 0.01)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
