"""MKL's vector functions are called once by one thread before a candidate's, or the reference's, two threads are.

The race itself takes hundreds of processes to be seen: `python tests/problems/first_calls.py` makes them.
"""

import subprocess
import sys

import pytest
from tiers import fast_first

ASK = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for arg in args:
            if isinstance(arg, torch.Tensor):
                seen.add((function.overloadpacket.__name__, arg.dtype, arg.numel()))
        return function(*args, **(kwargs or {}))

seen = set()
with Seen():
    LOAD
for name in ("exp", "log", "sqrt", "erf", "tanh", "sin", "expm1", "log1p"):
    for dtype in (torch.float32, torch.float64):
        assert (name, dtype, 1) in seen, (name, dtype)
"""


@pytest.mark.parametrize(
    "load",
    fast_first(
        1,
        [
            "from kernelwright.problems import load_problem; load_problem('examples/softmax.py')",
            "from kernelwright.problems import Problem; Problem.from_callable(torch.exp, torch.ones(3))",
            "from kernelwright.verification.worker.tasks import open_problem; "
            "open_problem(dict(problem='examples/softmax.py', device='cpu', folder='.', chain_library=''))",
        ],
    ),
)
def test_every_function_is_called_by_one_thread_before_a_program_is(load: str) -> None:
    code = ASK.replace("LOAD", load)
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
