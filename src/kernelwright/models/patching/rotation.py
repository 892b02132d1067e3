"""Rotary embedding of attention modules whose forward calls `apply_rotary_pos_emb`, also behind decorators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.kernels.rotary import reference
from kernelwright.kernels.rotary.op import rotary_embedding
from kernelwright.models.patching.closures import collect_names, rebind
from kernelwright.models.patching.probing import is_close, seeded_randn

ROTARY_FUNCTION = "apply_rotary_pos_emb"


def match_rotary(module: nn.Module) -> Callable[..., Any] | str | None:
    """The class's own forward with `apply_rotary_pos_emb` replaced by ours; the reason if it rotates in another way;
    else None."""
    return _replace_rotary(type(module).forward)


@functools.cache
def _replace_rotary(forward: Any) -> Callable[..., Any] | str | None:
    """Cached by forward, so that modules of one class stay in one class, which torch.compile compiles once."""
    functions = sorted(name for name in collect_names(forward) if name.startswith("apply_") and "rotary" in name)
    if not functions:
        return None
    replaced = rebind(forward, ROTARY_FUNCTION, _computes_rotary, _rotate)
    if replaced is None and ROTARY_FUNCTION in functions:
        return f"{ROTARY_FUNCTION} computes another rotation, or its forward cannot be rebound"
    return replaced or f"its forward calls {', '.join(functions)}, not {ROTARY_FUNCTION}"


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Ours with Hugging Face's signature: cos and sin are (B, S, D), each angle twice."""
    return rotary_embedding(q, k, cos, sin, heads_first=unsqueeze_dim == 1)


@torch.no_grad()
def _computes_rotary(function: Any) -> bool:
    q, k, angles = seeded_randn(1, 2, 3, 8), seeded_randn(1, 1, 3, 8), seeded_randn(1, 3, 4)
    repeated = torch.cat((angles, angles), -1)
    try:
        actual = function(q, k, repeated.cos(), repeated.sin())
        expected = [reference.rotary_embedding(x.transpose(1, 2), angles.cos(), angles.sin()) for x in (q, k)]
        return all(is_close(x, y.transpose(1, 2)) for x, y in zip(actual, expected, strict=True))
    except Exception:  # another signature
        return False
