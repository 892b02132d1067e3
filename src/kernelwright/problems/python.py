"""Candidates in Python: PyTorch, Triton, anything importable.

A file holds `ModelNew`, or a function with the name of the problem or of the file; `file.py:name` selects another. A
candidate without parameters, for a reference that has some, receives them as keyword arguments by their `state_dict`
name with `_` for `.`, and must accept all of them: a result that ignores a weight is wrong for other weights.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, SignatureError
from kernelwright.core.pytree import register_types
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
    """A stateless candidate that receives the reference's parameters as keyword arguments."""

    def __init__(self, problem: Problem, program: Any) -> None:
        super().__init__(problem)
        self._program = (program,)  # a tuple, since a submodule would change the names of the state

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the candidate with the inputs and the parameters."""
        return self._program[0](*args, **kwargs, **self.tensors_by_name())


class PythonLoader:
    """Imports `.py` candidates."""

    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        """Import the file and construct its program; see `SourceLoader.load`."""
        module = import_file(path, CandidateError)
        register_types(vars(module).values())
        target = self._find_candidate(module, path, name, problem)
        program = build_program(target, path, problem, device)
        return Candidate(path.stem + (f":{name}" if name else ""), program, str(path), "python")

    def _find_candidate(self, module: ModuleType, path: Path, name: str, problem: Problem) -> Any:
        if name:
            return get_attribute(module, name, str(path), CandidateError)
        names = ["ModelNew", problem.name, path.stem]
        for one in names:
            if callable(getattr(module, one, None)):
                return getattr(module, one)
        own = defined_callables(module)
        hint = (
            f"rename Model to ModelNew in {path.name}"
            if "Model" in own
            else f"kw ... {path}:{own[0] if own else 'NAME'}"
        )
        message = f"{path} has none of {join_names(dict.fromkeys(names))}; it defines {join_names(own)}"
        raise CandidateError(message, where=str(path), next=hint)


def build_program(target: Any, path: Path, problem: Problem, device: str = "cpu") -> Any:
    """Construct the program from a class or callable, with the reference's parameters copied or passed.

    Raises:
        CandidateError: the constructor raises.
        SignatureError: it has other arguments or parameters than the reference.
    """
    where = str(path)
    if inspect.isclass(target):
        with reraise_as(path, CandidateError, "does not construct"), temporary_seed(MODEL_SEED):
            target = _construct(target, problem, where)
    if not callable(target):
        raise CandidateError(f"{target!r} in {path} is not callable", where=where)
    state = reference_state(problem)
    if isinstance(target, torch.nn.Module) and (target.state_dict() or not state):
        copy_state(problem, target, where)
        names: list[str] = []
    else:
        _check_takes_parameters(target, state, where)
        names = [to_identifier(name) for name in state]
    check_call(target, problem.meta_inputs, where, names)
    if isinstance(target, torch.nn.Module):
        target.to(device)
    return WithReferenceState(problem, target).to(device) if names else target


def _construct(cls: type, problem: Problem, where: str) -> Any:
    signature = get_signature(cls)
    try:
        if signature:
            signature.bind(*problem.init_inputs)
    except TypeError as error:
        init_inputs = join_names(map(repr, problem.init_inputs))
        message = f"{cls.__name__}{signature} is constructed with {init_inputs}: {error}"
        hint = "accept what get_init_inputs() of the problem returns"
        raise SignatureError(message, where=where, next=hint) from error
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
        hint = "define parameters of the same names, or accept them as keyword arguments"
        raise SignatureError(message, where=where, next=hint)


LOADER = PythonLoader()
