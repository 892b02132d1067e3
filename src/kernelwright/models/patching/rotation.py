"""The rotary embedding of an attention module, wherever its forward calls it, behind decorators too."""

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
    """The class's own forward, for which `apply_rotary_pos_emb` is ours; the reason where it rotates in another way;
    None where nothing says that it rotates."""
    return _replace_rotary(type(module).forward)


@functools.cache
def _replace_rotary(forward: Any) -> Callable[..., Any] | str | None:
    """One for each forward, so that modules of one class stay of one class, which torch.compile compiles once."""
    rotations = sorted(name for name in collect_names(forward) if name.startswith("apply_") and "rotary" in name)
    if not rotations:
        return None
    ours = rebind(forward, ROTARY_FUNCTION, _computes_rotary, _rotate)
    if ours is None and ROTARY_FUNCTION in rotations:
        return f"{ROTARY_FUNCTION} computes another rotation, or its forward cannot be rebuilt"
    return ours or f"its forward calls {', '.join(rotations)}, not {ROTARY_FUNCTION}"


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Angles of each token twice, as Hugging Face's models have them: (B, S, D)."""
    return rotary_embedding(q, k, cos, sin, heads_first=unsqueeze_dim == 1)


@torch.no_grad()
def _computes_rotary(theirs: Any) -> bool:
    q, k, angles = seeded_randn(1, 2, 3, 8), seeded_randn(1, 1, 3, 8), seeded_randn(1, 3, 4)
    twice = torch.cat((angles, angles), -1)
    try:
        got = theirs(q, k, twice.cos(), twice.sin())
        wanted = [reference.rotary_embedding(x.transpose(1, 2), angles.cos(), angles.sin()) for x in (q, k)]
        return all(is_close(one, other.transpose(1, 2)) for one, other in zip(got, wanted, strict=True))
    except Exception:  # of another signature
        return False
