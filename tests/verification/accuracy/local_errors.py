"""Programs with small outputs or rows of very different scale, and candidates that are wrong in a few places:
small rows, small values, single elements."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Variant = Callable[..., Tensor]
SMALL_ROW = 2.0**-8
"""Rows below this share of the largest row's rms are small."""


def uneven(*shape: int, octaves: int = 24) -> Tensor:
    """Normal values, each row times a power of two down to 2^-octaves."""
    return torch.randn(*shape) * torch.exp2(-torch.randint(0, octaves, (*shape[:-1], 1)).float())


def row_rms(out: Tensor) -> Tensor:
    return out.float().square().mean(-1, keepdim=True).sqrt()


def in_small_rows(program: Variant, change: Callable[[Tensor], Tensor]) -> Variant:
    """Changes the small rows of the output."""

    def variant(*args: Tensor) -> Tensor:
        out = program(*args)
        size = row_rms(out)
        return torch.where(size < SMALL_ROW * size.max(), change(out), out)

    return variant


def flushed(program: Variant, share: float) -> Variant:
    """Zero in place of values below a share of the largest."""

    def variant(*args: Tensor) -> Tensor:
        out = program(*args)
        return torch.where(out.abs() < share * out.abs().max(), 0.0, out)

    return variant


def some_wrong(program: Variant, share: float, error: float) -> Variant:
    """A share of the elements, at random positions, is wrong by a share of its own value."""

    def variant(*args: Tensor) -> Tensor:
        out = program(*args).clone()
        flat = out.view(-1)
        count = max(1, round(share * flat.numel()))
        at = torch.randperm(flat.numel())[:count]
        flat[at] = flat[at] * (1 + error)
        return out

    return variant


def in_fp16_of_maximum(out: Tensor) -> Tensor:
    """Each row in FP16 after a division by its maximum."""
    top = out.abs().amax(-1, True)
    return (out / top.clamp_min(1e-38)).half().float() * top


def small_row_cheats(program: Variant, rows: bool = True) -> dict[str, Variant]:
    """`rows`: rows have several elements, so that FP16 of a row's maximum is a loss."""
    found = {
        "small rows zero": in_small_rows(program, torch.zeros_like),
        "small rows in BF16": in_small_rows(program, lambda t: t.bfloat16().float()),
        "small rows doubled": in_small_rows(program, lambda t: 2 * t),
        "values below 2^-10 flushed": flushed(program, 2.0**-10),
        "values below 2^-14 flushed": flushed(program, 2.0**-14),
    }
    return found | ({"small rows in FP16 of their maximum": in_small_rows(program, in_fp16_of_maximum)} if rows else {})


def wrong_share_cheats(program: Variant) -> dict[str, Variant]:
    return {
        f"{share:.0%} of elements {error:.0%} off": some_wrong(program, share, error)
        for share in (0.05, 0.2, 0.45)
        for error in (0.01, 0.1, -1.0)
    }


def single_cheats(program: Variant) -> dict[str, Variant]:
    return {f"one random element {error:.0%} off": some_wrong(program, 0.0, error) for error in (0.01, 0.1, -1.0)}
