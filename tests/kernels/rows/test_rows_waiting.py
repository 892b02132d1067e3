"""A kernel that is launched beside the end of another one waits for it before it looks at memory."""

import ast
import os
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import kernelwright.kernels
from kernelwright.judge.machine_code import machine_code
from kernelwright.kernels import softmax
from kernelwright.kernels.catalog import KERNELS

WAIT = "wait_for_earlier()"
SOURCES = sorted(Path(kernelwright.kernels.__file__).parent.glob("*/*kernel.py"))
SAMPLES = [f"kernels/{name}:{variant}" for name, kernel in KERNELS.items() for variant in kernel.variants]
COMPILED = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="nothing is compiled where it is interpreted")


def kernels():
    for path in SOURCES:
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.FunctionDef) and one.decorator_list and not one.name.startswith("_"):
                yield pytest.param(one, id=f"{path.parent.name}.{one.name}")


@pytest.mark.parametrize("kernel", list(kernels()))
def test_waiting_comes_first_or_not_at_all(kernel):
    first, *others = [ast.unparse(one) for one in kernel.body if not ast.get_docstring(kernel) or one != kernel.body[0]]
    assert WAIT not in "\n".join(others)
    assert first == WAIT or "program_id" not in ast.unparse(kernel), "half a microsecond is left lying"


@COMPILED
@pytest.mark.parametrize("target", SAMPLES)
def test_nothing_is_read_or_written_before(target):
    opcodes = [one.opcode for one in machine_code(target).instructions]
    touching = [at for at, one in enumerate(opcodes) if one.startswith(("LDG", "STG", "ATOM", "RED"))]
    assert opcodes.index("ACQBULK") < min(touching)


@COMPILED
def test_an_older_machine_has_no_such_instruction():
    assert "ACQBULK" not in [one.opcode for one in machine_code("kernels/softmax", arch="sm_80").instructions]


@pytest.mark.gpu
@pytest.mark.parametrize("N", [1000, 2**16], ids=["triton", "clusters"])
def test_it_waits_for_kernels_copies_and_other_streams_in_graphs_too(N):
    x, more = torch.zeros(64, N, device="cuda"), torch.randn(64, N, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def work():
        x.zero_()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10**6)
            x[32:].add_(more[32:])
        x[:32].copy_(more[:32])
        torch.cuda.current_stream().wait_stream(side)
        y = softmax(x)
        torch.cuda._sleep(10**5)
        return softmax(y.mul_(3))

    for _ in range(2):
        eager = work()
    with torch.cuda.graph(graph):
        captured = work()
    graph.replay()
    want = torch.softmax(3 * torch.softmax(more.double(), -1), -1)
    for got in (eager, captured):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-9)
