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
from kernelwright.measure.clock_agreement import TimedCall, null_spread_us
from kernelwright.problems.importing import absolute_target, split_target
from kernelwright.problems.problem import Args, Candidate, Problem, source_stem
from kernelwright.sandbox import COMPILE_CACHES, ForkServer, Isolation, Limits, TaskError, can_inspect, protections
from kernelwright.verification.execution import CallArguments, ObservedCall, observe
from kernelwright.verification.transport.client import WORKER_MODULE, CandidateClient
from kernelwright.verification.transport.device_memory import supports_ipc
from kernelwright.verification.transport.external_timer import LAUNCH_AHEAD_US
from kernelwright.verification.transport.remote_memory import RemoteDeviceMemory, RemoteMemory
from kernelwright.verification.transport.state import State, named_state_kinds
from kernelwright.verification.transport.tensor_codec import Packed, extract_storages, pack, unpack

PRELOAD_MODULES = ("torch", "kernelwright.verification.worker.tasks")
NUM_NULL_CALLS = 12
NULL_CALL_SPREAD_US, NULL_CALL_ATTEMPTS, NULL_CALL_TIMEOUT_S = 200.0, 8, 2.0
NULL_CALL_QUANTILE = {"cpu": 0.75, "cuda": 0.5}
"""Empty calls of which this share lies further apart are made again: others have what they need just then."""


class Runner(Protocol):
    """Calls a candidate on one set of inputs after the other; used as a context manager."""

    name: str
    notes: tuple[str, ...]
    protections: tuple[str, ...]
    accepts_state: bool
    state_kinds: dict[str, str]
    """Once it is loaded: the names of what it keeps between calls, and whether each is a parameter or a buffer."""

    def __enter__(self) -> Runner: ...
    def __exit__(self, *fault: Any) -> None: ...
    def load(self, inputs: Args, template: ObservedCall) -> None:
        """Loads the candidate; raises what is wrong with it.

        Args:
            inputs, template: what a call takes and the reference gives, to learn what a call costs besides.
        """
        ...

    def run(self, inputs: Args, state: State | None, output_sizes_bytes: list[int], *, twice: bool) -> ObservedCall:
        """One observed call; `state_kinds` gives parameters and buffers new values for this and later calls.

        Raises:
            LimitError, TaskError, CandidateError: what is wrong with the candidate.
        """
        ...


def make_sandboxed_runner(
    problem: Problem, target: str, device: str, limits: Limits, fork_server: ForkServer | None
) -> Runner:
    """A candidate from a file, in a child that loads it beside the problem and never computes the reference."""
    if problem.source is None:
        raise UsageError(
            f"{problem.name} is a live Python object, which cannot go to the sandbox with {target}",
            next="give the problem as a file, or load the candidate and pass it as a callable",
        )
    cls = InspectedRunner if can_inspect_memory(device) else RpcRunner
    return cls(problem.source, target, device, limits, fork_server)


def can_inspect_memory(device: str) -> bool:
    """Whether the memory of a child that computes on this device can be reached from here."""
    return can_inspect() and (device == "cpu" or supports_ipc())


class RpcRunner:
    """A candidate in a child that reports itself what it was given and what it gave."""

    accepts_state = True

    def __init__(self, problem: str, target: str, device: str, limits: Limits, fork_server: ForkServer | None) -> None:
        self.name, self.notes, self.protections = source_stem(target), (), protections(limits)
        self._problem, self._target, self._device = absolute_target(problem), absolute_target(target), device
        self._limits, self._fork_server = limits, fork_server
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._running_server = self._fork_server or self._stack.enter_context(ForkServer(PRELOAD_MODULES))
        return self

    def __exit__(self, *fault: Any) -> None:
        self._stack.close()

    def load(self, inputs: Args, template: ObservedCall) -> None:
        self._open_child()
        self._apply_load_reply(self._child.build(f"{WORKER_MODULE}:load", {"candidate": self._target}))

    def run(self, inputs: Args, state: State | None, output_sizes_bytes: list[int], *, twice: bool) -> ObservedCall:
        payload = {
            "inputs": pack(pytree.tree_leaves(inputs)),
            "state": {"names": list(state), **pack(list(state.values()))} if state else None,
            "sizes_bytes": output_sizes_bytes,
            "twice": twice,
        }
        told = self._child.call(f"{WORKER_MODULE}:run", payload)
        return ObservedCall(
            structure=told["structure"],
            leaves=self._unpack_dict(told["paths"], told["leaves"]),
            devices=told["devices"],
            mutated_inputs={
                at: tensor.detach() for at, tensor in self._unpack_dict(told["mutated"]["at"], told["mutated"]).items()
            },
            out_of_bounds_inputs=told["outside"],
            changed_state={
                name: value.detach() for name, value in self._unpack_dict(told["state"]["names"], told["state"]).items()
            },
            second_leaves=told["again"] and self._unpack_dict(told["paths"], told["again"]),
        )

    def _open_child(self) -> dict[str, Any]:
        """The child with the problem in it, caged."""
        cage = make_isolation(self._problem, self._target, self._device)
        compiled = (Path(cage.cache_dir), *(cache_dir(kind) for kind in COMPILE_CACHES))
        self._child = self._stack.enter_context(self._running_server.fork_child(self._limits, cage))
        own = (*compiled, Path(self._child.scratch_dir), Path(split_target(self._target)[0]).parent)
        self.own_folders = tuple(str(one.resolve()) for one in own)
        self.protections = self._child.protections
        payload = {"problem": self._problem, "device": self._device, "folder": str(Path.cwd())}
        return self._child.call(f"{WORKER_MODULE}:open_problem", payload)

    def _apply_load_reply(self, reply: dict[str, Any]) -> None:
        self.name, self.notes, self.state_kinds = reply["name"], tuple(reply["notes"]), reply["state"]

    def _unpack_dict(self, keys: list[Any], packed: Packed) -> dict[Any, Any]:
        return dict(zip(keys, unpack(packed, self._device), strict=True))


class InspectedRunner(RpcRunner):
    """A candidate in a child into which we write what it is given, and out of which we read what it gave, ourselves.

    Attributes:
        client: for calls of which the time matters.
        input_series: inputs for as many calls in one window, where that is how it is timed.
        launch_ahead_us: as `ExternalTimer` has it, where that is how it is timed.
        load_task: the task that loads it, and what that takes.
        null_calls: windows of calls that computed nothing, in the same child before the candidate was in it.
    """

    client: CandidateClient
    input_series: Sequence[Args] = ()
    launch_ahead_us: float = LAUNCH_AHEAD_US
    load_task: tuple[str, Packed] | None = None
    null_calls: Sequence[TimedCall] = ()

    def load(self, inputs: Args, template: ObservedCall) -> None:
        after = self._stack.enter_context(contextlib.ExitStack())
        mailbox = self._open_child()["mailbox"]
        reach = (RemoteMemory if self._device == "cpu" else RemoteDeviceMemory)(self._child)
        after.callback(reach.close)
        self.client = CandidateClient(self._child, mailbox, reach, [value.nbytes for value in template.tensors])
        self.client.timer.launch_ahead_us = self.launch_ahead_us
        self.protections = (*self._child.protections, "outputs and clock outside")
        self.null_calls = self._time_null_calls(self.input_series or [inputs], template)
        self._apply_load_reply(
            self.client.load(*(self.load_task or (f"{WORKER_MODULE}:load", {"candidate": self._target})))
        )

    def _time_null_calls(self, inputs: Sequence[Args], template: ObservedCall) -> Sequence[TimedCall]:
        """Windows of empty calls: where others disturb, those of several attempts that lie nearest to each other; of a
        series on the host, which takes long to put together, the first."""

        def spread(windows: Sequence[TimedCall]) -> float:
            return null_spread_us(windows, NULL_CALL_QUANTILE[self._device])

        start, found = wall_s(), self.client.time_null_calls(inputs, template.tensors, NUM_NULL_CALLS)
        for _ in range(0 if self.input_series and self._device == "cpu" else NULL_CALL_ATTEMPTS):
            if spread(found) <= NULL_CALL_SPREAD_US or wall_s() - start > NULL_CALL_TIMEOUT_S:
                break
            found = min(found, self.client.time_null_calls(inputs, template.tensors, NUM_NULL_CALLS), key=spread)
        return found

    def run(self, inputs: Args, state: State | None, output_sizes_bytes: list[int], *, twice: bool) -> ObservedCall:
        if state:
            self.client.set_state(state)
        observed = self._call_observed(inputs, output_sizes_bytes)
        if twice:
            observed.repeat_call = lambda: self._call_observed(inputs, output_sizes_bytes)
        return observed

    def _call_observed(self, inputs: Args, output_sizes_bytes: list[int]) -> ObservedCall:
        """A call that is looked at; with gradients from now on where it needs them, like the reference (`golden`)."""
        usual, self.client.output_sizes_bytes = self.client.output_sizes_bytes, output_sizes_bytes
        try:
            answer = self.client.call(inputs, read_outputs=True, poison=True)
        except TaskError as fault:
            if self.client.requires_grad or "grad" not in fault.message:
                raise
            self.client.requires_grad = True
            answer = self.client.call(inputs, read_outputs=True, poison=True)
        finally:
            self.client.output_sizes_bytes = usual
        assert answer.observed
        return answer.observed


def make_isolation(problem: str, target: str, device: str) -> Isolation:
    """The folders of a problem and its candidate to read, and a store of the candidate's own for what it compiles."""
    places = [split_target(one)[0] for one in (problem, target)]
    files = [path for place in places if (path := Path(place)).is_file()]
    readable = (*(str(path.parent) for path in files), str(Path.cwd()))
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    return Isolation(readable, str(cache_dir("strangers").absolute() / digest(text)[:16]), allow_cuda=device == "cuda")


class InProcessRunner:
    """A callable of this process: trusted not to interfere, and without limits."""

    accepts_state = False
    protections: tuple[str, ...] = ("none: live object",)

    def __init__(self, candidate: Candidate | Callable[..., Any], device: str) -> None:
        held = candidate if isinstance(candidate, Candidate) else None
        self._program = held.program if held else candidate
        self.name = held.name if held else getattr(candidate, "__name__", type(candidate).__name__)
        self.notes = held.notes if held else ()
        self._device = device

    def __enter__(self) -> InProcessRunner:
        return self

    def __exit__(self, *fault: Any) -> None:
        pass

    def load(self, inputs: Args, template: ObservedCall) -> None:
        self.state_kinds = named_state_kinds(self._program)

    def run(self, inputs: Args, state: State | None, output_sizes_bytes: list[int], *, twice: bool) -> ObservedCall:
        leaves, spec = pytree.tree_flatten(inputs)
        call = CallArguments(extract_storages(leaves), spec, leaves, self._device, output_sizes_bytes)
        return observe(self._program, call, twice=twice)  # pyright: ignore[reportArgumentType]
