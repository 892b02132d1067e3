"""Sums of the outputs of linear maps: exact for all borders, strides and dimensions, and only where it saves work."""

import random
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized

NAME = "linear_reductions"
CONVOLUTIONS = {
    (1, False): nn.Conv1d,
    (2, False): nn.Conv2d,
    (3, False): nn.Conv3d,
    (1, True): nn.ConvTranspose1d,
    (2, True): nn.ConvTranspose2d,
    (3, True): nn.ConvTranspose3d,
}


class Reduced(nn.Module):
    """A reduction of what a layer and steps behind it compute."""

    def __init__(self, layer, reduce, between=lambda self, y: y, **parameters):
        super().__init__()
        self.layer, self.reduce, self.between = layer, reduce, between
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, x):
        return self.reduce(self.between(self, self.layer(x)))


@pytest.mark.parametrize("seed", range(24))
def test_random_convolutions_and_sums(seed):
    rng = random.Random(seed)
    num_dims, transposed = rng.choice(list(CONVOLUTIONS))
    groups = rng.choice([1, 1, 2])
    settings = {
        "kernel_size": [rng.randint(1, 4) for _ in range(num_dims)],
        "stride": [rng.randint(1, 3) if transposed else 1 for _ in range(num_dims)],
        "padding": [rng.randint(0, 1) for _ in range(num_dims)],
        "dilation": [rng.randint(1, 2) for _ in range(num_dims)],
        "groups": groups,
        "bias": rng.random() < 0.7,
    }
    settings["padding"] = [min(p, k - 1) for p, k in zip(settings["padding"], settings["kernel_size"], strict=True)]
    if transposed:
        settings["output_padding"] = [rng.randint(0, stride - 1) for stride in settings["stride"]]
    layer = CONVOLUTIONS[num_dims, transposed](4, 6, **settings)
    dims = [dim for dim in range(num_dims + 2) if rng.random() < 0.6] or [2]
    if not any(dim >= 2 for dim in dims):
        dims.append(2)
    keepdim, mean = rng.random() < 0.5, rng.random() < 0.5
    reduce = lambda y: y.mean(dims, keepdim) if mean else y.sum(dims, keepdim)  # noqa: E731
    x = normal(3, 4, *(rng.randint(14, 18) for _ in range(num_dims)), seed=seed)
    check(randomized(Reduced(layer, reduce), seed), [x], NAME)


@pytest.mark.parametrize("dims", [[0], [1], [2], [0, 1], [0, 2], [-1], [0, 1, 2], [-1, -2]])
@pytest.mark.parametrize("mean", [False, True])
def test_sums_of_a_linear_layer(dims, mean):
    reduce = lambda y: y.mean(dims, True) if mean else y.sum(dims)  # noqa: E731
    check(randomized(Reduced(nn.Linear(8, 24), reduce)), [normal(16, 16, 8)], NAME)


PRODUCTS = {
    "matmul": lambda x, w, b: x @ w,
    "transposed": lambda x, w, b: x @ w.t().contiguous().t(),
    "mm": lambda x, w, b: torch.mm(x, w),
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
}


@pytest.mark.parametrize("which", PRODUCTS)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_sums_of_products_of_arguments(which, dim):
    product = PRODUCTS[which]
    program = lambda x, w, b: product(x, w, b).sum() if dim is None else product(x, w, b).sum(dim)  # noqa: E731
    check(program, [normal(24, 16), normal(16, 20), normal(20)], NAME)


BETWEEN = {
    "numbers": lambda self, y: 1.5 - (y * 2 + 3) / 4,
    "channels": lambda self, y: (y * self.scale[:, None, None] - self.scale[:, None, None]) / 3,
    "channels of the left": lambda self, y: self.scale[:, None, None] - y,
    "rows": lambda self, y: y * self.rows + 1,
}


@pytest.mark.parametrize("which", BETWEEN)
@pytest.mark.parametrize("dims", [[3], [2, 3], [0, 2], [1, 2, 3]])
@pytest.mark.parametrize("mean", [False, True])
def test_steps_between_move_behind_the_sum(which, dims, mean):
    reduce = lambda y: y.mean(dims) if mean else y.sum(dims, True)  # noqa: E731
    layer = nn.Conv2d(4, 6, 3, padding=1)
    program = randomized(Reduced(layer, reduce, BETWEEN[which], scale=torch.ones(6), rows=torch.ones(16, 1)))
    applies = which != "rows" or dims == [3]
    captured = check(program, [normal(3, 4, 16, 16)], NAME, times=int(applies))
    assert ("conv2d" in operators(captured)) is not applies


def test_the_convolution_of_a_mean_over_depth_has_size_1_there():
    layer = nn.ConvTranspose3d(4, 6, 3, padding=1)
    captured = check(randomized(Reduced(layer, lambda y: y.mean(2, True))), [normal(2, 4, 12, 10, 10)], NAME)
    (node,) = captured.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    assert node.meta["val"].shape == (2, 6, 1, 10, 10)
    (rewrite,) = captured.rewrites
    assert rewrite.flops_saved > 0 < rewrite.bytes_saved


def test_a_channels_last_input_keeps_the_layout_of_the_result():
    x = normal(3, 4, 16, 16).contiguous(memory_format=torch.channels_last)
    for reduce in (lambda y: y.mean(2), lambda y: y.sum([0, 3], True)):
        program = randomized(Reduced(nn.Conv2d(4, 6, 3), reduce))
        captured = captured_with(program, [x], NAME)
        expected = program(x)
        (output,) = (node for node in captured.graph.nodes if node.op == "output")
        value = output.args[0][0].meta["val"]
        assert value.shape == expected.shape
        assert [s for n, s in zip(value.shape, value.stride(), strict=True) if n > 1] == [
            s for n, s in zip(expected.shape, expected.stride(), strict=True) if n > 1
        ]


class TwoUses(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 6, 3)

    def forward(self, x):
        y = self.layer(x)
        return y, y.sum(2)


REFUSED = {
    "used elsewhere": lambda: (TwoUses(), normal(3, 4, 16, 16)),
    "half precision": lambda: (
        Reduced(nn.Linear(8, 24).half(), lambda y: y.sum(1)), normal(16, 8, dtype=torch.float16)
    ),
    "sum in another dtype": lambda: (
        Reduced(nn.Linear(8, 24).float(), lambda y: y.sum(1, dtype=torch.float64)),
        normal(16, 8, dtype=torch.float32),
    ),
    "not linear": lambda: (
        Reduced(nn.Conv2d(4, 6, 3), lambda y: y.sum(2), lambda self, y: y.relu()), normal(3, 4, 16, 16)
    ),
    "strided": lambda: (Reduced(nn.Conv2d(4, 6, 3, stride=2), lambda y: y.sum(2)), normal(3, 4, 16, 16)),
    "named padding": lambda: (Reduced(nn.Conv2d(4, 6, 3, padding="same"), lambda y: y.sum(2)), normal(3, 4, 16, 16)),
    "no batch": lambda: (Reduced(nn.Conv2d(4, 6, 3), lambda y: y.sum(2)), normal(4, 16, 16)),
    "few inputs": lambda: (Reduced(nn.Conv2d(4, 6, 5, padding=2), lambda y: y.sum(2)), normal(3, 4, 2, 16)),
    "one row": lambda: (Reduced(nn.Linear(8, 24), lambda y: y.sum(1)), normal(1, 8)),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_others_stay(why):
    program, x = REFUSED[why]()
    if x.dtype == torch.float64:
        program = program.double()
    captured = captured_with(program.eval(), [x], NAME)
    assert count(captured, NAME) == 0
    captured.graph.lint()
