"""Runs over a suite that are killed at random points, the judge or any process under it, until all is judged.

python tests/evaluation/faults.py [KILLS] [SEED]: what was killed, and whether a verdict was lost, made twice, or wrong.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {formula}

def get_inputs():
    return [torch.randn(64, 256)]
"""
CANDIDATE = PROBLEM.partition("def get_inputs")[0].replace("Model(", "ModelNew(")
FORMULAS = {
    "affine": ("2 * x + 1", {"right": "x + x + 1", "wrong": "2 * x"}),
    "rows": (
        "x.sort(-1).values.softmax(-1)",  # takes long enough that few calls are a series where it is timed
        {"right": "(x - x.amax(-1, True)).sort(-1)[0].softmax(1)", "half": "x.half().sort(-1)[0].softmax(-1).float()"},
    ),
    "total": ("x.sum(-1)", {"right": "x.double().sum(-1).float()", "crash": "__import__('os').abort()"}),
}  # fmt: skip
EXPECTED = {
    "affine_right.py": "",
    "affine_wrong.py": "inaccurate",
    "rows_half.py": "inaccurate",
    "rows_right.py": "",
    "total_crash.py": "crash",
    "total_right.py": "",
}
END_S = 30.0


def write_suite(folder):
    """Three problems with two candidates each; the folders of both."""
    problems, candidates = folder / "problems", folder / "candidates"
    for one in (problems, candidates):
        one.mkdir()
    for name, (formula, others) in FORMULAS.items():
        (problems / f"{name}.py").write_text(PROBLEM.format(formula=formula))
        for kind, other in others.items():
            (candidates / f"{name}_{kind}.py").write_text(CANDIDATE.format(formula=other))
    return problems, candidates


def start(folder, results):
    words = ["suite", "run", folder / "problems", "--candidates", folder / "candidates", "--baseline", "", "--json"]
    command = [sys.executable, "-m", "kernelwright", *words, "--workers", "2", "--results", results]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def kill_something(run, draw):
    """Kills the judge, or any process under it; None where everything has ended. Who survives his judge is a fault."""
    try:
        under = psutil.Process(run.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return None
    victim = draw.choice([psutil.Process(run.pid), draw.choice(under)]) if under else psutil.Process(run.pid)
    try:
        what = "judge" if victim.pid == run.pid else "under it"
        victim.kill()
    except psutil.NoSuchProcess:
        return None
    if what == "judge":
        run.wait()
        left = psutil.wait_procs(under, timeout=END_S)[1]
        assert not left, f"{left} outlived the judge"
    return what


def told(results):
    """The verdicts in a file of results, by candidate: a line without one is no verdict."""
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return [(one["candidate"], (one["verdict"]["reason"] or {"code": ""})["code"]) for one in lines if one["verdict"]]


def kill_and_resume(folder, kills, seed, say=lambda line: None, *, within_s=12.0):
    """How often what was killed.

    Args:
        within_s: of its beginning a run is killed.
    Raises:
        AssertionError: a verdict lost, told twice, or wrong; a process that outlives its judge.
    """
    draw, killed, runs = random.Random(seed), Counter(), 0
    while sum(killed.values()) < kills:
        runs += 1
        results = folder / f"results-{runs}.jsonl"
        known = []
        while len(known) < len(EXPECTED):
            began, run = time.monotonic(), start(folder, results)
            if sum(killed.values()) < kills:
                time.sleep(draw.uniform(0, within_s))
                if what := kill_something(run, draw):
                    killed[what] += 1
                    after_s = time.monotonic() - began
                    say(f"{sum(killed.values())}: killed {what} after {after_s:.1f} s, {len(known)} known before")
            run.communicate()
            now = told(results)
            assert now[: len(known)] == known, f"lost: {known} became {now}"
            assert len(dict(now)) == len(now), f"told twice: {now}"
            wrong = {name: code for name, code in now if EXPECTED[name] != code}
            assert not wrong, f"wrong: {wrong}\n{results.read_text()}"
            known = now
    return killed, runs


def main(kills="100", seed="0"):
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    with tempfile.TemporaryDirectory() as folder:
        write_suite(Path(folder))
        killed, runs = kill_and_resume(Path(folder), int(kills), int(seed), lambda line: print(line, flush=True))
    print(f"{dict(killed)} killed in {runs} suites of {len(EXPECTED)} candidates: none lost, none twice, none wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
