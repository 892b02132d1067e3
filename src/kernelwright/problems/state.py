"""The parameters and buffers of the reference, given to a candidate by name."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.core.errors import SignatureError
from kernelwright.problems.problem import Problem

State = dict[str, torch.Tensor]
STATE_HINT = "parameters and buffers are copied by name: give the candidate the reference's names, shapes and dtypes"


def reference_state(problem: Problem) -> State:
    """The state that a candidate must take over: parameters and persistent buffers by `state_dict` name."""
    if problem.module is None:
        return {}
    return {name: value for name, value in problem.module.state_dict().items() if isinstance(value, torch.Tensor)}


def copy_state(problem: Problem, candidate: torch.nn.Module, where: str) -> None:
    """Copies the reference's parameters and buffers into a candidate, and its training mode.

    Buffers that are not persistent are copied where the candidate has one of that name.

    Raises:
        SignatureError: parameters that are missing, extra, or of another shape or dtype; all of them are listed.
    """
    theirs, ours = reference_state(problem), candidate.state_dict()
    if faults := find_state_differences(theirs, ours):
        raise SignatureError("other parameters than the reference: " + "; ".join(faults), where=where, next=STATE_HINT)
    if problem.module is None:
        return
    known = {**dict(problem.module.named_buffers(remove_duplicate=False)), **theirs}
    own = {
        **dict(candidate.named_buffers(remove_duplicate=False)),
        **dict(candidate.named_parameters(remove_duplicate=False)),
    }
    with torch.no_grad():
        for name, value in known.items():
            if name in own and own[name].shape == value.shape:
                own[name].copy_(value)
    candidate.train(problem.module.training)


def find_state_differences(reference: State, candidate: State) -> list[str]:
    """What is wrong with a candidate's state, one phrase per name; empty when it is the reference's."""
    faults = [f"missing {name} {describe_value(value)}" for name, value in reference.items() if name not in candidate]
    faults += [f"extra {name} {describe_value(value)}" for name, value in candidate.items() if name not in reference]
    for name, value in reference.items():
        if name in candidate and describe_value(candidate[name]) != describe_value(value):
            faults.append(f"{name} is {describe_value(candidate[name])}, must be {describe_value(value)}")
    return faults


def describe_value(value: Any) -> str:
    """`float32[128, 64]`."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def to_identifier(name: str) -> str:
    """A `state_dict` name as one word: `norm.weight` -> `norm_weight`."""
    return name.replace(".", "_")


class ReferenceState(torch.nn.Module):
    """Copies of a reference's parameters under the same names, for a candidate that keeps none of its own.

    It lists them exactly as the reference does, so that whoever changes weights between calls can do so by name.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        parameters = dict(problem.module.named_parameters(remove_duplicate=False)) if problem.module else {}
        for name, value in reference_state(problem).items():
            *path, leaf = name.split(".")
            home: torch.nn.Module = self
            for part in path:
                if part not in home._modules:
                    home.add_module(part, torch.nn.Module())
                home = home.get_submodule(part)
            copied = value.detach().clone()
            if name in parameters:
                home.register_parameter(leaf, torch.nn.Parameter(copied, parameters[name].requires_grad))
            else:
                home.register_buffer(leaf, copied)

    def tensors_by_name(self) -> State:
        """The live values by one-word name."""
        values = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {to_identifier(name): value for name, value in values.items()}
