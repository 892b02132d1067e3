"""The library's kernels in a model that exists already: Hugging Face's Llama, Gemma and Qwen, and others like them.

A module is taken for what it is named only after its own forward has done on random numbers what the formula does, so
a class that computes something else under the same name is left as it is. A patched module is one of a subclass with
another forward: copies, replicas and unpatching need nothing else.
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
from kernelwright.models.patching.loss import causal_loss, match_loss
from kernelwright.models.patching.report import (
    PatchCounts,
    PatchError,
    PatchWarning,
    describe_unpatched,
    suggest_parts,
    validate_parts,
)
from kernelwright.models.patching.rotation import match_rotary

Model = TypeVar("Model", bound=nn.Module)
MATCHERS = {"norms": match_norm, "gates": match_gated_mlp, "rotary": match_rotary}


def patch(model: Model, *, parts: Collection[str] | None = None, check: bool = False) -> Model:
    """Puts RMSNorm, SwiGLU or GeGLU, rotary embedding and the loss of a causal model in place, in the model itself.

    Warns of every part that was not found, and of modules that look like a part and were left as they are.

    Args:
        model: an nn.Module of Hugging Face's; `unpatch` takes everything out again. A module whose forward has been
            replaced on the instance is left as it is. A patched model is saved by its state_dict, not pickled.
        parts: some of "norms", "gates", "rotary" and "loss": only these are patched, and each has to be there. None:
            all that are there.
        check: the patched model's logits, loss and gradient on random tokens are compared with the original's before,
            against a copy in FP32 (of FP32, in FP64). Needs memory for that copy and three gradients.
    Returns:
        The model; `count_patched` says how much of it runs our kernels.
    Raises:
        PatchError: nothing to patch, a part of `parts` not found, or the patched model is further from the copy than
            the original was. The model is as it was.
        DeviceError: with `check`, the model is not on a CUDA device.
    """
    wanted = validate_parts(parts)
    plan, before = _make_plan(model, wanted), count_patched(model)
    found = {part: getattr(before, part) + len(plan.matched[part]) for part in wanted}
    _report_unpatched(model, found, plan.skipped, named=parts is not None)
    trial = PatchCheck(model) if check and not any(before) else None
    for part in wanted:
        for module, new in plan.matched[part]:
            _install(module, part, new)
    if trial:
        try:
            trial.compare(model)
        except BaseException:
            unpatch(model)
            raise
    return model


def unpatch(model: Model) -> Model:
    """Takes everything out that `patch` put in; nothing where nothing was."""
    for module in model.modules():
        if isinstance(module, _PatchedModule):
            module.__class__ = type(module).__bases__[1]
        if vars(module).get("_loss_function") is causal_loss:
            object.__delattr__(module, "_loss_function")
    return model


def count_patched(model: nn.Module) -> PatchCounts:
    """What of a model runs our kernels."""
    ours = Counter(module.part for module in model.modules() if isinstance(module, _PatchedModule))
    loss = any(vars(module).get("_loss_function") is causal_loss for module in model.modules())
    return PatchCounts(ours["norms"], ours["gates"], ours["rotary"], loss)


class _Plan(NamedTuple):
    """By part, the modules to patch with what each gets, and of those left as they are the class and the reason."""

    matched: dict[str, list[tuple[nn.Module, Any]]]
    skipped: dict[str, list[tuple[str, str]]]


def _make_plan(model: nn.Module, parts: Collection[str]) -> _Plan:
    plan = _Plan({part: [] for part in parts}, {part: [] for part in parts})
    for module in model.modules():
        forwards = (
            {} if isinstance(module, _PatchedModule) else {part: MATCHERS[part] for part in parts if part in MATCHERS}
        )
        part, new = next(((part, new) for part, look in forwards.items() if (new := look(module))), ("", None))
        if new is not None and "forward" in vars(module):
            new = "its forward has been replaced on the instance"
        _add_to_plan(plan, part, module, new)
        if "loss" in parts and vars(module).get("_loss_function") is not causal_loss:
            _add_to_plan(plan, "loss", module, match_loss(module))
    return plan


def _add_to_plan(plan: _Plan, part: str, module: nn.Module, new: Callable[..., Any] | str | None) -> None:
    if isinstance(new, str):
        plan.skipped[part].append((type(module).__name__, new))
    elif new is not None:
        plan.matched[part].append((module, new))


def _report_unpatched(
    model: nn.Module, found: dict[str, int], skipped: dict[str, list[tuple[str, str]]], *, named: bool
) -> None:
    """
    Raises:
        PatchError: nothing was found, or nothing of a part that the caller has named.
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
        advice = hint if part in missing else "these modules run as they did"
        warnings.warn(f"{line}; {advice}", PatchWarning, stacklevel=3)


def _install(module: nn.Module, part: str, new: Callable[..., Any]) -> None:
    if part == "loss":
        object.__setattr__(module, "_loss_function", new)
    else:
        module.__class__ = _make_subclass(type(module), part, new)


class _PatchedModule:
    """A module with another forward; `part` says which part it is."""

    part = ""


@functools.cache
def _make_subclass(original: type, part: str, forward: Any) -> type:
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (_PatchedModule, original), names | {"part": part, "forward": forward})
