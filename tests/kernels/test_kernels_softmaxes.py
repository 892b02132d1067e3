"""Softmax and log-softmax: every shape, dtype, mask and gradient against FP64."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from on_device import (
    DEVICE,
    LONG,
    LONGER,
    ROUNDED_ONCE,
    poisoned,
    random,
    require_close,
    runs_kernels,
    shapes_with_slow_long_rows,
)

from kernelwright.kernels.operators import ShapeError
from kernelwright.kernels.softmaxes import reference
from kernelwright.kernels.softmaxes.op import log_softmax, softmax

pytestmark = runs_kernels
SHAPES = ((1, 1), (7, 13), (1, 4096), (33, 64), (5, 1000), (3, LONG), (2, LONGER))
KINDS = {"softmax": (softmax, False), "log_softmax": (log_softmax, True)}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(params=KINDS)
def kind(request):
    """The function and its reference."""
    ours, log = KINDS[request.param]
    return ours, lambda *given, **about: reference.softmax(*given, **about, log=log)


@pytest.mark.parametrize("shape", shapes_with_slow_long_rows(SHAPES), ids=str)
def test_forward(kind, shape):
    ours, theirs = kind
    x = random(*shape, scale=3)
    require_close(poisoned(lambda: ours(x)), theirs(x))
    require_close(ours(x, scale=0.3), theirs(x, scale=0.3), what="scaled")


@pytest.mark.parametrize("shape", shapes_with_slow_long_rows(SHAPES), ids=str)
def test_gradients(kind, shape):
    ours, theirs = kind
    x, dy = random(*shape, grad=True), random(*shape)
    (got,) = poisoned(lambda: torch.autograd.grad(ours(x, scale=0.7), x, dy))
    (want,) = torch.autograd.grad(theirs(x, scale=0.7), x, dy.double())
    require_close(got, want, budget=16, terms=1.0 / shape[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_rounds_once(kind, dtype):
    ours, theirs = kind
    x = random(9, 300, dtype=dtype)
    got = ours(x)
    assert got.dtype == dtype
    require_close(got, theirs(x), budget=ROUNDED_ONCE)


MASKS = {
    "by row": (2, 3, 5, 40),
    "by query": (2, 1, 5, 40),
    "by key": (1, 1, 1, 40),
    "for all heads": (5, 40),
    "by head": (3, 1, 1),
}


@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("added", [False, True], ids=["bool", "added"])
def test_masks_are_read_as_they_broadcast(kind, shape, added):
    ours, theirs = kind
    x = random(2, 3, 5, 40, grad=True)
    mask = random(*shape) if added else random(*shape) > -1
    if not added:
        mask[..., 0] = True
    left = torch.ones_like(x, dtype=torch.bool) if added else mask.expand(x.shape)
    got, want = ours(x, mask=mask), theirs(x, mask)
    assert torch.equal(got.isinf(), ~left if ours is log_softmax else torch.zeros_like(left))
    require_close(got[left], want[left])
    (dx,) = torch.autograd.grad(got[left].sum() * 2, x)
    (wanted,) = torch.autograd.grad(want[left].sum() * 2, x)
    require_close(dx, wanted, budget=64, terms=0.1)


def test_what_torch_calls_not_a_number_is_one_here():
    x = torch.full((4, LONG), -torch.inf, device=DEVICE)
    x[1], x[2, 5], x[3, : LONG // 2] = 0.0, torch.inf, 1.0
    for ours, theirs in ((softmax, torch.softmax), (log_softmax, torch.log_softmax)):
        torch.testing.assert_close(ours(x), theirs(x, -1), equal_nan=True)


def test_shifting_a_row_changes_nothing(kind):
    ours, _ = kind
    x = random(5, 700)
    torch.testing.assert_close(ours(x + 8.0), ours(x), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_row_adds_up_to_one_and_follows_its_columns():
    x, order = random(6, 9000, scale=4), torch.randperm(9000)
    torch.testing.assert_close(softmax(x).sum(-1), torch.ones(6, device=DEVICE))
    torch.testing.assert_close(softmax(x[:, order]), softmax(x)[:, order], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 4)], ids=str)
def test_empty(kind, shape):
    ours, _ = kind
    x = random(*shape, grad=True)
    ours(x).sum().backward()
    assert x.grad.shape == x.shape


def test_what_does_not_fit_is_said():
    x = random(4, 8)
    for call, says in (
        (lambda: softmax(x, dim=0), "dim is 0"),
        (lambda: softmax(x, mask=random(3, 8)), r"mask is \(3, 8\), which does not broadcast to \(4, 8\)"),
        (lambda: softmax(x, mask=torch.ones(4, 8, dtype=torch.int32)), "mask is torch.int32"),
        (lambda: softmax(x.double()), "float64"),
    ):
        with pytest.raises(ShapeError, match=says):
            call()


def test_it_is_an_operator_of_torch():
    given = (random(3, 16, grad=True), random(1, 16) > 0, 0.5, True)
    torch.library.opcheck(torch.ops.kernelwright.softmax.default, given)


def test_a_part_that_is_masked_whole_leaves_the_others_right(kind):
    ours, theirs = kind
    x = random(2, LONG, shift=-200.0)
    x[:, :9000] = -torch.inf
    got, want = ours(x)[:, 9000:], theirs(x)[:, 9000:]
    require_close(got, want, terms=1e-4)


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_any_scale(kind, scale):
    ours, theirs = kind
    x = random(4, 7)
    require_close(ours(x, scale=scale), theirs(x, scale=scale))


def test_what_a_mask_leaves_out_gets_no_gradient():
    x, mask = random(3, 8, grad=True), random(3, 8) > -0.5
    mask[:, 0] = True
    (dx,) = torch.autograd.grad(log_softmax(x, mask=mask), x, random(3, 8))
    assert not dx[~mask].any()


def test_torch_compile_takes_it_whole():
    x = random(3, 24)
    compiled = torch.compile(lambda x: softmax(x, dim=-1, scale=0.5), fullgraph=True, dynamic=True, backend="aot_eager")
    require_close(compiled(x), reference.softmax(x, scale=0.5))
