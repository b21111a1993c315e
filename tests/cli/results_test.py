#!/usr/bin/env python3
"""What a run says and writes: verdicts, figures, files; nothing lost, nothing overwritten."""
import unittest

from program import ROOT, RUNS, SPILLWAY, ProgramTest

ALONE = ["parallel.pipeline_parallel=1", "parallel.data_parallel=1", "parallel.expert_parallel=1", "training.iterations=2"]


class Results(ProgramTest):
    def test_a_valid_run_says_so_with_figures_and_files_that_agree(self):
        outcome = self.start(arguments=["--csv-per-rank"])
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assert_follows_schema(outcome)
        result = outcome.result()
        self.assertTrue(result["valid"])
        self.assertEqual(result["reasons"], [])
        figures = outcome.figures()
        self.assertEqual([line["policy"] for line in figures], ["oracle", "keep", "selective", "full"])
        for line, run in zip(figures, result["runs"]):
            self.assertEqual(line["line"], "PROJECTED")  # never shown as a measurement
            self.assertEqual((line["status"], line["hash"]), ("VALID", result["hash"]))
            self.assertAlmostEqual(float(line["tokens_per_second"]) / run["fom"]["tokens_per_second"], 1, 3)
            self.assertGreater(run["fom"]["effective_mfu"], 0)
            self.assertEqual(run["summary"]["predicted_activation_error"], 0)
            self.assertEqual([rank["rank"] for rank in run["ranks"]], [0, 1, 2, 3])
        self.assertEqual(sorted(f.name for f in outcome.folder.iterdir()),
                         ["iterations.csv", "rank_iterations.csv", "result.json"])
        self.assertEqual(len((outcome.folder / "iterations.csv").read_text().splitlines()), 1 + 4 * 4)
        self.assertEqual(len((outcome.folder / "rank_iterations.csv").read_text().splitlines()), 1 + 4 * 4 * 4)

    def test_model_flops_count_the_chosen_experts_alone(self):
        few, many = self.start(*ALONE, ranks=1), self.start(*ALONE, "model.num_experts=16", ranks=1)
        flops = [[run["summary"]["model_flops"] for run in outcome.result()["runs"]] for outcome in (few, many)]
        self.assertEqual(flops[0], flops[1])
        # 2 iterations x 4 x 16 tokens; 6 FLOPs for each parameter of a product, 6 s h_q / 2 for causal attention both ways
        h, f, kv, q, s = 16, 8, 8, 16, 16
        layer = h * (q + 2 * kv) + q * h
        parameters = 4 * layer + 3 * h * 24 + 3 * (2 * 3 * h * f + 3 * h * f) + h * 32
        attention = 4 * 12 * s * q / 2
        self.assertEqual(flops[0][0], 2 * 4 * 16 * (6 * parameters + attention))
        summary = few.result()["runs"][0]["summary"]
        self.assertIn("mini", summary["peak_source"])
        self.assertGreater(summary["mfu_noncausal"], summary["mfu_causal"])

    def test_an_infeasible_policy_is_no_fault_of_the_report(self):
        outcome = self.start(*ALONE, "memory.cap=220 KiB", ranks=1)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assert_follows_schema(outcome)
        by_policy = {line["policy"]: line for line in outcome.figures()}
        self.assertEqual(by_policy["keep"]["line"], "INFEASIBLE")
        self.assertEqual(by_policy["full"]["status"], "VALID")
        run = {run["policy"]: run for run in outcome.result()["runs"]}["keep"]
        self.assertIsNone(run["fom"])
        self.assertIn("exceeds memory.cap", run["infeasible"])

    def test_an_invalid_run_has_reasons_but_no_figure(self):
        outcome = self.start("memory.cap=120 KiB", "provisioning.margin=1", "provisioning.fallback=keep", 'provisioning.policies=["keep", "full"]')
        self.assertEqual(outcome.code, 1, outcome.out + outcome.err)
        self.assert_follows_schema(outcome)
        result = outcome.result()
        self.assertFalse(result["valid"])
        self.assertTrue(any("out of memory" in reason for reason in result["reasons"]), result["reasons"])
        self.assertEqual([run["fom"] for run in result["runs"]], [None, None])
        self.assertIn("INVALID", outcome.out)
        self.assertNotIn("status=VALID", outcome.out)
        for line in outcome.figures():
            self.assertEqual((line["tokens_per_second"], line["effective_mfu"]), ("null", "null"))

    def test_static_planners_are_projected_at_every_margin(self):
        outcome = self.start("provisioning.margins=[1.0, 1.5]", 'provisioning.policies=["keep", "kuai", "flexible"]')
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assert_follows_schema(outcome)
        result = outcome.result()
        self.assertEqual([(point["policy"], point["margin"]) for point in result["margins"]], [("kuai", 1.0), ("kuai", 1.5)])
        keep, kuai, flexible = (run["summary"] for run in result["runs"])
        for summary in (keep, kuai, flexible):
            self.assertLess(abs(summary["predicted_seconds_error"]), 1e-9)  # the virtual clock computes what was predicted
            self.assertEqual(summary["peak_host_bytes"], 0)  # nothing has to leave under this cap
        self.assertIsNone(kuai["plan_cache_hit_rate"])
        self.assertGreater(flexible["plan_cache_hit_rate"], 0)
        self.assertRegex(outcome.out, r"kuai +1\.50 +[0-9.]+ +0 +0 +#+\n")
        self.assertRegex(outcome.out, r"flexible +- +[0-9.]+ +#+\n")

    def test_the_same_command_twice_gives_the_same_result(self):
        first, second = (self.start(*ALONE, ranks=1).result() for _ in range(2))
        for result in (first, second):
            for run in result["runs"]:
                for part in (run["summary"], *run["ranks"]):
                    part.pop("decision_seconds")  # wall time on either clock
        self.assertEqual(first, second)


class Files(ProgramTest):
    def test_results_are_never_overwritten(self):
        folder = self.scratch / "results"
        self.assertEqual(self.start(*ALONE, ranks=1, folder=folder).code, 0)
        before = (folder / "result.json").read_bytes()
        self.assert_refused(self.start(*ALONE, ranks=1, folder=folder), 2, "never overwritten", "--output")
        self.assertEqual((folder / "result.json").read_bytes(), before)

    def test_the_default_folder_is_new_every_time(self):
        command = [SPILLWAY, "run", RUNS / "tiny.toml"] + [word for s in ALONE for word in ("--set", s)]
        for _ in range(2):
            self.assertEqual(self.execute([ROOT / "packaging/mpirun.sh", 1, *command]).code, 0)
        self.assertEqual(len(list((self.scratch / "results/local/tiny").glob("*/result.json"))), 2)

    def test_a_folder_that_cannot_be_written_is_known_before_the_run(self):
        for folder in ("/proc", "/proc/spillway-results"):
            with self.subTest(folder):
                outcome = self.start(*ALONE, ranks=1, folder=folder)
                self.assert_refused(outcome, 3, folder)

    def test_a_file_is_no_folder(self):
        (self.scratch / "taken").write_text("")
        self.assert_refused(self.start(*ALONE, ranks=1, folder=self.scratch / "taken"), 2, "is a file")

    def test_figures_are_shown_where_they_cannot_be_written(self):
        """A limit on the size of files stands in for a disk that fills up during the run."""
        folder = self.scratch / "results"
        limited = 'ulimit -f 8; trap "" XFSZ; exec "$@"'
        command = [SPILLWAY, "run", RUNS / "tiny.toml", "--output", folder, *(w for s in ALONE for w in ("--set", s))]
        outcome = self.execute([ROOT / "packaging/mpirun.sh", 1, "bash", "-c", limited, "bash", *command], {"OMPI_MCA_btl": "self"})
        self.assertEqual(outcome.code, 3, outcome.out + outcome.err)
        self.assertEqual(len(outcome.errors()), 1, outcome.err)
        self.assertIn("cannot write", outcome.errors()[0])
        self.assertEqual([line["status"] for line in outcome.figures()], ["VALID"] * 4)
        self.assertEqual(list(folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
