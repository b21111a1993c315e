#!/usr/bin/env python3
"""Timelines as a viewer and a Kokkos tool see them, at one to four ranks and on both clocks."""
import collections
import csv
import json
import os
import sys
import unittest

from program import ROOT, ProgramTest
import validate_timeline

ALONE = ["parallel.pipeline_parallel=1", "parallel.data_parallel=1", "parallel.expert_parallel=1"]
PAIR = ["parallel.data_parallel=1", "parallel.expert_parallel=1"]  # two stages
ONE = ["training.iterations=1"]


class Timeline(ProgramTest):
    def record(self, *settings, ranks=4, options=(), **more):
        """Runs the case; returns what it left and its timeline, which is valid."""
        file = self.scratch / f"timeline-{len(list(self.scratch.iterdir()))}.json"
        outcome = self.start(*settings, ranks=ranks, arguments=["--timeline", file, *options], **more)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertIn(f"timeline in {file}", outcome.out)
        self.assertEqual(validate_timeline.main([file]), 0)
        return outcome, json.loads(file.read_text())

    def events(self, timeline, phase):
        return [event for event in timeline["traceEvents"] if event["ph"] == phase]

    def names(self, timeline, rank, lane):
        return [e["name"] for e in self.events(timeline, "X") if (e["pid"], e["tid"]) == (rank, lane)]

    def marks(self, timeline):
        return [(e["args"]["iteration"], e["args"]["policy"], e["args"]["out_of_memory"]) for e in self.events(timeline, "i")]

    def assert_peaks(self, outcome, timeline, policy):
        """The largest sum of a rank's categories is the peak that the report gives it."""
        run = next(run for run in outcome.result()["runs"] if run["policy"] == policy)
        self.assertEqual(validate_timeline.peaks(timeline), {r["rank"]: r["peak_bytes"]["total"] for r in run["ranks"]})

    def test_four_ranks_on_the_virtual_clock(self):
        outcome, timeline = self.record(*ONE, options=["--timeline-policy", "full"])
        about = timeline["otherData"]
        self.assertEqual((about["clock"], about["policy"], about["iterations"]), ("virtual", "full", [0]))
        self.assertIn("not measured", about["times"])
        self.assertEqual(about["hash"], outcome.result()["hash"])
        self.assert_peaks(outcome, timeline, "full")
        run = next(run for run in outcome.result()["runs"] if run["policy"] == "full")
        ends = [e["ts"] + e["dur"] for e in self.events(timeline, "X")]
        self.assertAlmostEqual(max(ends), run["iterations"][0]["seconds"] * 1e6, 2)
        for rank in range(4):
            compute, network = self.names(timeline, rank, 1), self.names(timeline, rank, 2)
            counted = collections.Counter(compute)
            self.assertGreater(counted["fc1"], 0)
            self.assertEqual(counted["fc1"], counted["fc1 backward"])
            self.assertEqual(counted["fc1"], counted["fc1 recompute"])
            for name in ("gate", "dispatch", "combine backward", "dispatch recompute", "gradient_reduction"):
                self.assertIn(name, network)
        # four micro-batches forward and backward between the stages of two columns
        self.assertEqual(len(self.events(timeline, "s")), 2 * 4 * 2)

    def test_spans_add_up_to_the_seconds_of_the_report(self):
        outcome, timeline = self.record(*ONE, options=["--timeline-policy", "selective", "--csv-per-rank"])
        with open(outcome.folder / "rank_iterations.csv", newline="") as file:
            rows = {int(row["rank"]): row for row in csv.DictReader(file) if row["policy"] == "selective"}
        for rank in range(4):
            lanes = [[e for e in self.events(timeline, "X") if (e["pid"], e["tid"]) == (rank, lane)] for lane in (1, 2)]
            computing = sum(e["dur"] for e in lanes[0])
            exchanging = sum(e["dur"] for e in lanes[1] if e["name"].startswith(("dispatch", "combine")))
            for measured, column in ((computing, "compute_seconds"), (exchanging, "all_to_all_seconds")):
                self.assertAlmostEqual(measured / 1e6 / float(rows[rank][column]), 1, 3)

    def test_wall_clocks_of_one_to_four_ranks(self):
        wall = ["clock=wall", "allow_oversubscribed=true", *ONE]
        for ranks, layout in ((1, ALONE), (2, PAIR), (4, [])):
            with self.subTest(ranks=ranks):
                outcome, timeline = self.record(*wall, *layout, ranks=ranks)
                self.assertEqual((timeline["otherData"]["clock"], timeline["otherData"]["times"]), ("wall", "measured"))
                self.assertEqual(timeline["otherData"]["ranks"], ranks)
                if ranks > 1:
                    self.assertEqual(len(self.events(timeline, "s")), 8 * (ranks // 2))
                self.assert_peaks(outcome, timeline, "keep")

    def test_interleaved_stages(self):
        outcome, timeline = self.record(*ONE, *PAIR, "parallel.virtual_stages=2", ranks=2)
        self.assertEqual(len(self.events(timeline, "s")), 4 * 2 * 3)  # three borders between four pieces
        self.assert_peaks(outcome, timeline, "keep")

    def test_fused_windows(self):
        outcome, timeline = self.record(*ONE, "parallel.schedule=dual_batch", options=["--timeline-policy", "full"])
        self.assert_peaks(outcome, timeline, "full")
        lanes = validate_timeline.spans_by_lane(timeline["traceEvents"])
        beside = [c for rank in range(4) for c in lanes[rank, 1] for n in lanes[rank, 2]
                  if n[2].startswith(("dispatch", "combine")) and c[0] < n[1] and n[0] < c[1]]
        self.assertTrue(beside, "nothing computes while rows travel")

    def test_one_expert_per_rank(self):
        """Exchanges without a copy before or after them: what they allocate shows all the same."""
        layout = ["parallel.pipeline_parallel=1", "parallel.data_parallel=4", "parallel.expert_parallel=4"]
        outcome, timeline = self.record(*ONE, *layout)
        self.assert_peaks(outcome, timeline, "keep")

    def test_copies_have_lanes_of_their_own(self):
        for clock in ("virtual", "wall"):
            with self.subTest(clock):
                outcome, timeline = self.record("memory.cap=115 KiB", 'provisioning.policies=["flexible"]', f"clock={clock}",
                                                "allow_oversubscribed=true")
                out = [name for rank in range(4) for name in self.names(timeline, rank, 3)]
                back = [name for rank in range(4) for name in self.names(timeline, rank, 4)]
                self.assertTrue(out)
                self.assertEqual(sorted(n.replace("offload", "reload") for n in out), sorted(back))
                self.assertIn("host tier (bytes)", {e["name"] for e in self.events(timeline, "C")})

    def test_a_lost_iteration_shows_both_attempts(self):
        lost = ["memory.cap=120 KiB", "provisioning.margin=1", 'provisioning.policies=["keep", "full"]']
        outcome, timeline = self.record(*lost)
        self.assertEqual(self.marks(timeline), [(1, "keep", True), (1, "full", False)])
        draining = [e for e in self.events(timeline, "X") if e["cat"] == "drain"]
        self.assertTrue(draining)
        begins = [e["ts"] for e in self.events(timeline, "i")]
        for event in draining:
            self.assertLessEqual(event["ts"] + event["dur"], begins[1] + 1e-3)
        for rank, peak in validate_timeline.peaks(timeline).items():
            self.assertLessEqual(peak, 120 * 1024)

    def test_iterations_and_policies_can_be_chosen(self):
        _, timeline = self.record(options=["--timeline-iteration", "0,3", "--timeline-policy", "selective"])
        self.assertEqual(self.marks(timeline), [(0, "selective", False), (3, "selective", False)])
        _, default = self.record()  # iteration 1 is the burst; the oracle is not ranked
        self.assertEqual(self.marks(default), [(1, "keep", False)])

    def test_a_timeline_changes_nothing_else(self):
        with_one, _ = self.record()
        without = self.start()
        for result in (a := with_one.result(), b := without.result()):
            for run in result["runs"]:
                for part in (run["summary"], *run["ranks"]):
                    part.pop("decision_seconds")
                    part.pop("reserved_bytes")  # space is free once a message has left
        self.assertEqual(a, b)

    def test_a_picture_is_drawn_or_what_is_missing_is_named(self):
        _, timeline = self.record(*ONE, *ALONE, ranks=1)
        file, picture = next(self.scratch.glob("timeline-*.json")), self.scratch / "picture.png"
        drawn = self.execute([sys.executable, ROOT / "packaging/timeline_png.py", file, picture])
        if drawn.code == 3:
            self.assertIn("python3-matplotlib", drawn.err)
        else:
            self.assertEqual(drawn.code, 0, drawn.err)
            self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_kokkos_tools_see_the_same_names(self):
        tool = os.environ["REGION_TOOL"]
        environment = {"KOKKOS_PROFILE_LIBRARY": tool, "KOKKOS_TOOLS_LIBS": tool, "REGION_FILE": str(self.scratch / "regions")}
        _, timeline = self.record(*ONE, *ALONE, ranks=1, environment=environment)
        seen = {name for file in self.scratch.glob("regions.*") for name in file.read_text().splitlines()}
        spans = {e["name"] for e in self.events(timeline, "X")}
        self.assertGreater(len(spans), 20)
        self.assertEqual(spans - seen, set())


class Refusals(ProgramTest):
    def refuse(self, code, *words, arguments):
        outcome = self.start(ranks=1, *ALONE, arguments=arguments)
        self.assert_refused(outcome, code, *words)
        return outcome

    def test_files_that_cannot_be_written_are_known_before_the_run(self):
        taken = self.scratch / "taken.json"
        taken.write_text("mine")
        self.refuse(2, "taken.json", "exists", arguments=["--timeline", taken])
        self.assertEqual(taken.read_text(), "mine")
        self.refuse(2, "no folder", "absent", arguments=["--timeline", self.scratch / "absent/t.json"])
        self.refuse(3, "cannot write /proc/t.json", arguments=["--timeline", "/proc/t.json"])
        same = self.scratch / "both"
        self.refuse(2, "--decisions", "same file", arguments=["--timeline", same, "--decisions", same])
        folder = self.scratch / "results"
        outcome = self.start(*ALONE, ranks=1, folder=folder, arguments=["--timeline", folder / "result.json"])
        self.assert_refused(outcome, 2, "results' own")

    def test_policies_and_iterations_that_are_not_run_are_refused(self):
        file = self.scratch / "t.json"
        self.refuse(2, "selectiv", "did you mean selective", arguments=["--timeline", file, "--timeline-policy", "selectiv"])
        self.refuse(2, "--timeline-iteration 4", "0 to 3", arguments=["--timeline", file, "--timeline-iteration", "4"])
        self.refuse(2, "--timeline", arguments=["--timeline-policy", "keep"])
        self.assertFalse(file.exists())

    def test_a_policy_that_does_not_fit_has_no_timeline(self):
        file = self.scratch / "t.json"
        outcome = self.start(*ALONE, "memory.cap=220 KiB", ranks=1, arguments=["--timeline", file])
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertIn("no timeline: keep did not run iteration 1", outcome.out)
        self.assertFalse(file.exists())


if __name__ == "__main__":
    unittest.main()
