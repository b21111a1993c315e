#!/usr/bin/env python3
"""ablation.py [INTERFERENCE ...] -- the demo's steps from full recompute to overlap, really run on 16 ranks, virtual clock.

Without arguments at the machine's own interference. Every step stands beside the oracle in the same order. The test
Ablation of test_app projects the same; the seconds are equal."""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMON = ["parallel.virtual_stages=2", "training.iterations=34"]  # the burst among them
STEPS = [
    (["full", "unified", "flexible:ratio"], ["parallel.schedule=1f1b"]),
    (["flexible:ratio"], ["parallel.schedule=dual_batch"]),
    (["flexible:ratio"], ["parallel.schedule=dual_batch", "parallel.fuse=always"]),
    (["flexible:ratio"], ["parallel.schedule=dual_batch_published"]),
]


def run(policies, settings):
    """The runs of result.json; prints the command."""
    settings = [*COMMON, *settings, "provisioning.margins=[]", "provisioning.policies=" + json.dumps(["oracle", *policies])]
    command = ["packaging/mpirun.sh", "16", "build/release/src/spillway", "run", "inputs/runs/demo.toml"]
    for setting in settings:
        command += ["--set", setting]
    print("$", shlex.join(command), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results"
        subprocess.run([*command, "--output", str(results)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return json.loads((results / "result.json").read_text())["runs"]


def percent(share):
    return "     -" if share is None else f"{100 * share:5.1f}%"


def main():
    for interference in sys.argv[1:] or [None]:
        for policies, settings in STEPS:
            extra = [] if interference is None else [f"machine.interference={interference}"]
            for step in run(policies, settings + extra):
                hidden, fom = step["summary"]["hidden_fraction"], step["fom"]
                print(f"{step['policy']:<16}{fom['tokens_per_second']:>10.1f} tokens/s {fom['provisioning_efficiency']:>6.3f} of"
                      f" the oracle, hidden: mitigation {percent(hidden['mitigation'])}, all-to-all {percent(hidden['all_to_all'])}"
                      f"  {'VALID' if step['valid'] else 'INVALID'}")


if __name__ == "__main__":
    main()
