"""`torch.compile(model, backend="kernelwright")`: the first call keeps the fastest form of each graph."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.compiler import fastest_graph
from kernelwright.compiler.dynamo_backend import kernelwright
from kernelwright.compiler.fastest_graph import FastestGraph


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that are compiled, and the times that their forms will have: kernels are fastest by default."""
    importlib.import_module("torch._inductor.compile_fx")  # its warnings are not those that a test expects
    torch._dynamo.reset()
    found, times = [], {"inductor": 100.0, "eager": 200.0, "kernels": 50.0}
    choose, time_us = FastestGraph._choose, FastestGraph._time_us

    def watched(self, args, differentiated):
        found.append(self)
        return choose(self, args, differentiated)

    def fake_time(self, form, args, differentiated):
        time_us(self, form, args, differentiated)
        name = "inductor" if form is self.inductor else "eager" if form is self.module else "kernels"
        return times[name]

    monkeypatch.setattr(FastestGraph, "_choose", watched)
    monkeypatch.setattr(FastestGraph, "_time_us", fake_time)
    monkeypatch.setattr(fastest_graph, "measure_steady_us", lambda call, device, budget_s: call())
    return found, times


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return F.gelu(self.norm(x)) + 1


@pytest.mark.parametrize(
    ("kernels_us", "eager_us", "expected"), [(50, 200, "kernels"), (99, 200, "inductor"), (300, 50, "eager")]
)
def test_the_fastest_form_is_kept_and_inductor_if_it_is_close(graphs, kernels_us, eager_us, expected):
    found, times = graphs
    times |= {"kernels": float(kernels_us), "eager": float(eager_us)}
    x = normal(6, 8)
    torch.testing.assert_close(torch.compile(torch.tanh, backend=kernelwright)(x), torch.tanh(x))
    (graph,) = found
    forms = {"inductor": graph.inductor, "eager": graph.module, "kernels": graph._own}
    assert graph._chosen[False] == forms[expected]


def test_timing_changes_neither_buffers_nor_random_state(graphs):
    model, other = Normed(), Normed()
    compiled = torch.compile(model, backend=kernelwright)
    for seed in range(2):
        state = torch.get_rng_state()
        torch.testing.assert_close(compiled(normal(6, 8, seed=seed)), other(normal(6, 8, seed=seed)))
        assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_random_numbers_are_those_of_eager(graphs):
    compiled = torch.compile(lambda x: F.dropout(x * 2, 0.5) + torch.rand_like(x), backend=kernelwright)
    results = []
    for program in (compiled, compiled, lambda x: F.dropout(x * 2, 0.5) + torch.rand_like(x)):
        torch.manual_seed(5)
        results.append(program(normal(6, 8)))
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])


def test_each_kind_of_call_is_timed_once(graphs):
    found, _ = graphs
    model = Normed().eval()
    compiled = torch.compile(model, backend=kernelwright)
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(compiled(normal(6, 8)), model(normal(6, 8)))
        out = compiled(normal(6, 8))
        out.sum().backward()
    graphs_found = {id(graph): graph for graph in found}.values()
    assert sorted(kind for graph in graphs_found for kind in graph.times_us) == [False, True]
    assert len(found) == 2


def test_a_graph_without_kernels_runs_with_inductor(graphs, monkeypatch):
    found, _ = graphs

    def refuse(module, inputs):
        raise RuntimeError("no compiler")

    monkeypatch.setattr("kernelwright.compiler.dynamo_backend.compile_with_kernels", refuse)
    x = normal(6, 8)
    with pytest.warns(UserWarning, match="the graph has no kernels: RuntimeError: no compiler"):
        torch.testing.assert_close(torch.compile(torch.tanh, backend=kernelwright)(x), torch.tanh(x))
    assert found[0]._chosen[False] == found[0].inductor


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32")
def test_short_graphs_are_replayed_as_cuda_graphs():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda().eval()
    compiled = torch.compile(model, backend=kernelwright)
    results = []
    with torch.no_grad():
        for seed in range(3):
            results.append((compiled(normal(4, 64, seed=seed).cuda()), model(normal(4, 64, seed=seed).cuda())))
            model[0].weight.mul_(0.5)
    for result, expected in results:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32")
def test_random_numbers_on_a_gpu_are_those_of_eager():
    torch._dynamo.reset()

    def program(x):
        return F.dropout(x * 2, 0.5) + torch.rand_like(x)

    x, results = normal(6, 8).cuda(), []
    for run in (torch.compile(program, backend=kernelwright), program):
        torch.manual_seed(5)
        results.append([run(x) for _ in range(4)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_dynamic_sizes_are_left_to_inductor(graphs):
    found, _ = graphs
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1), backend=kernelwright, dynamic=True)
    for rows in (3, 5):
        torch.testing.assert_close(compiled(normal(rows, 8)), torch.softmax(normal(rows, 8) * 2, -1))
    assert not found
