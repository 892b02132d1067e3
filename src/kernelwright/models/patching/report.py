"""Report of the parts of a model that were patched, and of those that were not, with reasons."""

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
    """Nothing to patch, a requested part is missing, or the patched model computes something else."""

    code = "not-patched"
    default_next = "patch only models whose norms, activations and loss are those of Llama, Gemma or Qwen"


class PatchWarning(UserWarning):
    """A part was not found, or modules that match it were skipped."""


class PatchCounts(NamedTuple):
    """Number of modules of each part that run our kernels, and whether the loss does."""

    norms: int
    gates: int
    rotary: int
    loss: bool


def validate_parts(parts: Collection[str] | None) -> tuple[str, ...]:
    """The parts in canonical order; all if `parts` is None.

    Raises:
        PatchError: an unknown part.
    """
    if parts is None:
        return PARTS
    unknown = [parts] if isinstance(parts, str) else [one for one in parts if one not in PARTS]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise PatchError(f"parts is {names}", next=f"pass a list of these: {', '.join(PARTS)}")
    return tuple(one for one in PARTS if one in parts)


def describe_unpatched(model: nn.Module, part: str, found: int, skipped: Sequence[tuple[str, str]]) -> str:
    """One line about the modules of a part that are not patched; empty if all are.

    Args:
        found: number of patched modules.
        skipped: class name and reason of each module that matches the part but was skipped.
    """
    name = f"{type(model).__name__} ({_transformers_version()})"
    reasons = "; ".join(f"{skipped.count(one)} {one[0]}: {one[1]}" for one in dict.fromkeys(skipped))
    if not found:
        return f"{part}: not found in {name}: {reasons or f'it does not have {PART_DESCRIPTIONS[part]}'}"
    return f"{part}: {found} of {found + len(skipped)} patched in {name}: {reasons}" if skipped else ""


def describe_stored_logits(name: str, reason: str) -> str:
    """One line about a model whose loss is patched, but needs logits."""
    return (
        f"loss: {name} stores its logits in training: {reason}; pass keep_logits=True to patch the loss of the logits "
        "without this warning"
    )


def suggest_parts(found: Mapping[str, int]) -> str:
    """The next step if parts are missing, by number of modules of each part."""
    return f"pass parts={[part for part, count in found.items() if count]} to patch only the parts that were found"


def _transformers_version() -> str:
    version = getattr(sys.modules.get("transformers"), "__version__", None)
    return f"transformers {version}" if version else "transformers is not imported"
