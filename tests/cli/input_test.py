#!/usr/bin/env python3
"""Inputs that users got wrong elsewhere: the right value, or one clear error before anything is started."""
import os
import unittest

from program import RUNS, SPILLWAY, ProgramTest


class Layers(ProgramTest):
    def test_seven_layers_on_two_stages_are_four_and_three(self):
        outcome = self.check("model.num_hidden_layers=7")
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertIn("7 = 4 + 3", outcome.out)

    def test_thirty_layers_on_four_stages_are_all_there(self):
        outcome = self.check("model.num_hidden_layers=30", "parallel.pipeline_parallel=4")
        self.assertIn("30 = 8 + 8 + 7 + 7", outcome.out)

    def test_stated_layers_must_add_up(self):
        outcome = self.check("model.num_hidden_layers=7", "parallel.layers_per_stage=[3, 3]")
        self.assert_refused(outcome, 2, "3 + 3 = 6 layers", "num_hidden_layers = 7")

    def test_more_stages_than_layers_are_refused(self):
        self.assert_refused(self.check("parallel.pipeline_parallel=5"), 2, "4", "5", "without a layer")


class Experts(ProgramTest):
    def test_256_experts_on_3_ranks_are_refused_with_legal_layouts(self):
        outcome = self.check("model.num_experts=256", "parallel.data_parallel=3", "parallel.expert_parallel=3")
        self.assert_refused(outcome, 2, "256 = 85 x 3 + 1", "Nearest that fit")

    def test_24_ranks_would_orphan_8_of_128_experts(self):
        outcome = self.check("model.num_experts=128", "parallel.data_parallel=24", "parallel.expert_parallel=24")
        self.assert_refused(outcome, 2, "128", "24", "8", "16", "32")

    def test_an_expert_group_must_tile_the_stage(self):
        outcome = self.check("parallel.data_parallel=6", "parallel.expert_parallel=4", "model.num_experts=12")
        self.assert_refused(outcome, 2, "expert_parallel = 4", "6 ranks", "nearest", "3", "6")

    def test_more_experts_per_token_than_experts_are_refused(self):
        self.assert_refused(self.check("model.num_experts_per_tok=5"), 2, "5", "4")


class BeforeTheFirstStep(ProgramTest):
    WRONG = {"model.num_key_value_heads=3": "num_key_value_heads", "model.head_dim=3": "head_dim",
             "training.micro_batches=0": "micro_batches", "routing.reference_ranks=3": "reference_ranks",
             "routing.peak=3.5": "peak", "routing.calm=1.99": "calm", "memory.alignment=100": "alignment",
             "provisioning.fallback=none": "fallback", "provisioning.policies=[]": "policies",
             "training.iterations=-1": "iterations", "machine.peak_flops=0": "peak_flops"}

    def test_wrong_sizes_are_refused_at_once_and_leave_no_folder(self):
        for setting, word in self.WRONG.items():
            with self.subTest(setting):
                self.assert_refused(self.check(setting), 2, word)
                folder = self.scratch / "never"
                outcome = self.execute([SPILLWAY, "run", RUNS / "tiny.toml", "--output", folder, "--set", setting])
                self.assertEqual(outcome.code, 2, outcome.err)
                self.assertLess(outcome.seconds, 20)
                self.assertFalse(folder.exists())

    def test_products_of_sizes_that_would_overflow_are_refused(self):
        outcome = self.check("training.iterations=2147483647", "training.micro_batches=1048576",
                             "training.sequence_length=16777216")
        self.assert_refused(outcome, 2, "2^53")

    def test_counts_of_the_largest_models_stay_positive(self):
        outcome = self.check("model=kimi-k2-like", "model.bytes_per_element=4", "routing.preset=balanced",
                             "routing.reference_ranks=1")
        self.assertEqual(outcome.code, 0, outcome.err)
        parameters = int(outcome.out.split("parameters")[1].split(",")[0])
        self.assertGreater(parameters, 10**12)


class Precedence(ProgramTest):
    def test_the_command_line_wins_over_the_file(self):
        self.assertIn("4 iterations", self.check().out)
        self.assertIn("5 iterations", self.check("training.iterations=9", "training.iterations=5").out)

    def test_an_unknown_key_is_refused_with_the_nearest(self):
        self.assert_refused(self.check("training.iteratoins=5"), 2, "iteratoins", "training.iterations")

    def test_an_unknown_model_policy_or_command_is_refused_with_the_nearest(self):
        self.assert_refused(self.check("model=demmo"), 2, "demmo", "demo")
        self.assert_refused(self.check('provisioning.policies=["kep"]'), 2, "kep", "keep")
        self.assert_refused(self.execute([SPILLWAY, "rum", RUNS / "tiny.toml"]), 2, "rum", "run")

    def test_a_value_of_another_kind_is_refused(self):
        self.assert_refused(self.check("training.iterations=many"), 2, "training.iterations", "many")

    def test_a_missing_case_file_is_an_input_error(self):
        self.assert_refused(self.execute([SPILLWAY, "run", "absent.toml"]), 2, "absent.toml")

    def test_a_named_pipe_as_case_file_is_refused_instead_of_waited_for(self):
        os.mkfifo(self.scratch / "pipe.toml")
        self.assert_refused(self.execute([SPILLWAY, "run", "pipe.toml"], limit=20), 2, "pipe.toml")

    def test_a_line_of_megabytes_is_not_repeated_in_the_message(self):
        (self.scratch / "long.toml").write_text("a" * 5_000_000)
        outcome = self.execute([SPILLWAY, "run", "long.toml"])
        self.assert_refused(outcome, 2, "long.toml:1")
        self.assertLess(len(outcome.err), 1000)

    def test_blanks_after_the_commas_of_a_list_do_not_count(self):
        self.assertEqual(self.check("provisioning.policies=keep, full").code, 0)


class Help(ProgramTest):
    def test_help_lists_every_command_and_the_exit_codes(self):
        outcome = self.execute([SPILLWAY, "--help"])
        self.assertEqual(outcome.code, 0)
        for word in ("run", "0 valid", "1 invalid", "2 usage", "3 environment", "75 requeue"):
            self.assertIn(word, outcome.out)

    def test_help_of_run_lists_every_option_of_the_echoed_configuration(self):
        help_text = self.execute([SPILLWAY, "run", "--help"]).out
        for option in ("--set", "--output", "--validate-only", "--allow-oversubscribed", "--csv-per-rank"):
            self.assertIn(option, help_text)
        outcome = self.start("parallel.pipeline_parallel=1", "parallel.data_parallel=1", "parallel.expert_parallel=1",
                             "training.iterations=1", 'provisioning.policies=["keep"]', ranks=1)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        config = outcome.result()["config"]
        keys = [f"{section}.{key}" if isinstance(values, dict) else section
                for section, values in config.items() for key in (values if isinstance(values, dict) else [section])]
        self.assertGreater(len(keys), 50)
        for key in keys:
            self.assertIn(key, help_text)


if __name__ == "__main__":
    unittest.main()
