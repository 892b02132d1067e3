"""What an optimised file was proved for, as text: tensors of one layout, the same other arguments, the same mode."""

from __future__ import annotations

import inspect
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.forward_codegen import ForwardCodegen
from kernelwright.problems import Problem

GUARD_TEMPLATE = '''
def as_proved(*tensors) -> bool:
    """Whether the kernels were proved for such tensors{reservation}."""
    if {refusal}torch.compiler.is_compiling() or followed():
        return False
    recording = torch.is_grad_enabled()
    if recording in LIKE and LIKE[recording](*tensors):
        return True
    if torch.is_autocast_enabled("{device}") or transformed():
        return False
    for tensor, (dtype, shape, strides, trained) in zip(tensors, PROVED, strict=True):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.dtype is not dtype:
            return False
        if not tensor.is_{device} or tensor.layout is not torch.strided or changed(tensor):
            return False
        if tensor.shape != shape or tensor.stride() != strides:
            return False
        if recording and tensor.requires_grad and not trained:
            return False
    if tensors and recording not in LIKE:
        LIKE[recording] = like_these(tensors)
    return True


LIKE = {{}}
"""By whether gradients are recorded: what tells at once that tensors are like some that were found to be as proved."""


def like_these(tensors):
    """The check of torch's compiler for tensors like these, which takes a tenth of the time; none if it has another.
    It holds for the state of torch that it was made in: with autocast, or transformed, no tensor is like them."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        shapes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return lambda *others: False


def followed() -> bool:
    """Whether torch wants to see every operator, or computes gradients forward."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch.autograd.forward_ad._current_level >= 0


def transformed() -> bool:
    """Whether torch traces or transforms what is called."""
    return bool(
        torch._C._get_tracing_state()
        or torch._C._functorch.peek_interpreter_stack()
        or torch._C._dispatch_tls_is_dispatch_key_included("PreDispatch")
    )


def changed(tensor) -> bool:
    """Whether its memory does not hold its values as they are."""
    return tensor.is_neg() or tensor._is_zerotensor() or torch._is_functional_tensor(tensor)
'''
GUARD_NAMES = frozenset(("PROVED", "LIKE", "as_proved", "like_these", "followed", "transformed", "changed"))
"""What it defines."""


def emit_guard(
    forward: ForwardCodegen, device: str, trainable: Set[fx.Node], has_gradients: bool, missing_kernels_check: str
) -> str:
    """`PROVED` and the functions that hold tensors against it.

    Args:
        trainable: the nodes that asked for a gradient when it was proved.
        missing_kernels_check: how the file says that its kernels did not compile.
    """
    reservation = "" if has_gradients else "; nothing here computes gradients"
    guard = GUARD_TEMPLATE.format(device=device, reservation=reservation, refusal=missing_kernels_check)
    return f"{_emit_layout_table(forward, trainable)}\n{guard}"


def _emit_layout_table(forward: ForwardCodegen, asking: Set[fx.Node]) -> str:
    rows = [_layout_row(node.meta["val"], node in asking) for node in forward.inputs("self").values()]
    return "PROVED = (\n" + "".join(f"    {row},\n" for row in rows) + ")\n"


def _layout_row(tensor: torch.Tensor, trained: bool) -> str:
    return f"({tensor.dtype}, {tuple(map(int, tensor.shape))}, {tuple(map(int, tensor.stride()))}, {trained})"


def emit_mode_check(training: tuple[bool, ...]) -> str:
    """Whether every module is in the mode that it was proved in."""
    if len(training) == 1:
        return "self.training" if training[0] else "not self.training"
    if any(training) and not all(training):
        return f"tuple(part.training for part in self.modules()) == {training}"
    return f"{'all' if training[0] else 'not any'}(part.training for part in self.modules())"


def emit_no_alias_check(tensors: Sequence[str]) -> str:
    """Whether no two tensors share memory: what is written into one must not be seen in another."""
    places = ", ".join(f"{tensor}.untyped_storage().data_ptr()" for tensor in tensors)
    return f"len({{{places}}}) == {len(tensors)}"


def emit_argument_checks(
    problem: Problem, captured: CapturedProgram, signature: inspect.Signature
) -> tuple[list[str], list[str]]:
    """Lines that name the tensors among the arguments, and conditions on everything else."""
    args, kwargs = problem.meta_inputs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    leaves = pytree.tree_leaves((bound.args, bound.kwargs))
    nodes = {int(source.name): node for node, source in captured.sources.items() if source.kind == "argument"}
    node_of = {id(leaf): nodes.get(place) for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
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
    """Conditions that hold for containers with as many members, under the same keys."""
    if isinstance(value, dict):
        inside = [one for key, member in value.items() for one in _structure_checks(f"{text}[{key!r}]", member)]
        return [f"list({text}) == {list(value)!r}", *inside]
    if isinstance(value, (list, tuple)):
        inside = [one for at, member in enumerate(value) for one in _structure_checks(f"{text}[{at}]", member)]
        return [f"len({text}) == {len(value)}", *inside]
    return []


def _equality_check(text: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"{text} is {value}"
    literal = repr(value)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        literal = f'float("{value}")'
    return f"type({text}) is {type(value).__name__} and {text} == {literal}"
