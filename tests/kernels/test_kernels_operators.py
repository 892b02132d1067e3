"""Kernels as operators: the same results through torch's dispatcher and past it."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from on_device import DEVICE, random, runs_kernels

from kernelwright.kernels import operators
from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.kernels.norms import op as norms
from kernelwright.kernels.norms.op import layer_norm, rms_norm
from kernelwright.kernels.softmaxes.op import softmax

pytestmark = runs_kernels
CALLS = {
    "rms_norm": lambda x, w: rms_norm(x, w, residual=x * 2)[0],
    "layer_norm": lambda x, w: layer_norm(x, w, w),
    "softmax": lambda x, w: softmax(x * w),
    "cross_entropy": lambda x, w: cross_entropy(x * w, torch.arange(len(x), device=DEVICE)),
}


def gradients(call, x, weight):
    given = [one.detach().clone().requires_grad_() for one in (x, weight)]
    result = call(*given)
    return result.detach(), *torch.autograd.grad(result.square().sum(), given)


@pytest.mark.parametrize("name", CALLS)
def test_past_the_dispatcher_everything_is_the_same(name, monkeypatch):
    x, weight, refused = random(5, 40), random(40), []
    direct = gradients(CALLS[name], x, weight)
    monkeypatch.setattr(operators, "is_plain_eager", lambda: refused.append(1))
    dispatched = gradients(CALLS[name], x, weight)
    assert all(map(torch.equal, direct, dispatched)) and refused


def test_plain_tensors_go_past_it_and_others_do_not(monkeypatch):
    def refuse(*_):
        raise AssertionError("dispatched")

    monkeypatch.setattr(norms._NORM, "_dispatched", refuse)
    monkeypatch.setattr(norms._NORM_BACKWARD, "_dispatched", refuse)
    x, weight = random(3, 8, grad=True), random(8, grad=True)
    rms_norm(x, weight).sum().backward()
    assert x.grad.any() and weight.grad.any()
    with pytest.raises(AssertionError, match="dispatched"):
        torch.vmap(rms_norm)(random(2, 3, 8))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_in_batches(name):
    x, weight = random(4, 16, grad=True), random(16, grad=True)
    result = CALLS[name](x, weight)
    slopes = random(3, *result.shape)
    batched = torch.autograd.grad(result, (x, weight), slopes, is_grads_batched=True, retain_graph=True)
    one_by_one = [torch.autograd.grad(result, (x, weight), slope, retain_graph=True) for slope in slopes]
    for got, want in zip(batched, zip(*one_by_one, strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(want))


def test_what_has_no_memory_has_shapes():
    x, weight = (torch.empty(*size, device="meta", requires_grad=True) for size in ((3, 8), (8,)))
    assert rms_norm(x, weight).shape == (3, 8)
