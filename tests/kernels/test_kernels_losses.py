"""Cross-entropy: every shape, dtype, option and gradient against FP64."""

import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_first

sys.path.insert(0, str(Path(__file__).parent))
from on_device import (
    DEVICE,
    INTERPRETED,
    LONG,
    LONGER,
    poisoned,
    random,
    require_close,
    runs_kernels,
    shapes_with_slow_long_rows,
)

from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.kernels.losses.reference import cross_entropy as reference
from kernelwright.kernels.operators import ShapeError

pytestmark = runs_kernels
CLOSE = {"rtol": 2e-6, "atol": 2e-6}
IN_VECTORS = 12000 if INTERPRETED else 40000
"""Columns of rows that are shared out, and that a cluster on a GPU can read."""
SHAPES = ((1, 1), (7, 13), (3, 4096), (33, 64), (5, 1000), (3, LONG), (2, LONGER))
OPTIONS = {
    "plain": {},
    "smoothed": {"label_smoothing": 0.1},
    "z": {"z_loss": 1e-3},
    "capped": {"softcap": 5.0},
    "weighted": {"weighted": True},
    "all": {"label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 5.0, "weighted": True},
}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def given(M, N, options, dtype=torch.float32):
    """Logits, targets of which every third is ignored, and the options with weights where wanted."""
    x = random(M, N, dtype=dtype, scale=3, grad=True)
    target = torch.randint(N, (M,)).to(DEVICE)
    target[2::3] = -100
    about = {name: value for name, value in options.items() if name != "weighted"}
    return x, target, about | {"weight": random(N).abs() + 0.1 if "weighted" in options else None}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("shape", shapes_with_slow_long_rows(SHAPES), ids=str)
def test_losses_and_gradients(shape, options):
    x, target, about = given(*shape, options)
    got = poisoned(lambda: cross_entropy(x, target, reduction="none", **about))
    want = reference(x, target, reduction="none", **about)
    require_close(got.detach(), want.detach(), budget=8, terms=1.0)
    dlosses = random(shape[0])
    (dx,) = poisoned(lambda: torch.autograd.grad(got, x, dlosses))
    (wanted,) = torch.autograd.grad(want, x, dlosses.double())
    require_close(dx, wanted, budget=32, terms=1.0 / shape[1])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("shape", shapes_with_slow_long_rows([(7, 13), (3, LONG)]), ids=str)
def test_in_place_the_gradient_is_there_with_the_loss(shape, reduction, options):
    x, target, about = given(*shape, options)
    want = reference(x, target, reduction=reduction, **about)
    (wanted,) = torch.autograd.grad(want * 2, x)
    logits = x.detach().clone().requires_grad_()
    got = cross_entropy(logits + 0, target, reduction=reduction, inplace=True, **about)
    require_close(got.detach(), want.detach(), budget=8, terms=1.0)
    (dx,) = torch.autograd.grad(got * 2, logits)
    require_close(dx, wanted, budget=32, terms=1.0 / shape[1] / shape[0])


def test_what_was_overwritten_is_not_used_again():
    x, target = random(4, 9, grad=True), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    logits = x * 2
    squares, loss = logits.square().sum(), cross_entropy(logits, target, inplace=True)
    loss.backward(retain_graph=True)
    with pytest.raises(ShapeError, match="already called on this in-place loss"):
        loss.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_it_is_torchs_loss(reduction):
    x, target = random(6, 50), torch.tensor([3, 49, -100, 0, 7, 7], device=DEVICE)
    want = torch.nn.functional.cross_entropy(x, target, reduction=reduction, label_smoothing=0.2)
    torch.testing.assert_close(cross_entropy(x, target, reduction=reduction, label_smoothing=0.2), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits_give_a_wide_loss(dtype):
    x, target, _ = given(9, 300, {}, dtype)
    got = cross_entropy(x, target)
    assert got.dtype == torch.float32
    require_close(got.detach(), reference(x, target).detach(), budget=8)
    (dx,) = torch.autograd.grad(got, x)
    assert dx.dtype == dtype


def test_rows_that_count_for_nothing():
    x, target = random(4, 9, grad=True), torch.full((4,), 5, device=DEVICE)
    target[:] = 7
    assert cross_entropy(x, target, ignore_index=7).isnan(), "a mean of nothing"
    loss = cross_entropy(x, target, ignore_index=7, reduction="sum")
    assert (loss.item(), torch.autograd.grad(loss, x)[0].any().item()) == (0.0, False)


def test_a_target_that_is_no_class_is_not_passed_over():
    x, target = random(3, 9, grad=True), torch.tensor([0, 9, -1], device=DEVICE)
    losses = cross_entropy(x, target, reduction="none")
    assert losses.isnan().tolist() == [False, True, True]
    (dx,) = torch.autograd.grad(losses.sum(), x)
    assert dx.isnan().any(1).tolist() == [False, True, True]
    logits = x.detach().clone()
    cross_entropy(logits, target, reduction="sum", inplace=True)
    assert logits.isnan().any(1).tolist() == [False, True, True]


def test_masked_and_extreme_logits():
    x, target = random(3, LONG), torch.tensor([2, LONG - 1, 5], device=DEVICE)
    x[:, 6 : LONG - 1], x[1] = -torch.inf, x[1] * 1e4
    got = cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(got.double(), reference(x, target, reduction="none"))


@pytest.mark.slow
@pytest.mark.parametrize("N", [40, 4096, LONG])
def test_logits_at_the_end_of_what_there_is(N):
    """Finite ones mask too: rows of nothing else, lanes of nothing else, and what is large beyond products."""
    x, target = random(7, N), torch.tensor([3, 5, 1, 2, 6, 5, 5], device=DEVICE)
    lowest = torch.finfo(x.dtype).min
    x[0], x[1, 8:], x[2] = lowest, lowest, x[2] * 1e9
    x[3, 2], x[4, 7:] = 3e9, -torch.inf
    x[5], x[6] = lowest, x[6].clamp(-3, 3) * 1e38
    x[5, 5], target[6] = -3e38, x[6].argmax()
    got = cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(got.double(), reference(x, target, reduction="none"), **CLOSE)


@pytest.mark.parametrize("mask", [-1e4, -1e9, torch.finfo(torch.float32).min], ids=str)
@pytest.mark.parametrize("N", fast_first(2, [40, 4096, LONG, IN_VECTORS]))
def test_a_masked_class_costs_smoothing_no_digits(N, mask):
    x, target = random(3, N), torch.tensor([2, 1, 7], device=DEVICE)
    x[:, 0] = mask
    want = reference(x, target, reduction="none", label_smoothing=0.1)
    torch.testing.assert_close(cross_entropy(x, target, reduction="none", label_smoothing=0.1).double(), want, **CLOSE)
    got = cross_entropy(x, target, reduction="sum", label_smoothing=0.1, inplace=True)
    torch.testing.assert_close(got.double(), want.sum(), **CLOSE)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_empty(shape):
    x = random(*shape, grad=True)
    losses = cross_entropy(x, torch.zeros(shape[0], dtype=torch.int64, device=DEVICE), reduction="none")
    assert (losses.shape, losses.isnan().all().item()) == (shape[:1], True)
    losses.sum().backward()
    assert x.grad.shape == shape


def test_views_are_read_as_they_lie():
    x, target = random(6, 64)[:, :40], torch.randint(40, (6,)).to(DEVICE)
    torch.testing.assert_close(cross_entropy(x, target).double(), reference(x, target))
    stacked, targets = random(2, 3, 40), torch.randint(40, (2, 3)).to(DEVICE)
    got = cross_entropy(stacked, targets, reduction="none")
    torch.testing.assert_close(
        got.double(), reference(stacked.view(6, 40), targets.view(6), reduction="none").view(2, 3)
    )


def test_what_does_not_fit_is_said():
    x, target = random(4, 8), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    for call, says in (
        (lambda: cross_entropy(x, target[:3]), r"target is \(3,\); it must be \(4,\)"),
        (lambda: cross_entropy(x, target.int()), "target is torch.int32"),
        (lambda: cross_entropy(x, target, random(9)), r"weight is \(9,\)"),
        (lambda: cross_entropy(x, target, reduction="max"), "reduction is 'max'"),
        (lambda: cross_entropy(x, target, reduction="none", inplace=True), "inplace=True needs reduction"),
        (lambda: cross_entropy(random(8, 4).t(), target, inplace=True), "inplace needs non-overlapping rows"),
    ):
        with pytest.raises(ShapeError, match=says):
            call()


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_it_is_an_operator_of_torch(reduction):
    x, target, about = given(5, 16, OPTIONS["weighted"])
    torch.library.opcheck(
        torch.ops.kernelwright.cross_entropy.default, (x, target, about["weight"], -100, 0.1, 0.0, 0.0, reduction, True)
    )


def test_in_place_other_rows_are_not_touched():
    hidden, target = random(3, 5, 8, grad=True), torch.randint(8, (3, 1)).to(DEVICE)
    (got,) = torch.autograd.grad(cross_entropy((hidden * 1)[:, -1:], target, inplace=True) * 2, hidden)
    (want,) = torch.autograd.grad(reference(hidden[:, -1], target[:, 0]) * 2, hidden)
    require_close(got, want, budget=32)


def test_rows_that_overlap_are_not_written_over():
    x, target = random(8), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ShapeError, match="non-overlapping rows"):
        cross_entropy(x.expand(4, 8), target, inplace=True)


def test_weights_need_not_be_dense_and_get_no_gradient():
    x, target, weight = random(5, 8), torch.randint(8, (5,)).to(DEVICE), random(16).abs()[::2]
    torch.testing.assert_close(cross_entropy(x, target, weight).double(), reference(x, target, weight.contiguous()))
    with pytest.raises(ShapeError, match="weight gets no gradient"):
        cross_entropy(x, target, weight.requires_grad_())
