"""Who calls the candidate: a child in the sandbox for a file, ourselves for a live object."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from torch.utils import _pytree as pytree

from kernelwright.core.cache import cache_dir, digest
from kernelwright.core.errors import UsageError
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import Window, spread_us
from kernelwright.problems.importing import absolute, split_target
from kernelwright.problems.problem import Args, Candidate, Problem, stem
from kernelwright.sandbox import COMPILED, Cage, Limits, Nursery, TaskError, can_inspect, protections
from kernelwright.verification.execution import Call, Observed, observe
from kernelwright.verification.transport.client import TASKS, Line
from kernelwright.verification.transport.device_memory import can_share
from kernelwright.verification.transport.external_timer import AHEAD_US
from kernelwright.verification.transport.remote_memory import DeviceReach, Reach
from kernelwright.verification.transport.state import State, kinds_of
from kernelwright.verification.transport.tensor_codec import Packed, hold, pack, unpack

PRELOAD = ("torch", "kernelwright.verification.worker.tasks")
EMPTY_CALLS = 12
CALM_US, CALM_ATTEMPTS, CALM_S = 200.0, 8, 2.0
CALM_SHARE = {"cpu": 0.75, "cuda": 0.5}
"""Empty calls of which this share lies further apart are made again: others have what they need just then."""


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
    def load(self, inputs: Args, model: Observed) -> None:
        """Loads the candidate; raises what is wrong with it.

        Args:
            inputs, model: what a call takes and the reference gives, to learn what a call costs besides.
        """
        ...

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        """One observed call; `state` gives parameters and buffers new values for this and later calls.

        Raises:
            LimitError, TaskError, CandidateError: what is wrong with the candidate.
        """
        ...


def sandboxed(problem: Problem, target: str, device: str, limits: Limits, nursery: Nursery | None) -> Runner:
    """A candidate from a file, in a child that loads it beside the problem and never computes the reference."""
    if problem.source is None:
        raise UsageError(
            f"{problem.name} is a live Python object, which cannot go to the sandbox with {target}",
            next="give the problem as a file, or load the candidate and pass it as a callable",
        )
    cls = ByMemory if can_look_inside(device) else ByMessage
    return cls(problem.source, target, device, limits, nursery)


def can_look_inside(device: str) -> bool:
    """Whether the memory of a child that computes on this device can be reached from here."""
    return can_inspect() and (device == "cpu" or can_share())


class ByMessage:
    """A candidate in a child that reports itself what it was given and what it gave."""

    takes_state = True

    def __init__(self, problem: str, target: str, device: str, limits: Limits, nursery: Nursery | None) -> None:
        self.name, self.notes, self.protections = stem(target), (), protections(limits)
        self._problem, self._target, self._device = absolute(problem), absolute(target), device
        self._limits, self._nursery = limits, nursery
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._warm = self._nursery or self._stack.enter_context(Nursery(PRELOAD))
        return self

    def __exit__(self, *fault: Any) -> None:
        self._stack.close()

    def load(self, inputs: Args, model: Observed) -> None:
        self._open()
        self._loaded(self._child.build(f"{TASKS}:load", {"candidate": self._target}))

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        payload = {
            "inputs": pack(pytree.tree_leaves(inputs)),
            "state": {"names": list(state), **pack(list(state.values()))} if state else None,
            "sizes_bytes": sizes_bytes,
            "twice": twice,
        }
        told = self._child.call(f"{TASKS}:run", payload)
        return Observed(
            outline=told["outline"],
            leaves=self._keyed(told["paths"], told["leaves"]),
            devices=told["devices"],
            mutated={at: tensor.detach() for at, tensor in self._keyed(told["mutated"]["at"], told["mutated"]).items()},
            outside=told["outside"],
            state={name: value.detach() for name, value in self._keyed(told["state"]["names"], told["state"]).items()},
            again=told["again"] and self._keyed(told["paths"], told["again"]),
        )

    def _open(self) -> dict[str, Any]:
        """The child with the problem in it, caged."""
        cage = cage_for(self._problem, self._target, self._device)
        compiled = (Path(cage.store), *(cache_dir(kind) for kind in COMPILED))
        self._child = self._stack.enter_context(self._warm.child(self._limits, cage))
        own = (*compiled, Path(self._child.scratch), Path(split_target(self._target)[0]).parent)
        self.own_folders = tuple(str(one.resolve()) for one in own)
        self.protections = self._child.protections
        payload = {"problem": self._problem, "device": self._device, "folder": str(Path.cwd())}
        return self._child.call(f"{TASKS}:open_problem", payload)

    def _loaded(self, told: dict[str, Any]) -> None:
        self.name, self.notes, self.state = told["name"], tuple(told["notes"]), told["state"]

    def _keyed(self, keys: list[Any], packed: Packed) -> dict[Any, Any]:
        return dict(zip(keys, unpack(packed, self._device), strict=True))


class ByMemory(ByMessage):
    """A candidate in a child into which we write what it is given, and out of which we read what it gave, ourselves.

    Attributes:
        line: for calls of which the time matters.
        series: inputs for as many calls in one window, where that is how it is timed.
        ahead_us: as `Watch` has it, where that is how it is timed.
        loading: the task that loads it, and what that takes.
        empty: windows of calls that computed nothing, in the same child before the candidate was in it.
    """

    line: Line
    series: Sequence[Args] = ()
    ahead_us: float = AHEAD_US
    loading: tuple[str, Packed] | None = None
    empty: Sequence[Window] = ()

    def load(self, inputs: Args, model: Observed) -> None:
        after = self._stack.enter_context(contextlib.ExitStack())
        mailbox = self._open()["mailbox"]
        reach = (Reach if self._device == "cpu" else DeviceReach)(self._child)
        after.callback(reach.close)
        self.line = Line(self._child, mailbox, reach, [value.nbytes for value in model.tensors])
        self.line.watch.ahead_us = self.ahead_us
        self.protections = (*self._child.protections, "outputs and clock outside")
        self.empty = self._calmest(self.series or [inputs], model)
        self._loaded(self.line.load(*(self.loading or (f"{TASKS}:load", {"candidate": self._target}))))

    def _calmest(self, inputs: Sequence[Args], model: Observed) -> Sequence[Window]:
        """Windows of empty calls: where others disturb, those of several attempts that lie nearest to each other; of a
        series on the host, which takes long to put together, the first."""

        def spread(windows: Sequence[Window]) -> float:
            return spread_us(windows, CALM_SHARE[self._device])

        start, found = wall_s(), self.line.empty_windows(inputs, model.tensors, EMPTY_CALLS)
        for _ in range(0 if self.series and self._device == "cpu" else CALM_ATTEMPTS):
            if spread(found) <= CALM_US or wall_s() - start > CALM_S:
                break
            found = min(found, self.line.empty_windows(inputs, model.tensors, EMPTY_CALLS), key=spread)
        return found

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        if state:
            self.line.set_state(state)
        observed = self._looked(inputs, sizes_bytes)
        if twice:
            observed.repeat = lambda: self._looked(inputs, sizes_bytes)
        return observed

    def _looked(self, inputs: Args, sizes_bytes: list[int]) -> Observed:
        """A call that is looked at; with gradients from now on where it needs them, like the reference (`golden`)."""
        usual, self.line.sizes_bytes = self.line.sizes_bytes, sizes_bytes
        try:
            answer = self.line.call(inputs, look=True, poison=True)
        except TaskError as fault:
            if self.line.gradients or "grad" not in fault.message:
                raise
            self.line.gradients = True
            answer = self.line.call(inputs, look=True, poison=True)
        finally:
            self.line.sizes_bytes = usual
        assert answer.observed
        return answer.observed


def cage_for(problem: str, target: str, device: str) -> Cage:
    """The folders of a problem and its candidate to read, and a store of the candidate's own for what it compiles."""
    places = [split_target(one)[0] for one in (problem, target)]
    files = [path for place in places if (path := Path(place)).is_file()]
    readable = (*(str(path.parent) for path in files), str(Path.cwd()))
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    return Cage(readable, str(cache_dir("strangers").absolute() / digest(text)[:16]), cuda=device == "cuda")


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

    def load(self, inputs: Args, model: Observed) -> None:
        self.state = kinds_of(self._program)

    def run(self, inputs: Args, state: State | None, sizes_bytes: list[int], *, twice: bool) -> Observed:
        leaves, spec = pytree.tree_flatten(inputs)
        call = Call(hold(leaves), spec, leaves, self._device, sizes_bytes)
        return observe(self._program, call, twice=twice)  # pyright: ignore[reportArgumentType]
