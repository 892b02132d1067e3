"""A captured graph is offered where calls cost more than kernels, and only there."""

import pytest
import torch

from kernelwright.compiler.cuda_graph import measure_in_graph_us, suggest_cuda_graph
from kernelwright.machines import machine
from kernelwright.problems import Problem


def many(x):
    for _ in range(20):
        x = x * 1.01 + 0.1
    return x


def waits(x):
    return x * x.sum().item()


def writes(x):
    for _ in range(20):
        x.mul_(1.01)
    return x + 1


def offered(program, size):
    problem = Problem.from_callable(program, torch.randn(size, device="cuda"))
    return suggest_cuda_graph(problem, lambda: problem.program_on("cuda"), machine("cuda"))


@pytest.mark.gpu
def test_a_chain_of_short_kernels_gets_an_offer():
    assert "CUDA graph" in offered(many, 1000)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("program", "size"), [(many, 50_000_000), (waits, 1000), (writes, 1000)], ids=["long", "waits", "writes"]
)
def test_nothing_is_offered_that_gains_nothing_or_cannot_be(program, size):
    assert offered(program, size) == ""


@pytest.mark.gpu
def test_a_graph_shows_what_the_device_takes_and_one_that_cannot_be_captured_does_no_harm():
    x = torch.randn(1000, device="cuda")
    assert 0 < measure_in_graph_us(lambda: x + 1) < 10
    assert measure_in_graph_us(lambda: waits(x)) is None
    assert torch.randn(3, device="cuda").isfinite().all()
