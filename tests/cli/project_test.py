#!/usr/bin/env python3
"""spillway project from the outside: what a run on the virtual clock finds, without a launcher, marked as a projection."""
import csv
import sys
import unittest

from program import RUNS, SPILLWAY, ProgramTest

LOADED = ["routing.peak=2.0", "memory.cap=120 KiB", "provisioning.margin=1",
          'provisioning.policies=["oracle", "keep", "unified", "flexible:ratio", "hindsight"]']
# What only data, real ranks or a comparison with a prediction give. All but the oracle's source is null in a projection.
OF_A_RUN = ["decision_seconds", "plan_cache_hit_rate", "predicted_activation_error", "predicted_seconds_error",
            "reserved_bytes", "loss_first", "loss_last", "oracle"]


class Project(ProgramTest):
    def project(self, *settings, case="tiny", arguments=()):
        folder = self.scratch / f"projected-{len(list(self.scratch.iterdir()))}"
        command = [SPILLWAY, "project", RUNS / f"{case}.toml", "--output", folder, *arguments]
        for setting in settings:
            command += ["--set", setting]
        return self.execute(command, folder=folder)

    def test_agrees_with_a_run_in_every_figure_that_needs_no_data(self):
        projected, run = self.project(*LOADED), self.start(*LOADED)
        self.assertEqual((projected.code, run.code), (0, 0), projected.err + run.err)
        mine, theirs = projected.result(), run.result()
        self.assertEqual((mine["data"], theirs["data"]), ("phantom", "real"))
        for key in ("hash", "workload_checksum", "config"):
            self.assertEqual(mine[key], theirs[key])
        self.assertGreater(theirs["runs"][1]["summary"]["oom_events"], 0, "nothing is restarted here")
        for p, r in zip(mine["runs"], theirs["runs"], strict=True):
            with self.subTest(policy=r["policy"]):
                self.assertEqual(p["fom"], r["fom"])
                for i, j in zip(p["iterations"], r["iterations"], strict=True):
                    self.assertEqual((i["index"], i["event"], i["policy"]), (j["index"], j["event"], j["policy"]))
                    if j["oom"] is None:
                        self.assertEqual({**i, "loss": None, "gradient_checksum": None},
                                         {**j, "loss": None, "gradient_checksum": None})
                for i, j in zip(p["ranks"], r["ranks"], strict=True):
                    self.assertEqual(i["coordinates"], j["coordinates"])
                    if r["summary"]["oom_events"] == 0:
                        self.assertEqual(i["peak_bytes"], j["peak_bytes"])

    def test_calm_iterations_agree_in_every_column(self):
        settings = ["routing.preset=balanced", 'provisioning.policies=["oracle", "unified"]', "provisioning.margins=[1.5]"]
        projected, run = self.project(*settings).result(), self.start(*settings).result()
        self.assertEqual(projected["margins"], run["margins"])
        self.assertEqual(len(run["margins"]), 1)
        for mine, theirs in zip(projected["runs"], run["runs"], strict=True):
            for p, r in zip([mine["summary"], *mine["ranks"]], [theirs["summary"], *theirs["ranks"]], strict=True):
                for key in set(r) - {*OF_A_RUN, "host"}:
                    self.assertEqual(p[key], r[key], key)
                self.assertEqual({p[key] for key in OF_A_RUN if key in p}, {None, p.get("oracle")})

    def test_is_marked_as_a_projection_everywhere(self):
        outcome = self.project(arguments=["--csv-per-rank"])
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assert_follows_schema(outcome)
        self.assertIn("Spillway projection of case tiny on 4 ranks, phantom data", outcome.out)
        self.assertEqual({line["line"] for line in outcome.figures()}, {"PROJECTED"})
        self.assertEqual({run["summary"]["oracle"] for run in outcome.result()["runs"]}, {"projected"})
        for name in ("iterations.csv", "rank_iterations.csv"):
            with (outcome.folder / name).open() as file:
                self.assertEqual({row["data"] for row in csv.DictReader(file)}, {"phantom"}, name)

    def test_a_case_for_the_wall_clock_is_projected_in_virtual_time(self):
        outcome = self.project("clock=wall")
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(outcome.result()["clock"], "virtual")

    def test_more_ranks_than_any_node_has_need_no_launcher(self):
        outcome = self.project("parallel.data_parallel=64", "routing.preset=balanced", "training.iterations=1",
                               'provisioning.policies=["full"]')
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(len(outcome.result()["runs"][0]["ranks"]), 128)

    def test_impossible_layouts_and_machines_are_refused(self):
        self.assert_refused(self.project("parallel.expert_parallel=3"), 2, "expert_parallel")
        self.assert_refused(self.project("machine.peak_flops=0"), 2, "peak_flops")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
