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

from kernelwright.models.patching.comparison import Comparison
from kernelwright.models.patching.forwards import gate_forward, norm_forward
from kernelwright.models.patching.loss import causal_loss, loss_of
from kernelwright.models.patching.report import (
    Patched,
    PatchError,
    PatchWarning,
    how_to_do_without,
    not_patched,
    requested,
)
from kernelwright.models.patching.rotation import rotary_forward

Model = TypeVar("Model", bound=nn.Module)
FORWARDS = {"norms": norm_forward, "gates": gate_forward, "rotary": rotary_forward}


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
        The model; `patched` says how much of it runs our kernels.
    Raises:
        PatchError: nothing to patch, a part of `parts` not found, or the patched model is further from the copy than
            the original was. The model is as it was.
        DeviceError: with `check`, the model is not on a CUDA device.
    """
    wanted = requested(parts)
    plan, before = _plan(model, wanted), patched(model)
    found = {part: getattr(before, part) + len(plan.found[part]) for part in wanted}
    _report(model, found, plan.left, named=parts is not None)
    trial = Comparison(model) if check and not any(before) else None
    for part in wanted:
        for module, new in plan.found[part]:
            _replace(module, part, new)
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
        if isinstance(module, _Ours):
            module.__class__ = type(module).__bases__[1]
        if vars(module).get("_loss_function") is causal_loss:
            object.__delattr__(module, "_loss_function")
    return model


def patched(model: nn.Module) -> Patched:
    """What of a model runs our kernels."""
    ours = Counter(module.runs for module in model.modules() if isinstance(module, _Ours))
    loss = any(vars(module).get("_loss_function") is causal_loss for module in model.modules())
    return Patched(ours["norms"], ours["gates"], ours["rotary"], loss)


class _Plan(NamedTuple):
    """By part, the modules to patch with what each gets, and of those left as they are the class and the reason."""

    found: dict[str, list[tuple[nn.Module, Any]]]
    left: dict[str, list[tuple[str, str]]]


def _plan(model: nn.Module, parts: Collection[str]) -> _Plan:
    plan = _Plan({part: [] for part in parts}, {part: [] for part in parts})
    for module in model.modules():
        forwards = {} if isinstance(module, _Ours) else {part: FORWARDS[part] for part in parts if part in FORWARDS}
        part, new = next(((part, new) for part, look in forwards.items() if (new := look(module))), ("", None))
        if new is not None and "forward" in vars(module):
            new = "its forward has been replaced on the instance"
        _add(plan, part, module, new)
        if "loss" in parts and vars(module).get("_loss_function") is not causal_loss:
            _add(plan, "loss", module, loss_of(module))
    return plan


def _add(plan: _Plan, part: str, module: nn.Module, new: Callable[..., Any] | str | None) -> None:
    if isinstance(new, str):
        plan.left[part].append((type(module).__name__, new))
    elif new is not None:
        plan.found[part].append((module, new))


def _report(model: nn.Module, found: dict[str, int], left: dict[str, list[tuple[str, str]]], *, named: bool) -> None:
    """
    Raises:
        PatchError: nothing was found, or nothing of a part that the caller has named.
    """
    lines = {part: line for part, count in found.items() if (line := not_patched(model, part, count, left[part]))}
    missing = [part for part in found if not found[part]]
    if not any(found.values()):
        raise PatchError(f"nothing to patch in {type(model).__name__}: {'; '.join(lines.values())}")
    hint = how_to_do_without(found)
    if named and missing:
        raise PatchError("; ".join(lines[part] for part in missing), next=hint)
    for part, line in lines.items():
        advice = hint if part in missing else "these modules run as they did"
        warnings.warn(f"{line}; {advice}", PatchWarning, stacklevel=3)


def _replace(module: nn.Module, part: str, new: Callable[..., Any]) -> None:
    if part == "loss":
        object.__setattr__(module, "_loss_function", new)
    else:
        module.__class__ = _subclass(type(module), part, new)


class _Ours:
    """A module with another forward; `runs` says which part it is."""

    runs = ""


@functools.cache
def _subclass(original: type, runs: str, forward: Any) -> type:
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (_Ours, original), names | {"runs": runs, "forward": forward})
