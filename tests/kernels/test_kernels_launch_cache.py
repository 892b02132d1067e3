"""Calls that were made before: the same results on other tensors, nothing remembered that should not be."""

import ctypes
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))
from on_device import INTERPRETED, poisoned, random, require_close, runs_kernels

from kernelwright.core.errors import UsageError
from kernelwright.kernels import launch_cache, launch_codegen
from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.kernels.losses.reference import cross_entropy as cross_entropy_reference
from kernelwright.kernels.norms.op import layer_norm, rms_norm
from kernelwright.kernels.norms.reference import norm
from kernelwright.kernels.operators import ShapeError
from kernelwright.kernels.rotary.op import rotary_embedding
from kernelwright.kernels.softmaxes.op import softmax

pytestmark = runs_kernels


class Own(Tensor):
    pass


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


def test_the_same_call_on_other_tensors():
    for _ in range(3):
        x, weight = random(5, 24), random(24)
        require_close(poisoned(rms_norm, x, weight), norm(x, weight, eps=1e-6))


def test_tensors_that_lie_otherwise():
    x, weight = random(12, 24), random(24)
    for given in (x, x[:6], x[::2], x.t().contiguous().t(), x[:, :8], x[1:].clone()[:, 1:9]):
        wanted = norm(given, weight[: given.shape[-1]], eps=1e-6)
        for _ in range(2):
            require_close(poisoned(rms_norm, given, weight[: given.shape[-1]]), wanted)


@pytest.mark.parametrize("leading", [(), (2,)])
def test_numbers_of_rows_that_are_new(leading):
    weight = random(24)
    for rows in (2, 3, 4, 5, 12, 13, 14, 15, 1, 6):
        x, residual = random(*leading, rows, 24), random(*leading, rows, 24)
        require_close(poisoned(rms_norm, x, weight), norm(x, weight, eps=1e-6), what=str(rows))
        y, total = poisoned(rms_norm, x, weight, residual=residual)
        torch.testing.assert_close(total, x + residual)
        require_close(y, norm(x, weight, residual=residual, eps=1e-6), what=str(rows))
        target = torch.randint(24, (*leading, rows)).to(x.device)
        got = poisoned(cross_entropy, x, target, reduction="sum")
        want = cross_entropy_reference(x.view(-1, 24), target.view(-1), reduction="sum")
        require_close(got, want, budget=32, what=str(rows))


def test_one_tensor_twice_then_two():
    x, other = random(4, 16), random(4, 16)
    for residual in (x, x, other, other):
        y, total = rms_norm(x, residual=residual)
        torch.testing.assert_close(total, x + residual)
        require_close(y, norm(x, residual=residual, eps=1e-6))


def test_other_options():
    x = random(4, 16)
    for _ in range(2):
        for scale in (1.0, 0.5):
            require_close(softmax(x, scale=scale), torch.softmax(x.double() * scale, -1))


def test_a_gradient_that_is_wanted_later():
    x = random(4, 16)
    rms_norm(x), rms_norm(x)
    assert rms_norm(x.requires_grad_()).requires_grad


def test_several_results_and_transposed_ones():
    for _ in range(3):
        q, k, angles = random(1, 4, 3, 8), random(1, 2, 3, 8), random(3, 4)
        got = rotary_embedding(q, k, angles.cos(), angles.sin(), heads_first=True)
        for one, given in zip(got, (q, k), strict=True):
            again = rotary_embedding(given.transpose(1, 2), given.transpose(1, 2), angles.cos(), angles.sin())[0]
            torch.testing.assert_close(one, again.transpose(1, 2))


def test_wrong_input_is_wrong_every_time():
    for _ in range(2):
        with pytest.raises(ShapeError):
            rms_norm(random(4, 16), random(8))


def test_not_everything_is_kept(monkeypatch):
    monkeypatch.setattr(launch_cache, "MAX_CACHED_CALLS", 2)
    for rows in (1, 2, 3, 4, 1, 2, 3):
        x = random(rows, 8)
        require_close(rms_norm(x), norm(x, eps=1e-6))


@pytest.fixture
def no_device(monkeypatch):
    """The CPU as the only device, with a stream of its own."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)


def test_a_launch_is_given_addresses_and_what_was_made_is_made_anew(no_device):
    launches, calls = [], []

    def run(stream, x, made, result, number):
        launches.append((stream, number))
        value, before = (ctypes.c_float.from_address(one) for one in (x, made))
        ctypes.c_float.from_address(result).value = value.value + before.value + number
        before.value = 100.0

    @launch_cache.cached_launch
    def plus(x, number):
        calls.append(number)
        made, result = launch_cache.allocate_workspace((3,), torch.float32, x.device, zero=True), torch.empty_like(x)
        run(77, x.data_ptr(), made.data_ptr(), result.data_ptr(), number)
        launch_cache.record_launch(
            lambda: launch_codegen.RecordedLaunch(run, (launch_codegen.CURRENT_STREAM,), (x, made, result, number))
        )
        return result

    for value in (1.0, 2.0, 3.0):
        assert plus(torch.tensor([value]), 5).item() == value + 5
    assert (calls, launches) == ([5, 5], [(77, 5)] * 3), "written down when it is made again"


@pytest.fixture
def doubled(no_device):
    """A repeated function of two tensors, and the calls of itself."""
    calls = []

    def run(x, result):
        ctypes.c_float.from_address(result).value = 2 * ctypes.c_float.from_address(x).value

    @launch_cache.cached_launch
    def double(x, other=None, scale=1.0):
        calls.append(scale)
        result = x.new_empty(x.shape)
        run(x.data_ptr(), result.data_ptr())
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(run, (), (x, result)))
        return result

    return double, calls


def test_a_recent_call_is_not_mistaken_for_another(doubled):
    double, calls = doubled
    x, far = torch.ones(4), torch.ones(5)[1:]
    wider, leaf, sub = (
        torch.ones(4, dtype=torch.float64),
        torch.ones(4, requires_grad=True),
        torch.ones(4).as_subclass(Own),
    )
    for _ in range(4):
        double(x)
    assert len(calls) == 2
    for args, kwargs in (
        ((far,), {}), ((x[:2],), {}), ((wider,), {}), ((sub,), {}), ((x._neg_view(),), {}), ((leaf,), {}),
        ((x, x), {}), ((x, None, 2.0), {}), ((x, None, 1), {}), ((x,), {"scale": 3.0}), ((x,), {"other": far}),
    ):  # fmt: skip
        before = len(calls)
        double(*args, **kwargs)
        assert len(calls) == before + 1, (args, kwargs)


def test_what_is_recent_is_told_from_what_is_traced_or_transformed(doubled):
    double, calls = doubled
    x = torch.ones(3)
    for _ in range(3):
        double(x)
    with Counting():
        double(x)
    with pytest.raises(RuntimeError, match="storage"):
        torch.func.vmap(double)(torch.ones(2, 3))
    with forward_ad.dual_level(), pytest.raises(UsageError):
        double(forward_ad.make_dual(x, x))
    assert len(calls) == 4


def test_a_tensor_that_wants_a_gradient_is_recent_only_where_nobody_asks(doubled):
    double, calls = doubled
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        for _ in range(3):
            double(x)
    assert len(calls) == 2
    double(x)
    assert len(calls) == 3


def test_a_seed_may_be_another_each_time(no_device):
    calls = []

    def run(x, result, seed):
        ctypes.c_float.from_address(result).value = ctypes.c_float.from_address(x).value + seed

    @launch_cache.cached_launch
    def plus(x, p=3, *, seed=3):
        calls.append(seed)
        result = torch.empty_like(x)
        run(x.data_ptr(), result.data_ptr(), seed)
        launch_cache.record_launch(
            lambda: launch_codegen.RecordedLaunch(run, (), (x, result, launch_codegen.SeedArg(seed)))
        )
        return result

    x = torch.ones(1)
    assert [plus(x, 3, seed=seed).item() for seed in (3, 3, 3, 4, 2**20, 0)] == [4, 4, 4, 5, 2**20 + 1, 1]
    assert calls == [3, 3], "once more to be written down"
    assert [plus(x, 3).item() for _ in range(3)] == [4.0] * 3, "a seed that is not given is the same each time"
    assert [plus(x, 5, seed=seed).item() for seed in (3, 3)] == [4.0] * 2, "what is equal to the seed is not the seed"
    calls.clear()
    assert [plus(x, 3, seed=seed).item() for seed in (2**31, True, 2**31)] == [2.0**31, 2.0, 2.0**31]
    assert calls == [2**31, True, 2**31], "of another type for kernels"


def test_what_only_its_own_way_can_do_is_done_that_way(no_device):
    calls = []

    @launch_cache.cached_launch
    def ones(x):
        calls.append(x)
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(lambda *_: None, (), (x,)))
        launch_cache.record_launch(lambda: None)
        return torch.ones_like(x)

    assert [ones(torch.zeros(1)).item() for _ in range(3)] == [1.0] * 3 and len(calls) == 3


@pytest.fixture
def difference(no_device):
    """A repeated function of two tensors that are not interchangeable, and the calls of itself."""
    calls = []

    def run(x, y, result):
        x, y = (ctypes.c_float.from_address(one).value for one in (x, y))
        ctypes.c_float.from_address(result).value = x - 10 * y

    @launch_cache.cached_launch
    def of(x, y, z=None):
        calls.append(x)
        result = torch.empty_like(x)
        run(x.data_ptr(), y.data_ptr(), result.data_ptr())
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(run, (), (x, y, result)))
        return result

    return of, calls


def test_calls_on_one_tensor_twice_are_repeated_too(difference):
    of, calls = difference
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        x = torch.tensor([value])
        assert of(x, x).item() == -9 * value
    assert len(calls) == 2


@pytest.mark.parametrize("first", ["same", "other", "view"])
def test_what_is_one_tensor_is_not_taken_for_two(difference, first):
    of, calls = difference
    x, y = torch.tensor([1.0]), torch.tensor([2.0])
    pairs = {"same": (x, x), "other": (x, y), "view": (y, y.view(1)), "turned": (y, x), "same again": (y, y)}
    for name in (first, *pairs) * 4:
        one, other = pairs[name]
        assert of(one, other).item() == one.item() - 10 * other.item(), name
    assert len(calls) <= 6, "each way to share memory is written down once"


def test_of_three_tensors_any_two_may_be_one(difference):
    of, calls = difference
    one, two, three = (torch.tensor([value]) for value in (1.0, 2.0, 3.0))
    for _ in range(4):
        for x in (one, two):
            for y in (one, two, three):
                for z in (one, two, three):
                    assert of(x, y, z).item() == x.item() - 10 * y.item()
    assert len(calls) == 10, "five ways of three tensors to be one, none, or two of them, each called and written down"


def test_a_result_that_is_an_argument_is_not_repeated(no_device):
    calls = []

    @launch_cache.cached_launch
    def same(x):
        calls.append(x)
        launch_cache.record_launch(lambda: launch_codegen.RecordedLaunch(lambda *_: None, (), (x,)))
        return x

    x, y = torch.ones(1), torch.zeros(1)
    assert [same(one) is one for one in (x, y, x, y)] == [True] * 4
    assert len(calls) == 4


def test_a_call_of_one_weight_for_two():
    x, weight = random(5, 24), random(24)
    for _ in range(4):
        for w, b in ((weight, weight), (weight, random(24)), (random(24), weight)):
            require_close(poisoned(layer_norm, x, w, b), layer_norm_reference(x, w, b))


def layer_norm_reference(x, weight, bias):
    return torch.nn.functional.layer_norm(x.double(), x.shape[-1:], weight.double(), bias.double(), 1e-5)


CLASSES = 12 if INTERPRETED else 24  # of so many rows that the interpreter needs more of them in a program


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_loss_whose_rows_are_added_up_in_several_programs(reduction):
    for rows in (3, 4100, 4100, 3):
        x = random(rows, CLASSES)
        target = torch.randint(CLASSES, (rows,), device=x.device)
        got = poisoned(cross_entropy, x, target, reduction=reduction)
        require_close(got, cross_entropy_reference(x, target, reduction=reduction), budget=32)


def test_a_loss_of_no_classes_is_no_number_every_time():
    for _ in range(3):
        got = poisoned(cross_entropy, random(3, 0), torch.zeros(3, dtype=torch.int64, device=random(1).device))
        assert got.isnan()


@pytest.mark.parametrize("shape", [(5, 20), pytest.param((4100, CLASSES // 3), marks=pytest.mark.slow)], ids=str)
def test_a_gradient_that_takes_the_place_of_logits(shape):
    for _ in range(3):
        x, target = random(*shape, grad=True), torch.randint(shape[1], shape[:1]).to(random(1).device)
        want = torch.nn.functional.cross_entropy(x.double(), target)
        (wanted,) = torch.autograd.grad(want * 3, x)
        got = poisoned(cross_entropy, x * 1, target, inplace=True)
        (dx,) = torch.autograd.grad(got * 3, x)
        require_close(got.detach(), want.detach(), budget=8)
        require_close(dx, wanted.double(), budget=32, terms=1.0 / shape[0])
