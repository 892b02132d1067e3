"""Operands rounded as the user permits: what the reference may then differ by, and what is still rejected."""

import pytest
import torch
from torch import nn

from kernelwright.problems import Problem
from kernelwright.verification import verify
from kernelwright.verification.accuracy.operand_precision import round_to_tf32
from kernelwright.verification.outcome import operand_precision, tf32_as_set, widened_precision


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(256, 64)

    def forward(self, x):
        return self.linear(x)


class Rounded(Product):
    """The same with operands of few bits."""

    def __init__(self, convert):
        super().__init__()
        self.convert = convert

    def forward(self, x):
        return nn.functional.linear(self.convert(x), self.convert(self.linear.weight), self.linear.bias)


def to_bf16(x):
    return x.bfloat16().float()


def to_fp8(x):
    return x.to(torch.float8_e4m3fn).float()


@pytest.mark.parametrize(
    ("precision", "convert", "accepted"),
    [
        (None, round_to_tf32, False), ("tf32", round_to_tf32, True), ("tf32", to_bf16, False),
        ("bf16", to_bf16, True), ("bf16", to_fp8, False), (None, lambda x: x, True),
    ],
)  # fmt: skip
def test_operands_may_have_the_precision_that_the_user_permits(precision, convert, accepted):
    problem = Problem.from_callable(Product(), torch.randn(32, 256, generator=torch.Generator().manual_seed(1)))
    with widened_precision(precision):
        verdict = verify(problem, Rounded(convert), device="cpu", sets=2)
    assert verdict.accepted == accepted, verdict.reason
    noted = f"operands of products may be rounded to {str(precision).upper()}, as the user permits" in verdict.notes
    assert noted == bool(precision)


def test_the_wider_precision_wins_and_ends_with_its_block():
    with widened_precision("bf16"), tf32_as_set(), widened_precision(None):
        assert operand_precision() == "bf16"
    with tf32_as_set():
        assert operand_precision() == "torch"
    assert operand_precision() == "fp32"
