"""Runs the program for the tests, under packaging/mpirun.sh where it needs several ranks."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPILLWAY = os.environ["SPILLWAY"]
FAULTY = os.environ["SPILLWAY_FAULTY"]
RUNS = ROOT / "inputs" / "runs"


class Outcome:
    """What a command left: exit code, texts, seconds, and the folder for its results."""

    def __init__(self, code, out, err, seconds, folder):
        self.code, self.out, self.err = code, out, err
        self.seconds, self.folder = seconds, folder

    def errors(self):
        """The program's own complaints, without a launcher's."""
        return [line for line in self.err.splitlines() if line.startswith("spillway: error:")]

    def figures(self):
        """The figure-of-merit lines as dictionaries, with their first word under 'line'."""
        lines = [line.split() for line in self.out.splitlines() if re.match(r"(FOM|PROJECTED|INFEASIBLE) ", line)]
        return [{"line": words[0], **dict(w.split("=", 1) for w in words[1:] if "=" in w)} for words in lines]

    def result(self):
        return json.loads((self.folder / "result.json").read_text())


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-test-")))

    def execute(self, command, environment=None, folder=None, limit=100):
        started = time.monotonic()
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(list(map(str, command)), errors="replace", cwd=self.scratch,
                              env={**os.environ, **(environment or {})}, **pipes) as process:
            try:
                out, err = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.terminate()  # a launcher takes its ranks with it
                out, err = process.communicate(timeout=20)
                self.fail(f"still running after {limit} s: {command}\n{out}{err}")
        return Outcome(process.returncode, out, err, time.monotonic() - started, folder)

    def start(self, *settings, case="tiny", ranks=4, program=SPILLWAY, arguments=(), environment=None, folder=None,
              limit=100, before=()):
        """spillway run CASE with settings, each key=value, on several ranks; results go to a fresh folder. `before` is
        put in front of the launcher."""
        folder = folder or self.scratch / f"results-{len(list(self.scratch.iterdir()))}"
        command = [*before, ROOT / "packaging/mpirun.sh", ranks, program, "run", RUNS / f"{case}.toml", "--output", folder,
                   *arguments]
        for setting in settings:
            command += ["--set", setting]
        return self.execute(command, environment, folder, limit)

    def check(self, *settings, case="tiny", arguments=()):
        """spillway run CASE --validate-only: no launcher, no MPI."""
        command = [SPILLWAY, "run", RUNS / f"{case}.toml", "--validate-only", *arguments]
        for setting in settings:
            command += ["--set", setting]
        return self.execute(command)

    def assert_refused(self, outcome, code, *words):
        """One complaint, with these words in it, and that exit code."""
        self.assertEqual(outcome.code, code, outcome.err)
        self.assertEqual(len(outcome.errors()), 1, outcome.err)
        for word in words:
            self.assertIn(word, outcome.errors()[0])
        self.assertEqual(outcome.figures(), [])

    def assert_follows_schema(self, outcome):
        done = self.execute([sys.executable, ROOT / "tests/cli/validate_result.py", outcome.folder / "result.json"])
        self.assertEqual(done.code, 0, done.out + done.err)
