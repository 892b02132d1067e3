"""Changed parameters and buffers: some input sets use other values for them."""

from __future__ import annotations

import torch
from torch import Tensor

ZERO_STD = 0.1
MAX_FACTOR, LARGE_FACTOR, LARGE_SHARE = 1.5, 8.0, 1 / 8
"""Magnitudes grow by up to the first factor; with changed signs, this share of them by up to the second."""


def perturb(module: torch.nn.Module, seed: int, *, signs: bool = False) -> None:
    """Set new values for every floating parameter and persistent buffer, in place.

    Magnitudes grow by up to half, so that constants (a scale of ones) vary. A tensor of zeros, which would hide its
    factors, gets small normal values, positive ones for a variance. Masks and non-persistent buffers, which a
    candidate may compute itself, are unchanged.

    Args:
        signs: change half of the signs too, and make a few values several times as large; buffers of one sign keep
            theirs. Without it, signs and zeros are kept.
    """
    with torch.no_grad():
        parameters = {name for name, _ in module.named_parameters()}
        for at, (name, value) in enumerate(perturbable_state(module).items()):
            generator = torch.Generator(value.device).manual_seed((seed + at) % (1 << 63))
            drawn = torch.empty(value.shape, device=value.device)
            if bool((value == 0).all()):
                drawn.normal_(0, ZERO_STD, generator=generator)
                value.copy_(drawn.abs() if "var" in name else drawn)
                continue
            keeps_sign = name not in parameters and (bool((value >= 0).all()) or bool((value <= 0).all()))
            value.mul_(drawn.uniform_(1.0, MAX_FACTOR, generator=generator).to(value.dtype))
            if signs and not keeps_sign:
                chosen = drawn.uniform_(0.0, 1.0, generator=generator)
                large = chosen <= max(LARGE_SHARE, chosen.min().item())
                drawn = torch.where(large, LARGE_FACTOR * (1 - chosen / 2), 1.0)
                value.mul_(drawn.to(value.dtype))
                chosen.uniform_(-1.0, 1.0, generator=generator)
                value.copy_(torch.where(chosen < 0, -value, value))


def perturbable_state(module: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors that `perturb` changes, by name."""
    persistent = module.state_dict(keep_vars=True)
    buffers = {name: value for name, value in module.named_buffers() if name in persistent and not _is_mask(value)}
    named = dict(module.named_parameters()) | buffers
    return {name: t for name, t in named.items() if t.dtype.is_floating_point and t.dtype.itemsize >= 2}


def _is_mask(buffer: Tensor) -> bool:
    """Two distinct values, or infinities: the buffer selects, it does not scale."""
    if not buffer.dtype.is_floating_point or not buffer.numel() or buffer.dtype.itemsize < 2:
        return False
    low, high = buffer.min(), buffer.max()
    two = bool((low < high) & ((buffer == low) | (buffer == high)).all())
    return two or not bool(buffer.isfinite().all())
