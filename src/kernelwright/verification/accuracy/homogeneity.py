"""Whether a program's outputs scale with its inputs."""

from __future__ import annotations

import math

import torch

from kernelwright.verification.accuracy import expected
from kernelwright.verification.accuracy.expected import Expected

HOMOGENEITY_TOLERANCE = 1e-3


def is_homogeneous(unscaled: Expected, scaled: Expected) -> bool:
    """Whether all outputs for scaled inputs are those for unscaled inputs times a power of two."""
    return unscaled.golden_method == scaled.golden_method == expected.FP64 and all(
        map(_tensor_is_homogeneous, unscaled.golden, scaled.golden)
    )


def _tensor_is_homogeneous(unscaled: torch.Tensor, scaled: torch.Tensor) -> bool:
    """Whether one tensor is the other times a power of two, up to the effect of an epsilon."""
    if unscaled.shape != scaled.shape:  # it depends on values
        return False
    if not unscaled.dtype.is_floating_point or not unscaled.numel():
        return torch.equal(unscaled, scaled)
    unscaled_max, scaled_max = unscaled.abs().max().item(), scaled.abs().max().item()
    if not (0 < unscaled_max < math.inf and 0 < scaled_max < math.inf):
        return False
    factor = 2.0 ** round(math.log2(scaled_max / unscaled_max))
    return bool((scaled - unscaled * factor).abs().max() <= HOMOGENEITY_TOLERANCE * scaled_max)
