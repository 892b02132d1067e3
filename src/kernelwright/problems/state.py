"""Parameters and buffers of the reference, and their transfer to a candidate by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from kernelwright.core.errors import SignatureError
from kernelwright.problems.problem import Problem

State = dict[str, torch.Tensor]
STATE_HINT = "parameters and buffers are copied by name: use the reference's names, shapes and dtypes"


def reference_state(problem: Problem) -> State:
    """The state that a candidate must share: parameters and persistent buffers by `state_dict` name."""
    if problem.module is None:
        return {}
    return {name: value for name, value in problem.module.state_dict().items() if isinstance(value, torch.Tensor)}


def copy_state(problem: Problem, candidate: torch.nn.Module, where: str) -> None:
    """Copy the reference's parameters, buffers and training mode to a candidate.

    Non-persistent buffers are copied if the candidate has one of the same name.

    Raises:
        SignatureError: lists all parameters that are missing, extra, or of another shape or dtype.
    """
    reference = reference_state(problem)
    materialize_lazy_state(candidate, reference)
    own_state = candidate.state_dict()
    if errors := find_state_differences(reference, own_state):
        raise SignatureError("other parameters than the reference: " + "; ".join(errors), where=where, next=STATE_HINT)
    if problem.module is None:
        return
    values = {**dict(problem.module.named_buffers(remove_duplicate=False)), **reference}
    own = {
        **dict(candidate.named_buffers(remove_duplicate=False)),
        **dict(candidate.named_parameters(remove_duplicate=False)),
    }
    with torch.no_grad():
        for name, value in values.items():
            if name in own and own[name].shape == value.shape:
                own[name].copy_(value)
    candidate.train(problem.module.training)


def materialize_lazy_state(module: torch.nn.Module, state: State) -> None:
    """Allocate the parameters and buffers of lazy modules in the shapes that they have in `state`."""
    lazy = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, value in lazy.items():
        if is_lazy(value) and name in state and not is_lazy(state[name]):
            value.materialize(state[name].shape)


@contextlib.contextmanager
def replaced_values(
    module: torch.nn.Module | None, change: Callable[[torch.Tensor], torch.Tensor], *, buffers: bool = True
) -> Iterator[None]:
    """Give the parameters, and the buffers too, of a module other values, `change(value)`, within a block.

    The tensor objects stay the same, so that closures, hooks and tied weights see the other values too; a copy of the
    module would leave them behind. Attributes that the program sets within the block, such as a hidden state, are set
    back.
    """
    tensors = [*module.parameters(), *(module.buffers() if buffers else ())] if module else []
    saved = [(tensor, tensor.data) for tensor in {id(one): one for one in tensors}.values()]
    attributes = [(vars(one), dict(vars(one))) for one in module.modules()] if module else []
    try:
        for tensor, value in saved:
            tensor.data = change(value)
        yield
    finally:
        for now, before in attributes:
            now.clear()
            now.update(before)
        for tensor, value in saved:
            tensor.data = value


def find_state_differences(reference: State, candidate: State) -> list[str]:
    """Differences of a candidate's state from the reference's, one phrase per name; empty if there are none."""
    errors = [f"missing {name} {describe_value(value)}" for name, value in reference.items() if name not in candidate]
    errors += [f"extra {name} {describe_value(value)}" for name, value in candidate.items() if name not in reference]
    for name, value in reference.items():
        if name in candidate and describe_value(candidate[name]) != describe_value(value):
            errors.append(f"{name} is {describe_value(candidate[name])}, must be {describe_value(value)}")
    return errors


def describe_value(value: Any) -> str:
    """Dtype and shape of a tensor, `float32[128, 64]`, or the type of any other value."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def to_identifier(name: str) -> str:
    """A `state_dict` name as an identifier: `norm.weight` -> `norm_weight`."""
    return name.replace(".", "_")


class ReferenceState(torch.nn.Module):
    """Copies of a reference's parameters under the same names, for a candidate without parameters.

    Their order and names are those of the reference, so that a caller can change weights by name between calls.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        parameters = dict(problem.module.named_parameters(remove_duplicate=False)) if problem.module else {}
        for name, value in reference_state(problem).items():
            *path, leaf = name.split(".")
            parent: torch.nn.Module = self
            for part in path:
                if part not in parent._modules:
                    parent.add_module(part, torch.nn.Module())
                parent = parent.get_submodule(part)
            copied = value.detach().clone()
            if name in parameters:
                parent.register_parameter(leaf, torch.nn.Parameter(copied, parameters[name].requires_grad))
            else:
                parent.register_buffer(leaf, copied)

    def tensors_by_name(self) -> State:
        """The current parameters and buffers by identifier."""
        values = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {to_identifier(name): value for name, value in values.items()}
