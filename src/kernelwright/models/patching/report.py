"""What of a model was patched, and what of it was not, with the reason."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from torch import nn

from kernelwright.core.errors import UsageError

PARTS = ("norms", "gates", "rotary", "loss")
PART_DESCRIPTIONS = {
    "norms": "a module whose class name ends in RMSNorm",
    "gates": "a module with gate_proj, up_proj and down_proj",
    "rotary": "a module whose forward calls apply_rotary_pos_emb",
    "loss": "a module whose forward calls self.loss_function, which is ForCausalLMLoss",
}


class PatchError(UsageError):
    """A model that has nothing to patch, lacks a part that was named, or computes something else when it is patched."""

    code = "not-patched"
    default_next = "patch only models whose norms, activations and loss are those of Llama, Gemma or Qwen"


class PatchWarning(UserWarning):
    """A part that a model does not have, or that has modules that were left as they are."""


class PatchCounts(NamedTuple):
    """How many modules of a model run our kernels, and whether its loss does."""

    norms: int
    gates: int
    rotary: int
    loss: bool


def validate_parts(parts: Collection[str] | None) -> tuple[str, ...]:
    """
    Raises:
        PatchError: a name that is no part.
    """
    if parts is None:
        return PARTS
    unknown = [parts] if isinstance(parts, str) else [one for one in parts if one not in PARTS]
    if unknown:
        wrong = ", ".join(map(repr, unknown))
        raise PatchError(f"parts is {wrong}", next=f"pass a list of these: {', '.join(PARTS)}")
    return tuple(one for one in PARTS if one in parts)


def describe_unpatched(model: nn.Module, part: str, found: int, skipped: Sequence[tuple[str, str]]) -> str:
    """One line that says what of a part is not patched; nothing where all of it is.

    Args:
        found: how many modules are patched.
        skipped: class name and reason of each module that looks like the part and is left as it is.
    """
    of = f"{type(model).__name__} ({_transformers_version()})"
    reasons = "; ".join(f"{skipped.count(one)} {one[0]}: {one[1]}" for one in dict.fromkeys(skipped))
    if not found:
        return f"{part}: not found in {of}: {reasons or f'it does not have {PART_DESCRIPTIONS[part]}'}"
    return f"{part}: {found} of {found + len(skipped)} patched in {of}: {reasons}" if skipped else ""


def suggest_parts(found: Mapping[str, int]) -> str:
    """What to pass where a part is missing and need not be there, by how many modules each part has."""
    return f"pass parts={[part for part, count in found.items() if count]} to patch only what is there"


def _transformers_version() -> str:
    found = getattr(sys.modules.get("transformers"), "__version__", None)
    return f"transformers {found}" if found else "transformers is not imported"
