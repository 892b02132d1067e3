"""Cross-entropy of a linear layer: the loss and all gradients against FP64, in one chunk of rows and in several."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from on_device import DEVICE, poisoned, random, require_close, runs_kernels

from kernelwright.core.errors import UsageError
from kernelwright.kernels.losses import linear, linear_rows
from kernelwright.kernels.losses.configs import split_into_chunks
from kernelwright.kernels.losses.linear import linear_cross_entropy
from kernelwright.kernels.losses.reference import cross_entropy as reference
from kernelwright.kernels.operators import ShapeError

pytestmark = runs_kernels
ALL = {"label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 5.0}
OPTIONS = {"plain": {}, "sum": {"reduction": "sum"}, "all": ALL}
OPTIONS |= {"rows": {"reduction": "none"}, "rows, all": {"reduction": "none"} | ALL}
REDUCTIONS = ["mean", "sum", "none"]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def given():
    x, weight, bias = random(2, 7, 24, grad=True), random(50, 24, grad=True), random(50, grad=True)
    target = torch.randint(50, (2, 7)).to(DEVICE)
    target[0, 3], target[0, 5], target[1, 0] = -100, target[0, 0], target[0, 0]
    return x, weight, target, bias


def in_chunks(monkeypatch, sizes):
    for module in (linear, linear_rows):
        monkeypatch.setattr(module, "split_into_chunks", lambda M, N, itemsize: sizes)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("rows", [[14], [4, 5, 5]], ids=["one chunk", "several"])
def test_loss_and_gradients(given, rows, options, monkeypatch):
    in_chunks(monkeypatch, rows)
    x, weight, target, bias = given
    got = poisoned(lambda: linear_cross_entropy(x, weight, target, bias, **options))
    logits = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    want = reference(logits.view(14, 50), target.view(14), **options).view(got.shape)
    require_close(got.detach(), want.detach(), budget=16)
    asked, upstream = (x, weight, bias), torch.randn(got.shape).to(DEVICE) * 3
    pairs = zip(torch.autograd.grad(got, asked, upstream), torch.autograd.grad(want, asked, upstream), strict=True)
    for one, other in pairs:
        require_close(one, other, budget=64)


def test_rows_are_taken_in_few_parts_of_half_a_gigabyte_the_smallest_first():
    assert split_into_chunks(8192, 128256, 2) == [2048] * 4
    assert split_into_chunks(4500, 128256, 2) == [404, 2048, 2048]
    assert split_into_chunks(4096, 256000, 2) == [1024] * 4
    assert split_into_chunks(7, 10**9, 4) == [7]
    assert split_into_chunks(0, 50, 2) == split_into_chunks(0, 0, 2) == []
    assert split_into_chunks(5, 0, 2) == [5]


def test_gradients_of_what_asks_for_them_only(given):
    x, weight, target, _ = given
    x, weight = x.detach(), weight.detach().requires_grad_()
    linear_cross_entropy(x, weight, target).backward()
    assert weight.grad.any()
    with torch.no_grad():
        assert not linear_cross_entropy(x, weight, target).requires_grad


def test_gradients_asked_for_twice_are_the_same_twice(given):
    x, weight, target, _ = given
    loss = linear_cross_entropy(x, weight, target)
    first = torch.autograd.grad(loss, (x, weight), torch.tensor(3.0, device=DEVICE), retain_graph=True)
    second = torch.autograd.grad(loss, (x, weight), torch.tensor(3.0, device=DEVICE))
    assert all(map(torch.equal, first, second)) and all(one.any() for one in first)


def test_gradients_that_it_does_not_have_are_refused(given):
    x, weight, target, _ = given
    with pytest.raises(UsageError, match="no second derivative"):
        torch.autograd.grad(linear_cross_entropy(x, weight, target), x, create_graph=True)
    with pytest.raises(UsageError, match="no forward-mode gradients"):
        torch.func.jvp(lambda x: linear_cross_entropy(x, weight.detach(), target), (x.detach(),), (x.detach(),))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_rows(given, reduction):
    x, weight, target, bias = given
    loss = poisoned(lambda: linear_cross_entropy(x[:0], weight, target[:0], bias, reduction=reduction))
    assert loss.shape == (target[:0].shape if reduction == "none" else ())
    poisoned(lambda: loss.sum().backward())
    assert not any(one.grad.any() for one in (x, weight, bias))
    assert loss.sum().item() == 0.0 or (reduction == "mean" and loss.isnan())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("rows", [[14], [4, 5, 5]], ids=["one chunk", "several"])
def test_all_targets_ignored(given, reduction, rows, monkeypatch):
    in_chunks(monkeypatch, rows)
    x, weight, target, bias = given
    loss = linear_cross_entropy(x, weight, torch.full_like(target, 7), bias, ignore_index=7, reduction=reduction)
    loss.sum().backward()
    assert loss.isnan() if reduction == "mean" else not loss.any()
    assert not any(one.grad.any() for one in (x, weight, bias))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_strided_rows_one_row_and_a_frozen_weight(given, reduction):
    _, weight, target, _ = given
    x = random(24, 14, grad=True)
    targets = target.view(14)
    for part in (slice(None), slice(0, 1), slice(None, None, 3)):
        rows, kept = x.t()[part], targets[part]
        got = linear_cross_entropy(rows, weight.detach(), kept, reduction=reduction)
        want = reference(rows.double() @ weight.detach().double().t(), kept, reduction=reduction)
        require_close(got.detach(), want.detach(), budget=16)
        pair = [torch.autograd.grad(one.sum(), x)[0] for one in (got, want)]
        require_close(*pair, budget=64)
    assert weight.grad is None


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_16_bits_in_several_chunks(reduction, monkeypatch):
    in_chunks(monkeypatch, [8] * 4)
    x, weight = (random(size, 16, dtype=torch.float16, grad=True) for size in (32, 40))
    target = torch.randint(40, (32,)).to(DEVICE)
    got = linear_cross_entropy(x, weight, target, reduction=reduction).mean()
    want = reference(x.double() @ weight.double().t(), target)
    require_close(got.detach(), want.detach().float(), budget=2**13)  # the logits are rounded to 16 bits
    for one, other in zip(*(torch.autograd.grad(loss, (x, weight)) for loss in (got, want)), strict=True):
        require_close(one, other, budget=4)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_it_is_compiled_whole(given, reduction):
    x, weight, _, bias = given

    def run(x, weight, target, bias):
        return linear_cross_entropy(2 * x, weight, target, bias, reduction=reduction).sum()

    want = torch.autograd.grad(run(*given), (x, weight, bias))
    got = torch.autograd.grad(torch.compile(run, backend="aot_eager", fullgraph=True)(*given), (x, weight, bias))
    torch.testing.assert_close(got, want)


def test_what_does_not_fit_is_said(given):
    x, weight, target, bias = given
    for call, says in (
        (lambda: linear_cross_entropy(x, weight.t(), target), r"weight is \(24, 50\)"),
        (lambda: linear_cross_entropy(x, weight, target[0]), r"target is \(7,\)"),
        (lambda: linear_cross_entropy(x, weight, target, bias[1:]), r"bias is \(49,\)"),
        (lambda: linear_cross_entropy(x, weight, target, reduction="max"), "must be none, mean or sum"),
    ):
        with pytest.raises(ShapeError, match=says):
            call()


@pytest.mark.slow
def test_it_is_an_operator_of_torch(given):
    x, weight, target, bias = given
    about = (-100, 0.0, 0.0, 0.0, True, True, True, True)
    torch.library.opcheck(torch.ops.kernelwright.linear_cross_entropy.default, (x, weight, target, bias, *about))
    about = (-100, 0.0, 0.0, 0.0, True)
    torch.library.opcheck(torch.ops.kernelwright.linear_cross_entropy_rows.default, (x, weight, target, bias, *about))


def test_of_no_classes_there_is_no_loss():
    x, target = random(3, 4, grad=True), torch.zeros(3, dtype=torch.int64, device=DEVICE)
    for asked in (True, False):
        assert poisoned(linear_cross_entropy, x if asked else x.detach(), random(0, 4), target).isnan()
