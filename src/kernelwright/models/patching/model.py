"""Patch existing models: Hugging Face's Llama, Gemma, Qwen, and others with the same modules.

A module is patched only if its own forward matches the formula on random inputs, so a class that computes something
else under the same name is skipped. A patched module becomes an instance of a subclass with another forward; copies,
replicas and unpatching need nothing else.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

from torch import nn

from kernelwright.models.patching.comparison import PatchCheck
from kernelwright.models.patching.forwards import match_gated_mlp, match_norm
from kernelwright.models.patching.head import match_head
from kernelwright.models.patching.loss import causal_loss, match_loss
from kernelwright.models.patching.masks import match_mask
from kernelwright.models.patching.report import (
    PatchCounts,
    PatchError,
    PatchWarning,
    describe_stored_logits,
    describe_unpatched,
    suggest_parts,
    validate_parts,
)
from kernelwright.models.patching.rotation import match_rotary

Model = TypeVar("Model", bound=nn.Module)
MATCHERS = {"norms": match_norm, "gates": match_gated_mlp, "rotary": match_rotary, "masks": match_mask}


def patch(
    model: Model, *, parts: Collection[str] | None = None, keep_logits: bool = False, check: bool = False
) -> Model:
    """Replace RMSNorm, SwiGLU or GeGLU, rotary embedding and the causal loss in a model, in place.

    In training (`model.training`), a call with labels computes the loss together with the last linear layer, in chunks
    of rows, and returns no logits (None): all logits are the largest tensor of a training step. In evaluation mode,
    and without labels, logits are returned as before.
    Warns about parts that were not found, about modules that match a part but were skipped, and if the loss cannot be
    computed without logits.

    Args:
        model: a Hugging Face nn.Module; `unpatch` reverts it. A module whose forward was replaced on the instance is
            skipped. Save a patched model by its state_dict; it cannot be pickled.
        parts: some of "norms", "gates", "rotary" and "loss": only these are patched, and each must be found. None:
            all that are found; also omits causal masks under torch.compile where attention does not need them.
        keep_logits: return logits in training too; `unpatch` first to change it.
        check: compare the patched model's logits, loss and gradient on random tokens with the original's, using a
            copy in FP32 (FP64 for an FP32 model) as reference. Needs memory for that copy and three gradients.
    Returns:
        The model; `count_patched` returns how much of it runs our kernels.
    Raises:
        PatchError: nothing to patch, a part of `parts` not found, or the error of the patched model is too large;
            the model is unchanged.
        DeviceError: with `check`, the model is not on a CUDA device.
    """
    selected = validate_parts(parts)
    plan, counts = _make_plan(model, selected, keep_logits, masks=parts is None), count_patched(model)
    num_found = {part: getattr(counts, part) + len(plan.matched[part]) for part in selected}
    _report_unpatched(model, num_found, plan.skipped, named=parts is not None)
    for name, reason in dict.fromkeys(plan.skipped["head"]):
        warnings.warn(describe_stored_logits(name, reason), PatchWarning, stacklevel=2)
    comparison = PatchCheck(model) if check and not any(counts) else None
    for part, matches in plan.matched.items():
        for module, forward in matches:
            _install(module, part, forward)
    if comparison:
        try:
            comparison.compare(model)
        except BaseException:
            unpatch(model)
            raise
    return model


def unpatch(model: Model) -> Model:
    """Revert `patch`; no effect on a model that is not patched.

    Raises:
        PatchError: the class of a module was changed after `patch`, as by `fully_shard`; nothing is reverted.
    """
    patched = [module for module in model.modules() if isinstance(module, _PatchedModule)]
    if changed := next((one for one in patched if _PatchedModule not in type(one).__bases__), None):
        raise PatchError(f"the class of a module became {type(changed).__name__} after patch: unpatch before that")
    for module in patched:
        module.__class__ = type(module).__bases__[1]
    for module in model.modules():
        if vars(module).get("_loss_function") is causal_loss:
            object.__delattr__(module, "_loss_function")
    return model


def count_patched(model: nn.Module) -> PatchCounts:
    """How many modules of each part run our kernels."""
    counts = Counter(module.part for module in model.modules() if isinstance(module, _PatchedModule))
    has_loss = any(vars(module).get("_loss_function") is causal_loss for module in model.modules())
    return PatchCounts(counts["norms"], counts["gates"], counts["rotary"], has_loss)


class _Plan(NamedTuple):
    """By part, the modules to patch with their new forwards, and the skipped ones as (class name, reason)."""

    matched: dict[str, list[tuple[nn.Module, Any]]]
    skipped: dict[str, list[tuple[str, str]]]


def _make_plan(model: nn.Module, parts: Collection[str], keep_logits: bool, *, masks: bool) -> _Plan:
    names = *parts, "head", "masks"
    plan = _Plan({part: [] for part in names}, {part: [] for part in names})
    matchers = {part: match for part, match in MATCHERS.items() if part in parts or (masks and part == "masks")}
    for module in model.modules():
        forwards = {} if isinstance(module, _PatchedModule) else matchers
        part, match = next(
            ((part, match) for part, matcher in forwards.items() if (match := matcher(module))), ("", None)
        )
        if match is not None and "forward" in vars(module):
            match = "its forward has been replaced on the instance"
        _add_to_plan(plan, part, module, match)
        if "loss" in parts and vars(module).get("_loss_function") is not causal_loss:
            _add_to_plan(plan, "loss", module, loss := match_loss(module))
            if callable(loss) and not keep_logits:
                _add_to_plan(plan, "head", module, match_head(module))
    return plan


def _add_to_plan(plan: _Plan, part: str, module: nn.Module, match: Callable[..., Any] | str | None) -> None:
    if isinstance(match, str):
        plan.skipped[part].append((type(module).__name__, match))
    elif match is not None:
        plan.matched[part].append((module, match))


def _report_unpatched(
    model: nn.Module, found: dict[str, int], skipped: dict[str, list[tuple[str, str]]], *, named: bool
) -> None:
    """Warn about parts and modules that are not patched.

    Raises:
        PatchError: nothing was found, or a part that the caller named was not found.
    """
    lines = {
        part: line for part, count in found.items() if (line := describe_unpatched(model, part, count, skipped[part]))
    }
    missing = [part for part in found if not found[part]]
    if not any(found.values()):
        raise PatchError(f"nothing to patch in {type(model).__name__}: {'; '.join(lines.values())}")
    hint = suggest_parts(found)
    if named and missing:
        raise PatchError("; ".join(lines[part] for part in missing), next=hint)
    for part, line in lines.items():
        advice = hint if part in missing else "these modules are unchanged"
        warnings.warn(f"{line}; {advice}", PatchWarning, stacklevel=3)


def _install(module: nn.Module, part: str, forward: Callable[..., Any]) -> None:
    if part == "loss":
        object.__setattr__(module, "_loss_function", forward)
    else:
        module.__class__ = _make_subclass(type(module), part, forward)


class _PatchedModule:
    """Base of patched modules; `part` is the part that was patched."""

    part = ""


@functools.cache
def _make_subclass(original: type, part: str, forward: Any) -> type:
    namespace = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (_PatchedModule, original), namespace | {"part": part, "forward": forward})
