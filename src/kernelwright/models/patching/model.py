"""Patch existing models: Hugging Face's Llama, Gemma, Qwen, and others with the same modules.

A module is patched only if its own forward matches the formula on random inputs, so a class that computes something
else under the same name is skipped. A patched module becomes an instance of a subclass with another forward; copies,
replicas and unpatching need nothing else.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, TypeVar

from torch import nn

from kernelwright.models.patching.attention import match_attention
from kernelwright.models.patching.comparison import PatchCheck
from kernelwright.models.patching.forwards import match_gated_mlp, match_norm
from kernelwright.models.patching.head import match_head
from kernelwright.models.patching.loss import causal_loss, match_loss
from kernelwright.models.patching.masks import match_mask
from kernelwright.models.patching.projections import match_projections
from kernelwright.models.patching.report import (
    OPTIONAL_PARTS,
    PatchCounts,
    PatchError,
    PatchWarning,
    describe_stored_logits,
    describe_unpatched,
    suggest_parts,
    validate_parts,
)
from kernelwright.models.patching.residuals import match_residuals
from kernelwright.models.patching.rotation import match_rotary
from kernelwright.models.patching.subclasses import (
    PatchedModule,
    install,
    patched_parts,
    replace_attributes,
    unpatched_class,
)

Model = TypeVar("Model", bound=nn.Module)
MATCHERS = {"norms": match_norm, "gates": match_gated_mlp, "rotary": match_rotary, "masks": match_mask}
"""Parts of which a module has at most one."""
OPTIONAL_MATCHERS = {"attention": match_attention, "projections": match_projections, "residuals": match_residuals}
"""Parts that a module may have in addition."""


def patch(
    model: Model, *, parts: Collection[str] | None = None, keep_logits: bool = False, check: bool = False
) -> Model:
    """Replace RMSNorm, SwiGLU or GeGLU, rotary embedding and the causal loss in a model, in place, and make the
    attention, projections and residual sums of a training step faster.

    In training (`model.training`), a call with labels computes the loss together with the last linear layer, in chunks
    of rows, and returns no logits (None): all logits are the largest tensor of a training step. In evaluation mode,
    and without labels, logits are returned as before.
    "attention" runs `scaled_dot_product_attention` in training mode on the backend of torch that is fastest for the
    shapes, measured at the first call with them, if its results agree; deterministic mode, masks and dropout keep
    torch's own. "projections" adds the input gradients of q_proj, k_proj and v_proj, and of gate_proj and up_proj, in
    their matrix products. "residuals" adds within the norms of a decoder layer. All three have no effect under
    torch.compile, and are skipped for modules with hooks or other classes; "projections" also under autocast.
    Warns about parts that were not found, about modules that match a part but were skipped, and if the loss cannot be
    computed without logits.

    Args:
        model: a Hugging Face nn.Module; `unpatch` reverts it. A module whose forward was replaced on the instance is
            skipped. Save a patched model by its state_dict; it cannot be pickled.
        parts: some of "norms", "gates", "rotary", "loss", "attention", "projections" and "residuals": only these are
            patched, and each must be found. None: all that are found, without a warning about the last three; also
            omits causal masks under torch.compile where attention does not need them.
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
        PatchError: the class of a module was changed after `patch`, as by `fully_shard`.
    """
    originals = [(module, unpatched_class(module)) for module in model.modules()]
    for module, original in originals:
        if original is not type(module):
            module.__class__ = original
        if vars(module).get("_loss_function") is causal_loss:
            object.__delattr__(module, "_loss_function")
    return model


def count_patched(model: nn.Module) -> PatchCounts:
    """How many modules of each part run our kernels."""
    counts = Counter(part for module in model.modules() for part in patched_parts(module))
    has_loss = any(vars(module).get("_loss_function") is causal_loss for module in model.modules())
    return PatchCounts(loss=has_loss, **{part: counts[part] for part in PatchCounts._fields if part != "loss"})


class _Plan(NamedTuple):
    """By part, the modules to patch with their new forwards, and the skipped ones as (class name, reason)."""

    matched: dict[str, list[tuple[nn.Module, Any]]]
    skipped: dict[str, list[tuple[str, str]]]


def _make_plan(model: nn.Module, parts: Collection[str], keep_logits: bool, *, masks: bool) -> _Plan:
    names = *parts, "head", "masks"
    plan = _Plan({part: [] for part in names}, {part: [] for part in names})
    for module in model.modules():
        done = patched_parts(module)
        wanted = {*parts, *(("masks",) if masks else ())} - done
        for part, match in _match_parts(module, wanted):
            if match is not None and "forward" in vars(module):
                match = "its forward has been replaced on the instance"
            _add_to_plan(plan, part, module, match)
        if "loss" in parts and vars(module).get("_loss_function") is not causal_loss:
            _add_to_plan(plan, "loss", module, loss := match_loss(module))
            if callable(loss) and not keep_logits:
                _add_to_plan(plan, "head", module, match_head(module))
    return plan


def _match_parts(module: nn.Module, wanted: set[str]) -> Iterator[tuple[str, Callable[..., Any] | str]]:
    """The wanted parts that match a module, each with its forward, the function that wraps it, or the reason if it is
    to be skipped."""
    if isinstance(module, PatchedModule):
        module = replace_attributes(module, {}, unpatched_class(module))
    for matchers, limit in ((MATCHERS, 1), (OPTIONAL_MATCHERS, None)):
        matches = ((part, matcher(module)) for part, matcher in matchers.items() if part in wanted)
        yield from itertools.islice(((part, match) for part, match in matches if match is not None), limit)


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
    reported = [part for part in found if named or part not in OPTIONAL_PARTS]
    lines = {part: line for part in reported if (line := describe_unpatched(model, part, found[part], skipped[part]))}
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
        install(module, part, forward)
