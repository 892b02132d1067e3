"""The error of FFT and Winograd convolutions in full precision.

Their rounding errors are relative to whole planes of the input, not to the output's own values: an output that is small
among large ones has an error of many ulp, which no direct sum has. The error is modelled as noise that is added to
every convolution in an FP64 run of the program, so that it reaches the output as it would in the program.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from kernelwright.verification.accuracy.fp64_mode import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, FP64Mode

NOISE_EPS = 6.0
"""Standard deviation of the noise, in eps of full precision, relative to the root mean square that a plane of the
output has if its terms do not cancel. Measured over all distributions: 1.3 to 2 for an FFT of up to 2^13 elements and
for Winograd F(2x2, 3x3), 6 to 11 for F(4x4, 3x3), 60 to 80 for 3xBF16 products and for spectra of 16 bits."""
_GROUPS_INDEX = 6
"""Position of `groups` in the arguments of all convolutions."""


class NoisyConvolutions(FP64Mode):
    """An FP64 run in which every convolution has the error that a fast algorithm has in full precision.

    Args:
        native_dtype: as in `FP64Mode`.
        seed: of the noise; by default unpredictable.
    """

    def __init__(self, native_dtype: torch.dtype, seed: int | None = None) -> None:
        super().__init__(native_dtype)
        self._eps = torch.finfo(torch.float64 if native_dtype == torch.float64 else torch.float32).eps
        self._seed = random.SystemRandom().getrandbits(62) if seed is None else seed

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        if func not in CONVOLUTIONS:
            return result
        self._seed += 1
        generator = torch.Generator(result.device).manual_seed(self._seed)
        noise = torch.randn(result.shape, generator=generator, dtype=torch.float64, device=result.device)
        scale = plane_rms(func in TRANSPOSED_CONVOLUTIONS, *args, **(kwargs or {}))
        return result + noise.mul_(scale.view(*scale.shape, *(1,) * (result.dim() - scale.dim()))).mul_(
            self._eps * NOISE_EPS
        )


def plane_rms(transposed: bool, *args: Any, **kwargs: Any) -> Tensor:
    """The root mean square that each plane of a convolution's output has if its terms do not cancel, from the mean
    square of each plane of the input and the sum of squares of each filter.

    Args:
        args, kwargs: of the convolution.
    Returns:
        (batch, channels), or (channels,) without a batch.
    """
    given = dict(zip(("input", "weight"), args, strict=False)) | kwargs
    squares, filters = (given[name].detach().double().square() for name in ("input", "weight"))
    groups = int(args[_GROUPS_INDEX] if len(args) > _GROUPS_INDEX else kwargs.get("groups", 1))
    spatial = filters.dim() - 2
    filters = filters.flatten(2).sum(2).unflatten(0, (groups, -1))
    planes = squares.flatten(-spatial).mean(-1).unflatten(-1, (groups, -1))
    subscripts = "...gi,gio->...go" if transposed else "...gi,goi->...go"
    return torch.einsum(subscripts, planes, filters).flatten(-2).sqrt()
