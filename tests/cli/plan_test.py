#!/usr/bin/env python3
"""spillway plan from the outside: the same numbers as a run, as text and as JSON, for any model, and one clear error."""
import json
import unittest

from program import ROOT, RUNS, SPILLWAY, ProgramTest

QWEN3 = {"decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [],
         "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
         "num_hidden_layers": 48, "num_key_value_heads": 4, "torch_dtype": "bfloat16", "vocab_size": 151936}
PUBLISHED = sorted((RUNS / "published").glob("*.toml"))


class PlanTest(ProgramTest):
    def plan(self, *settings, case=RUNS / "tiny.toml", arguments=(), environment=None):
        command = [SPILLWAY, "plan", case, *arguments]
        for setting in settings:
            command += ["--set", setting]
        return self.execute(command, environment)

    def facts(self, *settings, **options):
        outcome = self.plan(*settings, arguments=("--json", "-", *options.pop("arguments", ())), **options)
        self.assertEqual(outcome.code, 0, outcome.err)
        return json.loads(outcome.out)

    @staticmethod
    def policy(facts, name):
        return next(p for p in facts["policies"] if p["policy"] == name)


class Schedule(PlanTest):
    def test_prints_the_order_of_every_stage(self):
        outcome = self.plan("parallel.pipeline_parallel=4", "parallel.virtual_stages=2", "training.micro_batches=8",
                            "model.num_hidden_layers=8", "parallel.data_parallel=2", arguments=("--schedule",))
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertIn("  stage 0: F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 ", outcome.out)
        self.assertIn("  stage 3: F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 ", outcome.out)


class Agreement(PlanTest):
    POLICIES = ("keep", "selective", "full")

    def test_a_balanced_run_peaks_on_every_rank_where_the_plan_says(self):
        settings = ["routing.preset=balanced", "training.iterations=1", "model.num_hidden_layers=3",
                    f'provisioning.policies=[{", ".join(map(repr, self.POLICIES))}]'.replace("'", '"')]
        facts, outcome = self.facts(*settings), self.start(*settings)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        for run in outcome.result()["runs"]:
            stages = self.policy(facts, run["policy"])["stages"]
            self.assertEqual(len(run["ranks"]), 4)
            for rank in run["ranks"]:
                planned = stages[rank["coordinates"]["pipeline"]]["balance_peak_bytes"]
                for category, byte_count in rank["peak_bytes"].items():
                    self.assertEqual(byte_count, planned[category], f'{run["policy"]}, {category}, rank {rank["rank"]}')

    def test_what_fits_at_the_margin_is_what_a_run_accepts(self):
        for cap in ("64 MiB", "220 KiB", "180 KiB", "100 KiB"):
            settings = [f"memory.cap={cap}", "model.num_hidden_layers=3",
                        'provisioning.policies=["oracle", "keep", "selective", "full"]']
            facts, told = self.facts(*settings), self.check(*settings).out
            for name in ("oracle", *self.POLICIES):
                line = next(l for l in told.splitlines() if l.startswith(f"  {name} "))
                self.assertEqual(self.policy(facts, name)["fits_at_margin"], "fits at the planned load" in line, line)

    def test_the_load_at_which_memory_ends_is_exact(self):
        settings = ["memory.cap=230 KiB"]
        for stage in self.policy(self.facts(*settings), "keep")["stages"]:
            if stage["stops_fitting_at"] is None:
                continue
            balanced = self.facts(*settings)["load"]["balanced_rows"]
            for more, fits in ((0, True), (1, False)):
                margin = (stage["rows_that_fit"] + more) / balanced
                if margin >= 1:
                    at_margin = self.facts(*settings, f"provisioning.margin={margin}")
                    told = self.policy(at_margin, "keep")["stages"][stage["stage"]]
                    self.assertEqual(told["fits_at_margin"], fits, stage)


class Output(PlanTest):
    def test_it_needs_no_launcher_and_takes_no_time(self):
        outcome = self.plan(case=RUNS / "demo.toml")
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(outcome.err, "")
        self.assertLess(outcome.seconds, 5)
        for words in ("nothing was run", "Stages:", "  oracle, keep", "What fits into"):
            self.assertIn(words, outcome.out)
        self.assertEqual([l for l in outcome.out.splitlines() if len(l) > 160], [])

    def test_json_goes_to_a_file_beside_the_tables(self):
        file = self.scratch / "plan.json"
        outcome = self.plan(arguments=("--json", file))
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertIn("What fits into", outcome.out)
        facts = json.loads(file.read_text())
        self.assertEqual(facts, self.facts())
        self.assertEqual(facts["schema"], "spillway-plan-1")
        for key in ("version", "case", "warnings", "config", "model", "layout", "load", "cap_bytes", "stages", "layer",
                    "policies"):
            self.assertIn(key, facts)

    def test_a_file_that_cannot_be_written_is_an_error_of_the_environment(self):
        self.assert_refused(self.plan(arguments=("--json", "no/such/folder/plan.json")), 3, "no/such/folder/plan.json")

    def test_under_a_launcher_it_answers_once(self):
        outcome = self.execute([ROOT / "packaging/mpirun.sh", 2, SPILLWAY, "plan", RUNS / "tiny.toml"])
        self.assertEqual(outcome.out.count("What fits into"), 1, outcome.err)

    def test_never_is_null_and_no_cap_fits_everywhere(self):
        facts = self.facts()
        self.assertIsNone(self.policy(facts, "keep")["stops_fitting_at"])
        oracle = self.policy(self.facts("memory.cap=1 KiB"), "oracle")
        self.assertEqual((oracle["fits_at_balance"], oracle["stops_fitting_at"]), (True, None))
        keep = self.policy(self.facts("memory.cap=1 KiB"), "keep")
        self.assertEqual((keep["fits_at_balance"], keep["stops_fitting_at"]), (False, 0))

    def test_on_request_policies_that_decide_late_say_what_they_choose_at_every_load(self):
        settings = ("memory.cap=3 MiB", 'provisioning.policies=["flexible"]')
        self.assertIsNotNone(self.policy(self.facts(*settings, case=RUNS / "demo.toml"), "flexible")["no_forecast"])
        facts = self.facts(*settings, case=RUNS / "demo.toml", arguments=("--choices",))
        for stage in self.policy(facts, "flexible")["stages"]:
            self.assertGreaterEqual(len(stage["loads"]), 5)
            for load in stage["loads"]:
                self.assertLessEqual(load["peak_bytes"], 3 << 20, (stage["stage"], load["load"]))
        choices = [t for t in facts["layer"]["treatments"] if t["policy"] == "flexible"]
        self.assertGreater(len(choices), 1)
        self.assertEqual((choices[0]["load_from"], choices[-1]["load_to"]), (1, facts["load"]["bound"]))

    def test_help_lists_the_options(self):
        text = self.execute([SPILLWAY, "plan", "--help"]).out
        for word in ("--set", "--model", "--json", "--choices", "parallel.layers_per_virtual_stage", "memory.cap"):
            self.assertIn(word, text)


class Shapes(PlanTest):
    def test_every_published_case_is_planned(self):
        self.assertEqual(len(PUBLISHED), 7)
        for case in PUBLISHED:
            with self.subTest(case.name):
                facts = self.facts(case=case)
                self.assertEqual(facts["warnings"], [])
                self.assertTrue(self.policy(facts, "selective")["fits_at_balance"])

    def test_static_memory_of_423b_is_that_of_the_paper(self):
        facts = self.facts(case=RUNS / "published/423b-512.toml")
        self.assertEqual([s["static_bytes"]["total"] for s in facts["stages"]], [17_944_424_448] * 8)
        self.assertEqual([s["live_pairs"] for s in facts["stages"]], [23, 21, 19, 17, 15, 13, 11, 9])
        keep = next(t for t in facts["layer"]["treatments"] if t["policy"] == "keep")
        size = {t["tensor"]: t["bytes"] for t in keep["tensors"]}
        seven = ("block_input", "qkv", "attention_output", "mlp_norm_input", "fc1_input", "fc1_output", "fc2_input")
        self.assertEqual(sum(size[t] for t in seven), 672 << 20)

    def test_tensor_parallel_stages_are_planned_and_checked(self):
        settings = ("parallel.tensor_parallel=2", "parallel.data_parallel=1", "parallel.layers_per_virtual_stage=1",
                    "model.num_hidden_layers=4")
        facts = self.facts(*settings)
        self.assertEqual(facts["layout"]["chunks_per_stage"], 2)
        self.assertEqual(self.check(*settings).code, 0)
        self.assertEqual(self.check(*settings[2:]).code, 0)

    def test_uneven_stages_are_not_averaged(self):
        facts = self.facts("model.num_hidden_layers=7", "parallel.layers_per_stage=[2, 5]")
        self.assertEqual([s["layers"] for s in facts["stages"]], [2, 5])
        experts = [s["parameters_per_rank"]["expert"] for s in facts["stages"]]
        self.assertEqual(experts[0] * 5, experts[1])  # the first of two layers is dense


class Models(PlanTest):
    def config(self, **changes):
        file = self.scratch / "config.json"
        file.write_text(json.dumps({k: v for k, v in {**QWEN3, **changes}.items() if v is not None}))
        return file

    def test_a_hugging_face_config_replaces_the_model(self):
        facts = self.facts(arguments=("--model", self.config()))
        self.assertAlmostEqual(facts["model"]["parameters"]["total"] / 1e9, 30.53, places=2)
        self.assertEqual(facts["config"]["model"]["num_experts"], 128)
        self.assertEqual(facts["config"]["model"]["bytes_per_element"], 2)

    def test_the_command_line_wins_over_it(self):
        facts = self.facts("model.num_hidden_layers=4", arguments=("--model", self.config()))
        self.assertEqual(facts["config"]["model"]["num_hidden_layers"], 4)

    def test_what_is_not_modelled_is_named(self):
        outcome = self.plan(arguments=("--model", self.config(kv_lora_rank=512, sliding_window=4096)))
        self.assertEqual(outcome.code, 0, outcome.err)
        for word in ("kv_lora_rank = 512", "sliding_window = 4096", "not modelled"):
            self.assertIn(word, outcome.out)

    def test_a_workload_that_a_run_would_refuse_is_named(self):
        facts = self.facts("routing.peak=3.5")
        self.assertIn("routing.peak = 3.5", facts["warnings"][0])

    def test_a_missing_key_or_file_is_one_clear_error(self):
        self.assert_refused(self.plan(arguments=("--model", self.config(num_experts=None))), 2, "config.json",
                            "num_experts or n_routed_experts or num_local_experts")
        self.assert_refused(self.plan(arguments=("--model", "absent.json")), 2, "absent.json")
        self.assert_refused(self.plan(case="absent.toml"), 2, "absent.toml")
        self.assert_refused(self.plan("training.iteratoins=5"), 2, "iteratoins", "training.iterations")
        self.assert_refused(self.plan("parallel.layers_per_virtual_stage=3"), 2, "layers_per_virtual_stage")


if __name__ == "__main__":
    unittest.main()
