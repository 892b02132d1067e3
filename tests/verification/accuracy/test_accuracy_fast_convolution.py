"""Convolutions by FFT and Winograd in FP32 are accurate; with fewer bits inside they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from convolutions import bits, fft_convolution, product_in_parts, winograd_convolution

from kernelwright.verification.accuracy.budget import check_accuracy
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS
from kernelwright.verification.accuracy.expected import compute_expected
from kernelwright.verification.accuracy.fast_convolution import NoisyConvolutions, plane_rms

SPARSE = next(one for one in DISTRIBUTIONS if one.sparse)
UNEVEN = next(one for one in DISTRIBUTIONS if one.name == "uneven rows")


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_scale_of_a_plane_is_that_of_random_terms(groups: int, transposed: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 8, 60, 60)
    x[1] *= 100
    w = torch.randn(*((8, 12 // groups) if transposed else (12, 8 // groups)), 3, 3)
    convolve = F.conv_transpose2d if transposed else F.conv2d
    scale = plane_rms(transposed, x, w, None, 1, 0, *([0, groups] if transposed else [1, groups]))
    assert scale.shape == (3, 12)
    measured = convolve(x, w, groups=groups).square().mean((2, 3)).sqrt()
    assert torch.allclose(scale.float(), measured, rtol=0.2)
    assert torch.equal(plane_rms(transposed, x, weight=w, groups=groups), scale)


def test_a_convolution_has_noise_and_nothing_else_has() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 3, 50).double(), torch.randn(4, 3, 5).double()
    with NoisyConvolutions(torch.float32) as mode:
        noisy, product = F.conv1d(x, w), x @ x.mT
    assert mode.has_convolution and torch.equal(product, x @ x.mT)
    error = (noisy - F.conv1d(x, w)).square().mean().sqrt() / F.conv1d(x, w).square().mean().sqrt()
    assert 2e-7 < error < 2e-6
    with NoisyConvolutions(torch.float32) as mode:
        torch.exp(x)
    assert not mode.has_convolution


def test_programs_without_a_convolution_have_no_such_error() -> None:
    assert compute_expected(torch.exp, None, ([torch.randn(64)], {})).golden_of_fast_convolutions() is None


@pytest.mark.parametrize("distribution", [SPARSE, UNEVEN], ids=lambda one: one.name)
def test_full_precision_is_accepted_and_less_is_not(distribution) -> None:
    torch.manual_seed(0)
    cases = [
        (F.conv1d, [torch.randn(2, 1, 5000), torch.randn(3, 1, 301) / 17], [fft_convolution(0)], []),
        (
            F.conv2d,
            [torch.randn(2, 12, 26, 26), torch.randn(8, 12, 3, 3) / 10],
            [fft_convolution(0), winograd_convolution(padding=0)],
            [winograd_convolution(padding=0, product=product_in_parts(8, 2))] if distribution is SPARSE else [],
        ),
    ]
    for program, example, right, wrong in cases:
        inputs = distribution.draw((example, {}), 5)
        expected = compute_expected(program, None, inputs)
        for variant in right:
            reason, accuracy = check_accuracy([variant(*inputs[0])], expected, distribution=distribution)
            assert reason is None and accuracy is not None and accuracy.error_over_limit < 0.5, reason
        for variant in [*wrong, fft_convolution(0, spectrum=bits(11)), fft_convolution(0, operand=bits(8))]:
            assert check_accuracy([variant(*inputs[0])], expected, distribution=distribution)[0] is not None
