#!/usr/bin/env python3
"""Decisions that are exported and replayed, files of decisions that are wrong, and a cap that nothing fits under."""
import json
import re
import unittest

from program import ProgramTest

# A spike under a cap that calls for every mitigation, slices included.
TIGHT = ["memory.cap=116 KiB", "routing.preset=hot_rank", "routing.peak=2", "routing.hot_share=1", "training.iterations=2"]


def policies(*names):
    return f"provisioning.policies={json.dumps(names)}"


class Replay(ProgramTest):
    def export(self, policy):
        file = self.scratch / f"{policy.replace(':', '-')}.jsonl"
        outcome = self.start(*TIGHT, policies(policy), arguments=("--decisions", file))
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertTrue(lines)
        return outcome, lines

    def replay(self, text):
        file = self.scratch / "changed.jsonl"
        file.write_text(text)
        return self.start(*TIGHT, policies("replay"), f'replay.file="{file}"', limit=60)

    def test_replayed_decisions_give_the_run_they_were_exported_from(self):
        for policy in ("flexible:ratio", "flexible:greedy", "full:slices"):
            with self.subTest(policy):
                exported, lines = self.export(policy)
                replayed = self.replay("\n".join(map(json.dumps, lines)))
                self.assertEqual(replayed.code, 0, replayed.out + replayed.err)
                first, second = exported.result()["runs"][0], replayed.result()["runs"][0]
                for key in ("seconds", "gradient_checksum", "event"):
                    self.assertEqual([i[key] for i in first["iterations"]], [i[key] for i in second["iterations"]], key)
                self.assertEqual([r["peak_bytes"] for r in first["ranks"]],
                                 [r["peak_bytes"] for r in second["ranks"]])

    def test_a_file_that_is_wrong_is_refused_once_and_nobody_waits(self):
        _, lines = self.export("flexible:ratio")
        experts = next(i for i, line in enumerate(lines) if line["rows"] > 0)

        def changed(index, **entries):
            return [{**line, **(entries if i == index else {})} for i, line in enumerate(lines)]

        other = 0 if lines[experts]["tiles_per_slice"] else 1
        wrong = {
            "slices differ in an expert group": (changed(experts, tiles_per_slice=other), "the same collectives"),
            "a decision is missing": (lines[:experts] + lines[experts + 1:], "no decision for iteration"),
            "an iteration is missing": ([x for x in lines if x["iteration"] == 0], "no decision for iteration 1"),
            "no such tensor": (changed(experts, after={"recompute": ["fc3_input"]}), "fc3_input"),
            "no such treatment": (changed(experts, after={"compress": ["fc1_input"]}), "compress"),
            "a rank beyond the job": (changed(experts, rank=9), '"rank" is 9'),
            "a number is text": (changed(experts, tiles_per_slice="many"), "not a decision"),
        }
        texts = {name: ("\n".join(map(json.dumps, entries)), word) for name, (entries, word) in wrong.items()}
        texts["garbage"] = ("\x00\x01 no JSON at all\n", "not a decision")
        texts["half a line"] = (json.dumps(lines[0])[:40], "not a decision")
        texts["nothing"] = ("", "no decision for iteration 0")
        for name, (text, word) in texts.items():
            with self.subTest(name):
                outcome = self.replay(text)
                self.assert_refused(outcome, 2, word)
                self.assertLess(outcome.seconds, 40)

    def test_decisions_do_not_take_the_place_of_results(self):
        folder = self.scratch / "results"
        folder.mkdir()
        outcome = self.start(policies("full"), arguments=("--decisions", folder / "result.json"), folder=folder)
        self.assert_refused(outcome, 2, "the results' own")
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_file_that_is_not_there_is_refused(self):
        outcome = self.start(policies("replay"), 'replay.file="/no/such/decisions.jsonl"')
        self.assertNotEqual(outcome.code, 0)
        self.assertEqual(len(outcome.errors()), 1, outcome.err)
        self.assertIn("/no/such/decisions.jsonl", outcome.err)


class Cap(ProgramTest):
    def run_under(self, cap):
        return self.start(policies("flexible"), f"memory.cap={cap}", "routing.peak=2", "training.iterations=2")

    def assert_infeasible(self, outcome):
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertEqual([figure["line"] for figure in outcome.figures()], ["INFEASIBLE"], outcome.out)
        self.assertEqual(outcome.result()["runs"][0]["iterations"], [])

    def test_a_cap_below_the_least_is_infeasible_before_the_first_step(self):
        outcome, least = self.run_under(4096), 0
        for _ in range(2):  # the first stage that does not fit speaks
            if outcome.figures()[0]["line"] != "INFEASIBLE":
                break
            self.assert_infeasible(outcome)
            least = int(re.search(r"needs (\d+) bytes", outcome.out).group(1))
            outcome = self.run_under(least)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertEqual(outcome.figures()[0]["status"], "VALID")
        self.assertEqual([i["event"] for i in outcome.result()["runs"][0]["iterations"]], ["none", "none"])
        below = self.run_under(least - 256)
        self.assert_infeasible(below)
        self.assertRegex(below.out, rf"needs {least} bytes, 256 more than memory\.cap = {least - 256} bytes")

    def test_hindsight_is_infeasible_where_flexible_is(self):
        outcome = self.start(policies("oracle", "hindsight"), "memory.cap=4096", "routing.peak=2", "training.iterations=2")
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        self.assertEqual([figure["line"] for figure in outcome.figures()], ["PROJECTED", "INFEASIBLE"], outcome.out)


class Lossy(ProgramTest):
    def test_quantizing_policies_and_decisions_are_compared_within_a_tolerance(self):
        outcome = self.start("flexible.quantize=true", policies("oracle", "hindsight"), "training.iterations=2")
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        file = self.scratch / "decisions.jsonl"
        outcome = self.start(policies("full"), "training.iterations=2", arguments=("--decisions", file))
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if line["layer"] >= 0:
                line["before"] = line["after"] = {"quantize": ["qkv"]}
        file.write_text("\n".join(map(json.dumps, lines)))
        outcome = self.start(policies("oracle", "replay"), f'replay.file="{file}"', "training.iterations=2")
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)


class Planners(ProgramTest):
    def test_on_one_rank_and_on_small_stages_they_verify_themselves(self):
        names = policies("unified", "adapipe", "kuai", "paged", "flexible")
        alone = ["parallel.pipeline_parallel=1", "parallel.data_parallel=1", "parallel.expert_parallel=1",
                 "routing.preset=balanced", "training.iterations=1"]
        outcome = self.start(names, *alone, ranks=1)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        outcome = self.start(names, "parallel.data_parallel=1", "parallel.expert_parallel=1", "model.num_hidden_layers=2",
                             "model.hidden_size=33", "routing.preset=balanced", "training.iterations=1", ranks=2)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)


if __name__ == "__main__":
    unittest.main()
