"""A process that compiles a program ahead."""

import os
import subprocess
import sys

import torch

from kernelwright.compiler import compile_ahead
from kernelwright.compiler.compile_ahead import CompileAhead

PROBLEM = """
import torch


def program(x):
    return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(4)]
"""


def test_the_program_is_compiled_and_called(tmp_path, monkeypatch):
    path, calls = tmp_path / "program.py", []
    path.write_text(PROBLEM)

    def compiled(program, *, backend, dynamic):
        return lambda *inputs: calls.append((program(*inputs), torch.is_grad_enabled(), dynamic))

    monkeypatch.setattr(torch, "compile", compiled)
    compile_ahead.compile_program(str(path), "cpu")
    ((result, grad_enabled, dynamic),) = calls
    assert result.shape == (4,)
    assert not grad_enabled
    assert dynamic is False


CALL = """
import sys, torch
from torch._dynamo.utils import counters
from kernelwright.compiler.compile_ahead import compile_program
from kernelwright.problems import load_problem
if sys.argv[2] == "ahead":
    compile_program(sys.argv[1], "cpu")
else:
    problem = load_problem(sys.argv[1])
    with torch.no_grad():
        torch.compile(problem.program_on("cpu"), dynamic=False)(*problem.inputs("cpu", 0)[0])
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


def test_another_process_finds_what_was_compiled(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROBLEM)
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    for way, expected in (("ahead", "0 1"), ("here", "1 0")):
        command = [sys.executable, "-c", CALL, str(path), way]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[-2] == expected


def test_a_process_is_waited_for_and_ends_with_the_block(monkeypatch):
    start, started = subprocess.Popen, []

    def sleep(command, **given):
        assert command[:3] == [sys.executable, "-m", "kernelwright.compiler.compile_ahead"]
        started.append(start([sys.executable, "-c", f"import time; time.sleep({command[3]})"], **given))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", sleep)
    with CompileAhead("0", "cpu") as ahead:
        assert ahead.wait(60.0)
    with CompileAhead("600", "cpu") as ahead:
        assert not ahead.wait(0.0)
    assert started[-1].poll() is not None
