"""A Dynamo graph that is replayed as a CUDA graph."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from kernelwright.compiler.graph_replay import GraphReplay, has_only_torch_operators

on_gpu = pytest.mark.gpu
torch.library.define("mylib_of_tests::scale", "(Tensor x) -> Tensor")


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).cuda()


@pytest.fixture
def weight():
    return nn.Parameter(normal(8, 8, seed=1))


@on_gpu
def test_each_call_has_a_result_of_its_own(weight):
    with torch.no_grad():
        replay = GraphReplay(lambda x, w: (x @ w, x + 1), (normal(4, 8), weight))
        results = [(replay(normal(4, 8, seed=seed), weight), seed) for seed in range(3)]
        weight.mul_(2)
        results.append((replay(normal(4, 8, seed=5), weight), 5))
        for scale, ((product, total), seed) in zip((0.5, 0.5, 0.5, 1), results, strict=True):
            torch.testing.assert_close(product, normal(4, 8, seed=seed) @ weight * scale)
            torch.testing.assert_close(total, normal(4, 8, seed=seed) + 1)


@on_gpu
def test_other_calls_run_the_function(weight):
    calls = []

    def function(x, w, scale):
        calls.append(x.shape)
        return x @ w * scale

    with torch.no_grad():
        replay = GraphReplay(function, (normal(4, 8), weight, 2))
        others = [
            (normal(5, 8), weight, 2),
            (normal(8, 4).t(), weight, 2),
            (normal(4, 8).double(), weight.double(), 2),
            (normal(4, 8), nn.Parameter(normal(8, 8, seed=7)), 2),
            (normal(4, 8), weight, 3),
        ]
        for args in others:
            torch.testing.assert_close(replay(*args), args[0] @ args[1] * args[2])
        assert len(calls) == 2 + len(others)
        weight.data = normal(8, 8, seed=9)
        torch.testing.assert_close(replay(normal(4, 8), weight, 2), normal(4, 8) @ weight * 2)
        with torch.cuda.stream(torch.cuda.Stream()):
            replay(normal(4, 8), weight, 2)
        assert len(calls) == 4 + len(others)


@on_gpu
@pytest.mark.parametrize(
    "function", [lambda x: (x + 1, x.view(-1)), lambda x: (y := x + 1, y.t()), lambda x: x.sum().item()]
)
def test_views_and_values_on_the_host_are_not_captured(function):
    with torch.no_grad(), pytest.raises((ValueError, RuntimeError)):
        GraphReplay(function, (normal(4, 8),))
    torch.rand(3, device="cuda")


@pytest.mark.parametrize("value", [torch.tensor(2.0), torch.eye(2).to_sparse(), nn.Parameter(torch.ones(2))])
def test_values_on_the_host_are_not_captured(value):
    with pytest.raises(ValueError, match="on the host"):
        GraphReplay(torch.sin, (value,))


@on_gpu
def test_inference_mode(weight):
    with torch.inference_mode():
        replay = GraphReplay(torch.matmul, (normal(4, 8), weight))
        torch.testing.assert_close(replay(normal(4, 8), weight), normal(4, 8) @ weight)
    with torch.no_grad():
        torch.testing.assert_close(replay(normal(4, 8, seed=3), weight), normal(4, 8, seed=3) @ weight)


def custom_scale(x):
    return x * 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (operator.add, True),
        (torch.relu, True),
        (F.linear, True),
        (torch._C._nn.gelu, True),
        (torch.ops.aten.mul.Tensor, True),
        (torch.ops.mylib_of_tests.scale, False),
        (torch.ops.mylib_of_tests.scale.default, False),
        (torch.ops.higher_order.cond, False),
        (custom_scale, False),
    ],
)
def test_operators_of_others_are_not_captured(target, expected):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(target, (x, x)))
    assert has_only_torch_operators(fx.GraphModule({}, graph)) == expected
