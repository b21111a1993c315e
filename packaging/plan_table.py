#!/usr/bin/env python3
"""plan_table.py SPILLWAY FOLDER -- the expert load at which each static policy stops fitting, for the published shapes.

Runs `SPILLWAY plan` on inputs/runs/published/*.toml for every inventory of saved tensors and writes
  FOLDER/README.md    provenance and tables
  FOLDER/limits.csv   every stage
Pure arithmetic: the same on any machine.
"""
import csv
import io
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
INVENTORIES = ("lean", "default", "with_combine")
CAPS = {"64 GB": "as published", "60 GB": "a reserve of 4 GB", "64 GiB": "the other reading of 64 GB"}


def plan(spillway, case, **settings):
    """The facts of one plan."""
    command = [spillway, "plan", case, "--json", "-"]
    for key, value in settings.items():
        command += ["--set", f"{key.replace('__', '.')}={value}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def static_policies(facts):
    """Policies that obey the cap and decide without knowing the load."""
    return [p for p in facts["policies"] if p["obeys_cap"] and not p["adapts"] and p["no_forecast"] is None]


def load(value):
    """A load multiplier; null is never."""
    return "never" if value is None else f"{value:.3f}"


def size(case):
    """Devices of a case, the last part of its name: 423b-512."""
    return int(case.stem.rsplit("-", 1)[1])


def table(head, rows):
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def limits(spillway, cases):
    """Rows of the main table and of the CSV, and the names of the policies."""
    rows, stages, names = [], [], []
    for case in cases:
        for inventory in INVENTORIES:
            facts = plan(spillway, case, model__inventory=inventory)
            names = [p["policy"] for p in static_policies(facts)]
            static = max(s["static_bytes"]["total"] for s in facts["stages"]) / 1e9
            rows.append([facts["case"], inventory, f"{static:.2f}", f"{facts['load']['bound']:.2f}",
                         *(load(p["stops_fitting_at"]) for p in static_policies(facts))])
            for policy in static_policies(facts):
                stages += [[facts["case"], inventory, policy["policy"], s["stage"], s["rows_that_fit"],
                            "" if s["stops_fitting_at"] is None else s["stops_fitting_at"]] for s in policy["stages"]]
    return rows, stages, names


def readings(spillway, case):
    """One shape under other readings of its memory."""
    rows = []
    for cap, meaning in CAPS.items():
        facts = plan(spillway, case, memory__cap=cap)
        rows.append([cap, meaning, *(load(p["stops_fitting_at"]) for p in static_policies(facts))])
    return rows


def main(spillway, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    cases = sorted((ROOT / "inputs/runs/published").glob("*.toml"), key=size)
    rows, stages, names = limits(spillway, cases)
    version = subprocess.run([spillway, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
    text = f"""# Where static provisioning ends

Load, as a multiple of balance, at which a policy stops fitting on the worst stage when every MoE layer of every
micro-batch receives it; *never*: not even at the bound, the most that distinct experts allow. Cap 64 GB, no reserve, 56
micro-batches, sequence 4096, blocks without embedding and head, interleaved 1F1B as in inputs/runs/published.

Written by packaging/plan_table.py with {version} (commit {commit.stdout.strip()}); arithmetic alone, so the machine does not
matter. Loads of every stage: [limits.csv](limits.csv).

{table(["case", "inventory", "static GB", "bound", *names], rows)}
What the cap does to 423b-512 (inventory lean):

{table(["cap", "meaning", *names], readings(spillway, ROOT / "inputs/runs/published/423b-512.toml"))}"""
    (folder / "README.md").write_text(text)
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(["case", "inventory", "policy", "stage", "rows_that_fit", "stops_fitting_at"])
    writer.writerows(stages)
    (folder / "limits.csv").write_text(sheet.getvalue())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    main(sys.argv[1], sys.argv[2])
