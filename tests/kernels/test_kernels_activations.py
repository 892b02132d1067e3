"""Activations: every kind, shape, dtype, option and gradient against FP64."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from on_device import DEVICE, EPS, ROUNDED_ONCE, poisoned, random, require_close, runs_kernels

from kernelwright.kernels.activations import reference
from kernelwright.kernels.activations.op import activation, dropout_add, geglu, gelu, relu_squared, swiglu
from kernelwright.kernels.activations.spec import KINDS
from kernelwright.kernels.operators import ShapeError

pytestmark = runs_kernels
SHAPES = ((1, 1), (7, 13), (3, 4096), (5, 1000), (2, 3, 64))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(kind, shape):
    given = [
        random(*shape, scale=2, grad=True),
        random(*shape, grad=True),
        random(shape[-1], grad=True),
        random(*shape, grad=True),
    ]
    for x, up, bias, residual in ((*given[:1], None, None, None), given):
        asked = [one for one in (x, up, bias, residual) if one is not None]
        got = poisoned(activation, x, up, bias=bias, residual=residual, kind=kind)
        want = reference.activation(x, up, bias, residual, kind=kind)
        require_close(got.detach(), want.detach(), budget=8)
        dy = random(*shape)
        for one, other in zip(
            torch.autograd.grad(got, asked, dy), torch.autograd.grad(want, asked, dy.double()), strict=True
        ):
            require_close(one, other, budget=16, terms=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_rounds_once(dtype):
    gate, up = random(9, 300, dtype=dtype), random(9, 300, dtype=dtype)
    for got, kind in ((swiglu(gate, up), "silu"), (geglu(gate, up), "gelu_tanh")):
        assert got.dtype == dtype
        require_close(got, reference.activation(gate, up, kind=kind), budget=ROUNDED_ONCE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gelu_of_every_number_of_16_bits(dtype):
    """Its gradient is a difference where x is near -0.75; what is hardly a normal number may become zero."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16, device=DEVICE).view(dtype)
    x = x[x.isfinite()].requires_grad_()
    got, exact = gelu(x), x.detach().double()
    (slope,) = torch.autograd.grad(got.sum(), x)
    below = torch.special.log_ndtr(exact).exp()
    density = torch.exp(-exact.square() / 2) / (2 * torch.pi) ** 0.5
    smallest, roundings = torch.finfo(dtype).smallest_normal, (ROUNDED_ONCE * 2 + 0.1) * EPS[dtype]
    for one, want, terms in ((got, exact * below, 0.0), (slope, below + exact * density, 1e-2)):
        error = (one.double() - want).abs()
        assert (error <= roundings * want.abs() + roundings * terms + 16 * smallest).all()


def test_the_activation_is_rounded_first_where_a_model_does():
    gate, up = random(9, 300, dtype=torch.float16, grad=True), random(9, 300, dtype=torch.float16, grad=True)
    got = swiglu(gate, up, cast_first=True)
    rounded = reference.FORMULAS["silu"](gate.double()).half().double()
    require_close(got.detach(), (rounded * up.double()).detach(), budget=ROUNDED_ONCE)
    (dup,) = torch.autograd.grad(got.sum(), up)
    require_close(dup, rounded.detach(), budget=0.01, what="what the gate was rounded to")
    assert not torch.equal(got, swiglu(gate, up))
    assert not torch.equal(geglu(gate, up, cast_first=True), geglu(gate, up))


def test_far_out_nothing_overflows():
    x = torch.tensor([-1e4, -90.0, -20.0, 20.0, 90.0, 1e4], device=DEVICE, requires_grad=True)
    for kind in KINDS:
        y = activation(x, kind=kind)
        torch.testing.assert_close(y.double(), reference.activation(x, kind=kind), rtol=1e-5, atol=1e-8)
        assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()


def test_halves_of_one_tensor_are_read_as_they_lie():
    packed = random(6, 5, 2 * 48, grad=True)
    gate, up = packed.chunk(2, -1)
    got = swiglu(gate, up)
    want = reference.activation(gate, up, kind="silu")
    require_close(got.detach(), want.detach())
    one, other = (torch.autograd.grad(y.sum(), packed, retain_graph=True)[0] for y in (got, want))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    strided = random(4, 6, 8).transpose(0, 1)
    require_close(gelu(strided), reference.activation(strided, kind="gelu"))


def test_dropout_repeats_and_keeps_the_mean():
    x, residual = random(64, 1000, grad=True), random(64, 1000)
    one, again, other = (dropout_add(x, residual, 0.25, seed=seed) for seed in (7, 7, 8))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    kept = one != residual
    assert abs(kept.float().mean().item() - 0.75) < 0.01
    torch.testing.assert_close(one[kept], (residual + x / 0.75)[kept])
    (dx,) = torch.autograd.grad(one.sum(), x)
    assert torch.equal(dx != 0, kept), "the gradient passes where the value did"


def test_what_dropout_keeps_depends_on_no_other_element():
    x = torch.ones(70_000, device=DEVICE)
    for count in (7, 300, 5000):
        some, all_of_them = (dropout_add(one, torch.zeros_like(one), 0.5, seed=3) for one in (x[:count], x))
        assert torch.equal(some, all_of_them[:count])


def test_named_ones_are_torchs():
    x, bias = random(4, 32), random(32)
    torch.testing.assert_close(gelu(x), torch.nn.functional.gelu(x))
    torch.testing.assert_close(
        gelu(x, approximate="tanh", bias=bias), torch.nn.functional.gelu(x + bias, approximate="tanh")
    )
    torch.testing.assert_close(relu_squared(x, bias=bias), torch.relu(x + bias).square())


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_empty(shape):
    x = random(*shape, grad=True)
    swiglu(x, x).sum().backward()
    assert x.grad.shape == shape


def test_what_does_not_fit_is_said():
    x = random(4, 8)
    for call, says in (
        (lambda: swiglu(x, x[:3]), r"up is \(3, 8\); it must be \(4, 8\)"),
        (lambda: swiglu(x, x.half()), "up is torch.float16; it must be float32"),
        (lambda: gelu(x, bias=random(9)), r"bias is \(9,\); it must be \(8,\)"),
        (lambda: gelu(x, approximate="erf"), "approximate is 'erf'"),
        (lambda: activation(x, kind="mish"), "no activation 'mish'"),
        (lambda: dropout_add(x, x, 1.0, seed=1), "p is 1.0"),
    ):
        with pytest.raises(ShapeError, match=says):
            call()


@pytest.mark.slow
def test_it_is_an_operator_of_torch():
    given = [random(3, 16, grad=True) for _ in range(2)]
    torch.library.opcheck(
        torch.ops.kernelwright.activation.default,
        (*given, random(16, grad=True), random(3, 16, grad=True), "silu", False, 0.0, 3),
    )


def test_what_is_not_a_number_stays_so():
    x = torch.tensor([float("nan"), 1.0], device=DEVICE)
    for kind in KINDS:
        assert activation(x, kind=kind).isnan().tolist() == [True, False]


def test_a_bias_need_not_be_dense():
    x, bias = random(3, 8), random(16)[::2]
    torch.testing.assert_close(gelu(x, bias=bias), torch.nn.functional.gelu(x + bias))


def test_torch_compile_takes_it_whole_with_any_seed():
    x, frames = random(3, 24), []

    def backend(graph, _):
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda x, seed: dropout_add(gelu(x), x, 0.5, seed=seed), fullgraph=True, dynamic=True, backend=backend
    )
    for seed in (3, 4, 5):
        assert torch.equal(compiled(x, seed), dropout_add(gelu(x), x, 0.5, seed=seed))
    assert len(frames) == 1
