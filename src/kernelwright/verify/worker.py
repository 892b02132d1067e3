"""The candidate's side of a verification, called in a nursery's child.

It loads the problem, for its parameters and signature, and the candidate. It imports nothing that knows what is
right, never calls the reference, and learns each set of inputs when it has to compute with it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.errors import InternalError, KernelwrightError
from kernelwright.problems.loading import load_candidate, load_problem
from kernelwright.problems.problem import Candidate
from kernelwright.sandbox.faults import is_out_of_memory
from kernelwright.verify.crossing import hold, pack, unpack
from kernelwright.verify.execution import Call, observe
from kernelwright.verify.poison import poison_allocator
from kernelwright.verify.state import kinds_of, state_of


@dataclass
class Loaded:
    """What `load` left for `run`."""

    candidate: Candidate
    spec: pytree.TreeSpec
    leaves: list[Any]
    device: str


_loaded: Loaded | None = None


def ours(task: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """A fault in this file is our own bug, and no reason to reject a candidate."""

    @functools.wraps(task)
    def run(payload: dict[str, Any]) -> Any:
        try:
            return task(payload)
        except Exception as fault:
            if isinstance(fault, KernelwrightError) or is_out_of_memory(fault):
                raise
            raise InternalError(f"{type(fault).__name__} in the candidate's process: {fault}") from fault

    return run


@ours
def load(payload: dict[str, Any]) -> dict[str, Any]:
    """Loads both; `payload`: `problem`, `candidate` (targets), `device`, `folder` (to look for modules in)."""
    global _loaded
    sys.path.insert(0, payload["folder"])
    problem = load_problem(payload["problem"])
    candidate = load_candidate(payload["candidate"], problem, payload["device"])
    leaves, spec = pytree.tree_flatten(problem.example)
    _loaded = Loaded(candidate, spec, leaves, payload["device"])
    poison_allocator()
    return {
        "name": candidate.name,
        "language": candidate.language,
        "notes": list(candidate.notes),
        "state": kinds_of(candidate.program),
        "pid": os.getpid(),
    }


@ours
def run(payload: dict[str, Any]) -> dict[str, Any]:
    """One observed call; `payload`: `inputs` (packed leaves), `state` (packed values with `names`, or None),
    `sizes_bytes`, `twice`."""
    assert _loaded
    if payload["state"]:
        set_state(_loaded.candidate.program, payload["state"]["names"], payload["state"])
    inputs = payload["inputs"]
    if _loaded.device != "cpu":
        inputs = hold(unpack(inputs, _loaded.device))  # crosses to the device once, not for every call
    call = Call(inputs, _loaded.spec, _loaded.leaves, _loaded.device, payload["sizes_bytes"])
    observed = observe(_loaded.candidate.program, call, twice=payload["twice"])
    return {
        "outline": observed.outline,
        "paths": list(observed.leaves),
        "leaves": pack(list(observed.leaves.values())),
        "devices": observed.devices,
        "mutated": {"at": list(observed.mutated), **pack(list(observed.mutated.values()))},
        "outside": observed.outside,
        "state": {"names": list(observed.state), **pack(list(observed.state.values()))},
        "again": None if observed.again is None else pack([observed.again[path] for path in observed.leaves]),
    }


def set_state(program: Any, names: list[str], packed: dict[str, Any]) -> None:
    """Copies values into the candidate's parameters and buffers of these names."""
    known = state_of(program)
    with torch.no_grad():
        for name, value in zip(names, unpack(packed, "cpu"), strict=True):
            if name in known:
                known[name].copy_(value)
