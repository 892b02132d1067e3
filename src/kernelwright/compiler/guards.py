"""Generated guards: kernels run only for the verified tensor layouts, other arguments and train/eval modes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Sequence, Set
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.forward_codegen import ForwardCodegen
from kernelwright.compiler.regions.contraction import AnyRegion, ContractionRegion, Windows
from kernelwright.problems import Problem
from kernelwright.verification.outcome import WIDENED, operand_precision

GUARD_TEMPLATE = '''
def inputs_match(*tensors) -> bool:
    """Whether the kernels were verified for such tensors{reservation}."""
    if {missing_kernels_check}torch.compiler.is_compiling() or is_intercepted():
        return False
    grad_enabled = torch.is_grad_enabled()
    if grad_enabled in FAST_CHECKS and FAST_CHECKS[grad_enabled](*tensors):
        return True
    if torch.is_autocast_enabled("{device}") or is_transformed():
        return False
    for tensor, (dtype, shape, strides, trainable) in zip(tensors, VERIFIED_INPUTS, strict=True):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.dtype is not dtype:
            return False
        if not tensor.is_{device} or tensor.layout is not torch.strided or is_unmaterialized(tensor):
            return False
        if tensor.shape != shape or tensor.stride() != strides:
            return False
        if grad_enabled and tensor.requires_grad and not trainable:
            return False
    if tensors and grad_enabled not in FAST_CHECKS:
        FAST_CHECKS[grad_enabled] = make_fast_check(tensors)
    return True


FAST_CHECKS = {{}}
"""By whether gradients are enabled: a fast check for tensors with the properties of some that matched."""


def make_fast_check(tensors):
    """The tensor guard of torch's compiler, which takes a tenth of the time; always false where torch lacks it.
    It also checks torch's dispatch state: under autocast or a transform no tensor passes."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        shapes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return lambda *others: False


def is_unmaterialized(tensor) -> bool:
    """Whether a tensor's memory does not hold its values: negated, zero or functional tensors."""
    return tensor.is_neg() or tensor._is_zerotensor() or torch._is_functional_tensor(tensor)
'''
DISPATCH_CHECKS = '''
def is_intercepted() -> bool:
    """Whether a dispatch mode or forward-mode AD intercepts operators."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch.autograd.forward_ad._current_level >= 0


def is_transformed() -> bool:
    """Whether the call is traced or transformed by torch."""
    return bool(
        torch._C._get_tracing_state()
        or torch._C._functorch.peek_interpreter_stack()
        or torch._C._dispatch_tls_is_dispatch_key_included("PreDispatch")
    )
'''
"""Definitions that guards of tensors and of Dynamo graphs share."""


def emit_guard(
    forward: ForwardCodegen, device: str, trainable: Set[fx.Node], has_gradients: bool, missing_kernels_check: str
) -> str:
    """Generate `VERIFIED_INPUTS` and the functions that check tensors against it.

    Args:
        trainable: the nodes that require a gradient at capture.
        missing_kernels_check: `... or ` for a file whose kernels may not have compiled, else empty.
    """
    reservation = "" if has_gradients else "; they do not compute gradients"
    guard = GUARD_TEMPLATE.format(device=device, reservation=reservation, missing_kernels_check=missing_kernels_check)
    return f"{_emit_layout_table(forward, trainable)}\n{guard}\n{DISPATCH_CHECKS}"


def _emit_layout_table(forward: ForwardCodegen, trainable: Set[fx.Node]) -> str:
    rows = [_layout_row(node.meta["val"], node in trainable) for node in forward.inputs("self").values()]
    return "VERIFIED_INPUTS = (\n" + "".join(f"    {row},\n" for row in rows) + ")\n"


def _layout_row(tensor: torch.Tensor, trainable: bool) -> str:
    return f"({tensor.dtype}, {tuple(map(int, tensor.shape))}, {tuple(map(int, tensor.stride()))}, {trainable})"


def emit_mode_check(training: tuple[bool, ...]) -> str:
    """Generate the check that every module is in train or eval mode as at capture."""
    if len(training) == 1:
        return "self.training" if training[0] else "not self.training"
    if any(training) and not all(training):
        return f"tuple(module.training for module in self.modules()) == {training}"
    return f"{'all' if training[0] else 'not any'}(module.training for module in self.modules())"


def emit_precision_checks(regions: Iterable[AnyRegion]) -> list[str]:
    """Generate the checks that torch still permits TF32 where contractions were planned with it and torch permits it
    now, so that it was not the user who did."""
    if operand_precision() in WIDENED:
        return []
    contractions = [one.contraction for one in regions if isinstance(one, ContractionRegion) and one.contraction.tf32]
    owners = {"cudnn.conv" if isinstance(one.right, Windows) else "cuda.matmul" for one in contractions}
    permitted = [owner for owner in sorted(owners) if attrgetter(owner)(torch.backends).fp32_precision == "tf32"]
    return [f'torch.backends.{owner}.fp32_precision == "tf32"' for owner in permitted]


def emit_no_alias_check(tensors: Sequence[str]) -> str:
    """Generate the check that no two tensors share storage, so that a write to one cannot change another."""
    pointers = ", ".join(f"{tensor}.untyped_storage().data_ptr()" for tensor in tensors)
    return f"len({{{pointers}}}) == {len(tensors)}"


def emit_argument_checks(
    problem: Problem, captured: CapturedProgram, signature: inspect.Signature
) -> tuple[list[str], list[str]]:
    """Generate the checks of a call's arguments.

    Returns:
        Lines that assign nested tensors to the graph's names, and conditions on all other arguments.
    """
    args, kwargs = problem.meta_inputs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    leaves = pytree.tree_leaves((bound.args, bound.kwargs))
    nodes = {int(source.name): node for node, source in captured.sources.items() if source.kind == "argument"}
    node_of = {id(leaf): nodes.get(index) for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    lines: list[str] = []
    conditions: list[str] = []
    for name, value in bound.arguments.items():
        conditions += _structure_checks(name, value)
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            text, node = name + pytree.keystr(path), node_of.get(id(leaf))
            if not isinstance(leaf, torch.Tensor):
                conditions.append(_equality_check(text, leaf))
            elif node is not None and node.users and node.name != text:
                lines.append(f"{node.name} = {text}")
    return lines, conditions


def _structure_checks(text: str, value: Any) -> list[str]:
    """Conditions on the lengths, keys and types of nested containers."""
    if isinstance(value, dict):
        inside = [one for key, member in value.items() for one in _structure_checks(f"{text}[{key!r}]", member)]
        return [f"list({text}) == {list(value)!r}", *inside]
    if isinstance(value, (list, tuple)):
        inside = [one for index, member in enumerate(value) for one in _structure_checks(f"{text}[{index}]", member)]
        return [f"len({text}) == {len(value)}", *inside]
    if dataclasses.is_dataclass(value) and not pytree.tree_structure(value).is_leaf():
        members = {f"{text}.{one.name}": getattr(value, one.name) for one in dataclasses.fields(value) if one.init}
        none = [f"{name} is None" for name, member in members.items() if member is None]  # no leaf of the tree
        inside = [one for name, member in members.items() for one in _structure_checks(name, member)]
        return [f"type({text}).__name__ == {type(value).__name__!r}", *none, *inside]
    return []


def _equality_check(text: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"{text} is {value}"
    literal = repr(value)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        literal = f'float("{value}")'
    return f"type({text}) is {type(value).__name__} and {text} == {literal}"
