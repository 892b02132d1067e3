"""Candidates in Python: PyTorch, Triton, anything importable.

A file holds `ModelNew`, or a function named like the problem or like the file; `file.py:name` picks one by name.
A candidate without parameters of its own, for a reference that has some, receives them as keyword arguments called by
their `state_dict` name with `_` for `.`, and must take every one of them: a weight that a candidate never reads cannot
be right for other weights.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, SignatureError
from kernelwright.problems.importing import defined_callables, get_attribute, import_file, join_names, reraise_as
from kernelwright.problems.problem import MODEL_SEED, Candidate, Problem, temporary_seed
from kernelwright.problems.signature import check_call, get_signature
from kernelwright.problems.state import (
    ReferenceState,
    State,
    copy_state,
    describe_value,
    reference_state,
    to_identifier,
)


class WithReferenceState(ReferenceState):
    """A stateless candidate that is handed the reference's parameters as keyword arguments."""

    def __init__(self, problem: Problem, program: Any) -> None:
        super().__init__(problem)
        self._program = (program,)  # in a tuple: a module here would add its (no) parameters to the state's names

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._program[0](*args, **kwargs, **self.tensors_by_name())


class PythonLoader:
    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        module = import_file(path, CandidateError)
        found = self._find_candidate(module, path, name, problem)
        program = build_program(found, path, problem, device)
        return Candidate(path.stem + (f":{name}" if name else ""), program, str(path), "python")

    def _find_candidate(self, module: ModuleType, path: Path, name: str, problem: Problem) -> Any:
        if name:
            return get_attribute(module, name, str(path), CandidateError)
        wanted = ["ModelNew", problem.name, path.stem]
        for one in wanted:
            if callable(getattr(module, one, None)):
                return getattr(module, one)
        own = defined_callables(module)
        hint = (
            f"rename Model to ModelNew in {path.name}"
            if "Model" in own
            else f"kw ... {path}:{own[0] if own else 'NAME'}"
        )
        message = f"{path} has none of {join_names(dict.fromkeys(wanted))}; it defines {join_names(own)}"
        raise CandidateError(message, where=str(path), next=hint)


def build_program(found: Any, path: Path, problem: Problem, device: str = "cpu") -> Any:
    """What was found as a program that takes the problem's inputs, with the reference's parameters in place.

    Raises:
        CandidateError: the constructor raises.
        SignatureError: other arguments or parameters than the reference.
    """
    where = str(path)
    if inspect.isclass(found):
        with reraise_as(path, CandidateError, "does not construct"), temporary_seed(MODEL_SEED):
            found = _construct(found, problem, where)
    if not callable(found):
        raise CandidateError(f"{found!r} in {path} cannot be called", where=where)
    state = reference_state(problem)
    if isinstance(found, torch.nn.Module) and (found.state_dict() or not state):
        copy_state(problem, found, where)
        names: list[str] = []
    else:
        _check_takes_parameters(found, state, where)
        names = [to_identifier(name) for name in state]
    check_call(found, problem.meta_inputs, where, names)
    if isinstance(found, torch.nn.Module):
        found.to(device)
    return WithReferenceState(problem, found).to(device) if names else found


def _construct(cls: type, problem: Problem, where: str) -> Any:
    signature = get_signature(cls)
    try:
        if signature:
            signature.bind(*problem.init_inputs)
    except TypeError as fault:
        given = join_names(map(repr, problem.init_inputs))
        message = f"{cls.__name__}{signature} is constructed with {given}: {fault}"
        raise SignatureError(message, where=where, next="take what get_init_inputs() of the problem returns") from fault
    return cls(*problem.init_inputs)


def _check_takes_parameters(program: Any, state: State, where: str) -> None:
    signature = get_signature(program)
    if signature is None or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return
    missing = [
        f"{name} {describe_value(state[name])}" for name in state if to_identifier(name) not in signature.parameters
    ]
    if missing:
        message = f"other parameters than the reference: missing {join_names(missing)}"
        hint = "hold them as parameters of the same names, or take them as keyword arguments"
        raise SignatureError(message, where=where, next=hint)


LOADER = PythonLoader()
