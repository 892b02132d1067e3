"""Rows on which formulas differ: the error against FP64 beside that of torch's own operator."""

import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_where
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from on_device import DEVICE, EPS, INTERPRETED, rms, runs_kernels

from kernelwright import kernels

pytestmark = runs_kernels
M, N = 6, 1000
POWER_OF_TWO = 1024
BUDGETS = {torch.float32: 2.0, torch.float16: 1.05, torch.bfloat16: 1.05}
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (not INTERPRETED)
"""The interpreter cuts bfloat16 off, where a GPU rounds."""
FREE = {torch.float32: 1.0, torch.float16: 0.05, torch.bfloat16: 0.05}
"""Roundings of the largest that anybody may be off where torch happens to be exact."""


def one_hot(N):
    rows = torch.zeros(M, N)
    rows[torch.arange(M), torch.randint(N, (M,))] = 30.0
    return rows


def outlier(column):
    def rows(N):
        rows = torch.randn(M, N)
        rows[:, column] = 1e4
        return rows

    return rows


ROWS = {
    "normal": lambda N: torch.randn(M, N),
    "offset": lambda N: torch.randn(M, N) + 1000,
    "constant": lambda N: torch.full((M, N), 3.1),
    "one-hot": one_hot,
    "outlier": outlier(17),
    "outlier at first": outlier(0),
}


def of_weight(norm):
    return lambda x, weight, bias: norm(x, x.shape[-1:], weight, bias)


def loss(function, **options):
    target = torch.arange(M, device=DEVICE) * 150
    return lambda x: function(x, target, reduction="none", **options)


OPERATORS = {
    "rms_norm": (lambda x, w, _: kernels.rms_norm(x, w), lambda x, w, _: F.rms_norm(x, x.shape[-1:], w, 1e-6), 2),
    "layer_norm": (kernels.layer_norm, of_weight(F.layer_norm), 2),
    "softmax": (kernels.softmax, lambda x: F.softmax(x, -1), 0),
    "log_softmax": (kernels.log_softmax, lambda x: F.log_softmax(x, -1), 0),
    "cross_entropy": (loss(kernels.cross_entropy), loss(F.cross_entropy), 0),
    "smoothed": (loss(kernels.cross_entropy, label_smoothing=0.1), loss(F.cross_entropy, label_smoothing=0.1), 0),
    "gelu": (kernels.gelu, F.gelu, 0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", fast_where([0, 4], ROWS.values()), ids=ROWS)
@pytest.mark.parametrize(("operator", "N"), [*((name, N) for name in OPERATORS), ("layer_norm", POWER_OF_TWO)])
def test_as_exact_as_torch(operator, N, rows, dtype):
    torch.manual_seed(0)
    ours, theirs, more = OPERATORS[operator]
    inputs = [rows(N), *(torch.randn(N) for _ in range(more))]
    inputs = [one.to(DEVICE, dtype).requires_grad_() for one in inputs]
    wide = [one.detach().double().requires_grad_() for one in inputs]
    want = theirs(*wide)
    given = torch.randn(want.shape).to(DEVICE, dtype)
    results = []
    for run, those in ((ours, inputs), (theirs, inputs)):
        result = run(*those)
        gradients = torch.autograd.grad(result, those, given.to(result.dtype), allow_unused=True)
        results.append((result, *(one for one in gradients if one is not None)))
    wanted = torch.autograd.grad(want, wide, given.double(), allow_unused=True)
    exacts = (want, *(one for one in wanted if one is not None))
    names = ("result", "dx", "dweight", "dbias")[: len(exacts)]
    for name, got, eager, exact in zip(names, *results, exacts, strict=True):
        error, theirs_is = rms(got.double() - exact), rms(eager.double() - exact)
        allowed = BUDGETS[dtype] * theirs_is + FREE[dtype] * EPS[got.dtype] * exact.abs().max().item()
        assert error <= allowed, f"{name}: {error:.3g}, torch's own {theirs_is:.3g}"
