"""Who calls the candidate: a child in the sandbox for a file, ourselves for a live object."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from torch.utils import _pytree as pytree

from kernelwright.core.errors import UsageError
from kernelwright.problems.importing import absolute
from kernelwright.problems.problem import Args, Candidate, Problem, stem
from kernelwright.sandbox import Limits, Nursery, protections
from kernelwright.verify.crossing import Packed, hold, pack, unpack
from kernelwright.verify.execution import Call, Observed, observe
from kernelwright.verify.state import State, kinds_of

PRELOAD = ("torch", "kernelwright.verify.worker")


class Runner(Protocol):
    """Calls a candidate on one set of inputs after the other; used as a context manager."""

    name: str
    notes: tuple[str, ...]
    protections: tuple[str, ...]
    takes_state: bool
    state: dict[str, str]
    """Once it is loaded: the names of what it keeps between calls, and whether each is a parameter or a buffer."""

    def __enter__(self) -> Runner: ...
    def __exit__(self, *fault: Any) -> None: ...
    def load(self) -> None:
        """Loads the candidate; raises what is wrong with it."""
        ...

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        """One observed call; `state` gives parameters and buffers new values for this and later calls.

        Raises:
            LimitError, TaskError, CandidateError: what is wrong with the candidate.
        """
        ...


class Sandboxed:
    """A candidate from a file, in a child that loads it beside the problem and never computes the reference."""

    takes_state = True

    def __init__(self, problem: Problem, target: str, device: str, limits: Limits, nursery: Nursery | None) -> None:
        if problem.source is None:
            raise UsageError(
                f"{problem.name} is a live Python object, which cannot go to the sandbox with {target}",
                next="give the problem as a file, or load the candidate and pass it as a callable",
            )
        self.name, self.notes, self.protections = stem(target), (), protections(limits)
        self._payload = {
            "problem": absolute(problem.source),
            "candidate": absolute(target),
            "device": device,
            "folder": str(Path.cwd()),
        }
        self._device, self._limits, self._nursery = device, limits, nursery
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Sandboxed:
        self._warm = self._nursery or self._stack.enter_context(Nursery(PRELOAD))
        return self

    def __exit__(self, *fault: Any) -> None:
        self._stack.close()

    def load(self) -> None:
        self._child = self._stack.enter_context(self._warm.child(self._limits))
        told = self._child.call("kernelwright.verify.worker:load", self._payload)
        self.name, self.notes, self.state = told["name"], tuple(told["notes"]), told["state"]

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        payload = {
            "inputs": pack(pytree.tree_leaves(inputs)),
            "state": {"names": list(state), **pack(list(state.values()))} if state else None,
            "sizes_bytes": sizes_bytes,
            "twice": twice,
        }
        told = self._child.call("kernelwright.verify.worker:run", payload)
        return Observed(
            outline=told["outline"],
            leaves=self._keyed(told["paths"], told["leaves"]),
            devices=told["devices"],
            mutated={at: tensor.detach() for at, tensor in self._keyed(told["mutated"]["at"], told["mutated"]).items()},
            outside=told["outside"],
            state={name: value.detach() for name, value in self._keyed(told["state"]["names"], told["state"]).items()},
            again=told["again"] and self._keyed(told["paths"], told["again"]),
        )

    def _keyed(self, keys: list[Any], packed: Packed) -> dict[Any, Any]:
        return dict(zip(keys, unpack(packed, self._device), strict=True))


class Live:
    """A callable of this process: trusted not to interfere, and without limits."""

    takes_state = False
    protections: tuple[str, ...] = ("none: live object",)

    def __init__(self, candidate: Candidate | Callable[..., Any], device: str) -> None:
        held = candidate if isinstance(candidate, Candidate) else None
        self._program = held.program if held else candidate
        self.name = held.name if held else getattr(candidate, "__name__", type(candidate).__name__)
        self.notes = held.notes if held else ()
        self._device = device

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *fault: Any) -> None:
        pass

    def load(self) -> None:
        self.state = kinds_of(self._program)

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        leaves, spec = pytree.tree_flatten(inputs)
        call = Call(hold(leaves), spec, leaves, self._device, sizes_bytes)
        return observe(self._program, call, twice=twice)  # pyright: ignore[reportArgumentType]
