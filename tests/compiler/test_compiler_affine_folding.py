"""Factors and shifts of channels become part of the weight and bias where that saves a pass, and nowhere else."""

import random
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, randomized, run

NAME = "affine_folding"
LAYERS = {
    "conv1d": lambda bias: nn.Conv1d(4, 6, 3, bias=bias),
    "conv2d": lambda bias: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=bias),
    "conv3d": lambda bias: nn.Conv3d(4, 6, (3, 1, 2), bias=bias),
    "conv_transpose1d": lambda bias: nn.ConvTranspose1d(4, 6, 3, stride=2, bias=bias),
    "conv_transpose2d": lambda bias: nn.ConvTranspose2d(4, 6, 3, groups=2, bias=bias),
    "conv_transpose3d": lambda bias: nn.ConvTranspose3d(4, 6, 2, bias=bias),
    "linear": lambda bias: nn.Linear(12, 6, bias=bias),
}
NUM_SPATIAL = {"1d": 1, "2d": 2, "3d": 3, "ar": 0}


class Affine(nn.Module):
    """A layer, and random steps on its channels."""

    def __init__(self, layer, steps, num_spatial):
        super().__init__()
        self.layer, self.steps, self.num_spatial = layer, steps, num_spatial
        self.vectors = nn.ParameterList(torch.ones(6) for _ in steps)
        self.register_buffer("number", torch.ones(1))

    def forward(self, x):
        y = self.layer(x)
        for step, vector in zip(self.steps, self.vectors, strict=True):
            y = step(y, vector.view(-1, *[1] * self.num_spatial), self.number)
        return y


STEPS = [
    lambda y, v, n: y * v,
    lambda y, v, n: v * y,
    lambda y, v, n: y / v,
    lambda y, v, n: y + v,
    lambda y, v, n: y - v,
    lambda y, v, n: v - y,
    lambda y, v, n: y * 3,
    lambda y, v, n: 0.5 - y,
    lambda y, v, n: y / 4 + 1,
    lambda y, v, n: y * n - n,
    lambda y, v, n: y + v.exp() * 2,
]


@pytest.mark.parametrize("which", LAYERS)
@pytest.mark.parametrize("seed", range(6))
def test_random_steps_on_every_layer(which, seed):
    rng = random.Random(f"{which} {seed}")
    num_spatial = NUM_SPATIAL[which[-2:]]
    steps = rng.choices(STEPS, k=rng.randint(1, 5))
    program = randomized(Affine(LAYERS[which](rng.random() < 0.5), steps, num_spatial), seed)
    x = normal(20, 4, *[9] * num_spatial) if num_spatial else normal(5, 8, 12)
    captured = check(program, [x], NAME)
    assert sum(node.meta["val"].shape == program(x).shape for node in captured.graph.nodes if "val" in node.meta) == 1


NORMS = {
    "conv": lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose3d(4, 6, 3, bias=False), nn.BatchNorm3d(6)),
    "linear": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)),
    "two": lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6)),
    "pooled": lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.MaxPool2d(2)),
}


@pytest.mark.parametrize("which", NORMS)
def test_batch_norms_in_eval_mode(which):
    x = normal(64, 4) if which == "linear" else normal(3, 4, *[10] * (3 if which == "transposed" else 2))
    check(randomized(NORMS[which]()), [x], NAME, times=1 + (which == "two"))


def test_changed_parameters_count_in_the_next_call():
    program, x = randomized(NORMS["conv"]()), normal(3, 4, 10, 10)
    captured = captured_with(program, [x], NAME)
    with torch.no_grad():
        program[0].weight.mul_(2)
        program[1].running_mean.add_(1)
    torch.testing.assert_close(run(captured, program, x)[0], program(x).detach(), rtol=1e-10, atol=1e-10)


def conv_and(step, **parameters):
    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 6, 3)
            self.v = nn.Parameter(torch.ones(6, 1, 1))
            self.rows = nn.Parameter(torch.ones(8, 1))

        def forward(self, x, *more):
            return step(self, self.conv(x), *more)

    return Program()


REFUSED = {
    "something elementwise follows": lambda: (conv_and(lambda self, y: (y * self.v).relu()),),
    "something fused follows": lambda: (conv_and(lambda self, y: torch.softmax(y * self.v, 1)),),
    "used elsewhere": lambda: (conv_and(lambda self, y: (y, y * self.v)),),
    "an argument": lambda: (conv_and(lambda self, y, v: y * v), normal(6, 1, 1)),
    "other dimensions": lambda: (conv_and(lambda self, y: y * self.rows),),
    "all elements": lambda: (conv_and(lambda self, y: y * y),),
    "a scaled sum": lambda: (conv_and(lambda self, y: torch.add(y, self.v, alpha=2)),),
    "a division by 0": lambda: (conv_and(lambda self, y: y / 0),),
    "rounded division": lambda: (conv_and(lambda self, y: torch.div(y, self.v, rounding_mode="floor")),),
    "train mode": lambda: (NORMS["conv"]().train(),),
    "a large weight": lambda: (nn.Sequential(nn.Conv2d(4, 6, 9), nn.BatchNorm2d(6)).eval(),),
}


@pytest.mark.parametrize("why", REFUSED)
def test_others_stay(why):
    program, *more = REFUSED[why]()
    training = why == "train mode"
    program = program.double().train(training)
    captured = captured_with(program, [normal(3, 4, 10, 10), *more], NAME)
    assert count(captured, NAME) == 0
    assert "conv2d" in operators(captured)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_as_it_was(dtype):
    program = conv_and(lambda self, y: y * self.v).to(dtype)
    assert count(captured_with(program, [normal(3, 4, 10, 10, dtype=dtype)], NAME), NAME) == 0


def test_a_weight_that_is_an_argument_stays():
    program = lambda x, w: torch.conv2d(x, w) * 2  # noqa: E731
    assert count(captured_with(program, [normal(3, 4, 10, 10), normal(6, 4, 3, 3)], NAME), NAME) == 0
