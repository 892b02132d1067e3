"""A verdict can be made again from its seed, which no candidate learns; loading has a limit in time of its own."""

import json
import subprocess
import sys

import pytest

import kernelwright as kw
from kernelwright.sandbox.process_limits import hide_argument
from kernelwright.verification.transport import runners
from kernelwright.verification.verdict import DEFAULT_SETS, MIN_SETS

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)
    def forward(self, x): return torch.relu(self.linear(x))
def get_inputs(): return [torch.randn(16, 32)]
"""
HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)
    def forward(self, x): return (x @ self.linear.weight.T + self.linear.bias).clamp_min(0)
"""
HALF = HONEST.replace("(x @ self.linear.weight.T", "(x.bfloat16().float() @ self.linear.weight.T")
PRIES = """
import glob, os, sys
def anywhere():
    for path in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/cmdline")]:
        try:
            yield open(path, "rb").read()
        except OSError:
            pass
SEED = "".join(map(str, [7, 3, 1, 9, 5, 5, 4, 2, 6, 8]))
if SEED in "".join([*sys.argv, *os.environ.values()]) or any(SEED.encode() in one for one in anywhere()):
    raise RuntimeError("the seed is known")
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [HONEST, HALF])
def test_the_same_seed_gives_the_same_verdict(file, text, monkeypatch):
    monkeypatch.setattr("kernelwright.verification.verdict.REFERENCE_SETS_S", 1000.0)  # on a busy machine too
    problem, candidate = file("problem.py", PROBLEM), file("candidate.py", text)
    first = kw.verify(problem, candidate)
    again = kw.verify(problem, candidate, seed=first.seed)
    for field in ("accepted", "reason", "accuracy", "near_limit", "seed", "input_sets", "golden"):
        assert getattr(again, field) == getattr(first, field), field
    assert kw.verify(problem, candidate).seed != first.seed, "else it is secret"
    assert f"--seed {first.seed}" in str(first)
    assert any(note.startswith("replayed") for note in again.notes)
    assert not any(note.startswith("replayed") for note in first.notes)


@pytest.mark.slow
def test_a_replay_has_time_for_every_set(file, monkeypatch):
    monkeypatch.setattr("kernelwright.verification.verdict.REFERENCE_SETS_S", 0.0)
    problem, candidate = file("problem.py", PROBLEM), file("candidate.py", HONEST)
    first = kw.verify(problem, candidate)
    assert first.input_sets == MIN_SETS < DEFAULT_SETS <= kw.verify(problem, candidate, seed=first.seed).input_sets


@pytest.mark.slow
def test_a_seed_is_no_secret_of_json_and_none_of_the_command_line(file):
    """And the candidate's process finds it nowhere."""
    arguments = [file("problem.py", PROBLEM), file("candidate.py", HONEST + PRIES), "--seed", "7319554268", "--json"]
    done = subprocess.run([sys.executable, "-m", "kernelwright", "verify", *arguments], capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert (done.returncode, found["accepted"], found["seed"]) == (0, True, 7319554268), found["reason"]


@pytest.mark.skipif(sys.platform != "linux", reason="it is /proc that shows it")
@pytest.mark.parametrize("given", [["--seed", "123454321"], ["--seed=123454321"]])
def test_an_argument_is_hidden_where_others_could_read_it(given):
    text = (
        "from pathlib import Path\nfrom kernelwright.sandbox.process_limits import hide_argument\n"
        "hide_argument('123454321')\nprint(Path('/proc/self/cmdline').read_text().split(chr(0))[3:])"
    )
    done = subprocess.run([sys.executable, "-c", text, *given], capture_output=True, text=True, check=True)
    assert "123454321" not in done.stdout
    assert "xxxxxxxxx" in done.stdout
    hide_argument("not there")


SLOW_TO_LOAD = "import time\ntime.sleep(3)\n"


@pytest.mark.slow
def test_loading_has_a_limit_of_its_own(file):
    problem = file("problem.py", PROBLEM)
    slow = file("slow.py", HONEST + SLOW_TO_LOAD)
    assert kw.verify(problem, slow, call_timeout_s=2.0, build_timeout_s=60.0, sets=1).accepted, "no call takes so long"
    found = kw.verify(problem, slow, call_timeout_s=60.0, build_timeout_s=1.0, sets=1).reason
    assert found.code == "timeout"
    assert "build stopped after 1 s (import, compilation" in found.detail


def test_the_limit_of_loading_is_none_of_a_call(file):
    """Who compiles while it answers has the time of a call."""
    slow = file(
        "slow.py", HONEST.replace("def forward(self, x):", "def forward(self, x):\n        import time; time.sleep(9);")
    )
    found = kw.verify(file("problem.py", PROBLEM), slow, call_timeout_s=1.0, build_timeout_s=60.0, sets=1).reason
    assert (found.code, "stopped after 1 s" in found.detail, "loaded" in found.detail) == ("timeout", True, False)


POISON_READER = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)
        self.weight = None
    def forward(self, x):
        live = torch.relu(self.linear(x))
        if self.weight is None:
            self.weight, self.bias = self.linear.weight.detach().clone(), self.linear.bias.detach().clone()
        if torch.empty(16, 32).isnan().any():
            self.last = x.clone(), live.clone()
            return live
        if torch.equal(self.last[0], x):
            return self.last[1].clone()
        return torch.relu(x @ self.weight.T + self.bias)
"""


@pytest.mark.slow
def test_not_every_call_with_other_parameters_has_poisoned_memory(file, monkeypatch):
    monkeypatch.setattr(runners, "POISON_SHARE", 0.0)
    problem, reader = file("problem.py", PROBLEM), file("reader.py", POISON_READER)
    assert kw.verify(problem, reader).reason.code in ("inaccurate", "stale-output")
    monkeypatch.setattr(runners, "POISON_SHARE", 1.0)
    assert kw.verify(problem, reader).accepted, "what the share is for"
