"""Runners call the candidate: in a sandboxed child for a file, in this process for a callable."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from torch.utils import _pytree as pytree

from kernelwright.core.cache import cache_dir, digest
from kernelwright.core.errors import NotFoundError, SetupError, UsageError
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import TimedCall, null_spread_us
from kernelwright.problems.importing import absolute_target, split_target
from kernelwright.problems.problem import Args, Candidate, Problem, source_stem
from kernelwright.sandbox import COMPILE_CACHES, ForkServer, Isolation, Limits, TaskError, can_inspect, protections
from kernelwright.verification.execution import CallArguments, ObservedCall, observe
from kernelwright.verification.transport.call_chain import ChainedLeaf, compiled_library
from kernelwright.verification.transport.call_report import candidate_at_fault
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
"""Null calls whose spread at this quantile exceeds `NULL_CALL_SPREAD_US` are repeated: other processes interfered."""

POISON_SHARE = 0.5
"""Share of the calls that are made once in which new memory reads as NaN."""


class Runner(Protocol):
    """Calls a candidate on consecutive input sets; used as a context manager."""

    name: str
    notes: tuple[str, ...]
    protections: tuple[str, ...]
    accepts_state: bool
    state_kinds: dict[str, str]
    """Set by `load`: names of its parameters and buffers, and which of the two each is."""

    def __enter__(self) -> Runner: ...
    def __exit__(self, *exc_info: Any) -> None: ...
    def load(self, inputs: Args, template: ObservedCall) -> None:
        """Load the candidate.

        Args:
            inputs, template: arguments of a call and the reference's result, used to measure the overhead of a call.
        Raises:
            KernelwrightError: the candidate cannot be loaded.
        """
        ...

    def run(
        self,
        inputs: Args,
        state: State | None,
        output_sizes_bytes: list[int],
        *,
        twice: bool,
        seed: int,
        same_address: bool = False,
    ) -> ObservedCall:
        """Make one observed call.

        Args:
            state: sets parameters and buffers for this and later calls.
            twice: make an equal second call when it is needed.
            seed: of the random number generators in both.
            same_address: place the inputs where those of the call before were, in a process that can be inspected.

        Raises:
            LimitError, TaskError, CandidateError: the candidate failed.
        """
        ...


def make_sandboxed_runner(
    problem: Problem, target: str, device: str, limits: Limits, fork_server: ForkServer | None
) -> Runner:
    """A runner for a candidate from a file, in a child that loads it together with the problem and never runs the
    reference.

    Raises:
        UsageError: the problem is not from a file.
    """
    if problem.source is None:
        raise UsageError(
            f"{problem.name} is an in-process Python object and cannot be loaded in the sandbox with {target}",
            next="pass the problem as a file, or load the candidate and pass it as a callable",
        )
    cls = InspectedRunner if can_inspect_memory(device) else RpcRunner
    return cls(problem.source, target, device, limits, fork_server)


def can_inspect_memory(device: str) -> bool:
    """Whether this process can access the memory of a child that computes on this device."""
    return can_inspect() and (device == "cpu" or supports_ipc())


class RpcRunner:
    """A candidate in a child that receives its inputs and reports its outputs in messages."""

    accepts_state = True

    def __init__(self, problem: str, target: str, device: str, limits: Limits, fork_server: ForkServer | None) -> None:
        self.name, self.notes, self.protections = source_stem(target), (), protections(limits)
        self._problem, self._target, self.device = absolute_target(problem), absolute_target(target), device
        self._limits, self._fork_server = limits, fork_server
        self._stack = contextlib.ExitStack()
        self._child_stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._running_server = self._fork_server or self._stack.enter_context(ForkServer(PRELOAD_MODULES))
        return self

    def __exit__(self, *exc_info: Any) -> None:
        with self._stack:  # a fork server outlives its child
            self._child_stack.close()

    def reload(self, inputs: Args, template: ObservedCall) -> None:
        """Load the candidate in a new process; the one before ends."""
        self._child_stack.close()
        self.load(inputs, template)

    def load(self, inputs: Args, template: ObservedCall) -> None:
        self._open_child()
        with candidate_at_fault(NotFoundError, SetupError):
            self._apply_load_reply(self._child.build(f"{WORKER_MODULE}:load", {"candidate": self._target}))

    def run(
        self,
        inputs: Args,
        state: State | None,
        output_sizes_bytes: list[int],
        *,
        twice: bool,
        seed: int,
        same_address: bool = False,
    ) -> ObservedCall:
        payload = {
            "inputs": pack(pytree.tree_leaves(inputs)),
            "state": {"names": list(state), **pack(list(state.values()))} if state else None,
            "sizes_bytes": output_sizes_bytes,
            "twice": twice,
            "seed": seed,
        }
        with candidate_at_fault():
            return self._read_reply(self._child.call(f"{WORKER_MODULE}:run", payload))

    def _read_reply(self, reply: dict[str, Any]) -> ObservedCall:
        return ObservedCall(
            structure=reply["structure"],
            leaves=self._unpack_dict(reply["paths"], reply["leaves"]),
            devices=reply["devices"],
            mutated_inputs={
                at: tensor.detach()
                for at, tensor in self._unpack_dict(reply["mutated"]["at"], reply["mutated"]).items()
            },
            out_of_bounds_inputs=reply["outside"],
            changed_state={
                name: value.detach()
                for name, value in self._unpack_dict(reply["state"]["names"], reply["state"]).items()
            },
            second_leaves=reply["again"] and self._unpack_dict(reply["paths"], reply["again"]),
        )

    def _open_child(self) -> dict[str, Any]:
        """Start the isolated child and load the problem in it."""
        isolation = make_isolation(self._problem, self._target, self.device)
        compile_folders = (Path(isolation.cache_dir), *(cache_dir(kind) for kind in COMPILE_CACHES))
        self._child = self._child_stack.enter_context(self._running_server.fork_child(self._limits, isolation))
        folders = (*compile_folders, Path(self._child.scratch_dir), Path(split_target(self._target)[0]).parent)
        self.own_folders = tuple(str(one.resolve()) for one in folders)
        self.protections = self._child.protections
        library = compiled_library() if self.device == "cpu" else ""
        payload = {
            "problem": self._problem,
            "device": self.device,
            "folder": str(Path.cwd()),
            "chain_library": library,
        }
        return self._child.call(f"{WORKER_MODULE}:open_problem", payload)

    def _apply_load_reply(self, reply: dict[str, Any]) -> None:
        self.name, self.notes, self.state_kinds = reply["name"], tuple(reply["notes"]), reply["state"]

    def _unpack_dict(self, keys: list[Any], packed: Packed) -> dict[Any, Any]:
        return dict(zip(keys, unpack(packed, self.device), strict=True))


class InspectedRunner(RpcRunner):
    """A candidate in a child whose inputs are written and whose outputs are read by the verifier.

    Attributes:
        client: makes the timed calls.
        input_series: inputs of the calls of a series; empty where no series are timed.
        chained: as in `CandidateClient.call_series`.
        launch_ahead_us: as in `ExternalTimer`.
        load_task: the task that loads the candidate and its payload.
        null_calls, null_series: timed null calls, and series of them, in the same child before the candidate was
            loaded.
    """

    client: CandidateClient
    input_series: Sequence[Args] = ()
    chained: Sequence[ChainedLeaf] = ()
    launch_ahead_us: float = LAUNCH_AHEAD_US
    load_task: tuple[str, Packed] | None = None
    null_calls: Sequence[TimedCall] = ()
    null_series: Sequence[TimedCall] = ()

    def load(self, inputs: Args, template: ObservedCall) -> None:
        cleanup = self._child_stack.enter_context(contextlib.ExitStack())
        control_block = self._open_child()["control_block"]
        memory = (RemoteMemory if self.device == "cpu" else RemoteDeviceMemory)(self._child)
        cleanup.callback(memory.close)
        self.client = CandidateClient(self._child, control_block, memory, [value.nbytes for value in template.tensors])
        self.client.timer.launch_ahead_us = self.launch_ahead_us
        self.protections = (*self._child.protections, "outputs read and calls timed by the verifier")
        self.null_calls = self._time_null_calls([inputs], template)
        if self.input_series:
            self.null_series = self._time_null_calls(self.input_series, template)
        reply = self.client.load(*(self.load_task or (f"{WORKER_MODULE}:load", {"candidate": self._target})))
        with candidate_at_fault():
            self._apply_load_reply(reply)

    def _time_null_calls(self, inputs: Sequence[Args], template: ObservedCall) -> Sequence[TimedCall]:
        """Timed null calls. If other processes interfere, the attempt with the smallest spread; the first attempt for
        a series on the host, which takes long to prepare."""

        def spread(timed_calls: Sequence[TimedCall]) -> float:
            return null_spread_us(timed_calls, NULL_CALL_QUANTILE[self.device])

        def time_calls() -> list[TimedCall]:
            return self.client.time_null_calls(inputs, template.tensors, NUM_NULL_CALLS, self.chained)

        start_s, best = wall_s(), time_calls()
        for _ in range(0 if len(inputs) > 1 and self.device == "cpu" else NULL_CALL_ATTEMPTS):
            if spread(best) <= NULL_CALL_SPREAD_US or wall_s() - start_s > NULL_CALL_TIMEOUT_S:
                break
            best = min(best, time_calls(), key=spread)
        return best

    def run(
        self,
        inputs: Args,
        state: State | None,
        output_sizes_bytes: list[int],
        *,
        twice: bool,
        seed: int,
        same_address: bool = False,
    ) -> ObservedCall:
        if state:
            self.client.set_state(state)
        # A program could look whether new memory reads as NaN, as it does in no timed call.
        poison = twice or random.SystemRandom().random() < POISON_SHARE
        observed = self._call_observed(inputs, output_sizes_bytes, seed, same_address, poison=poison)
        if twice:
            observed.repeat_call = lambda: self._call_observed(inputs, output_sizes_bytes, seed, poison=False)
        return observed

    def _call_observed(
        self,
        inputs: Args,
        output_sizes_bytes: list[int],
        seed: int,
        same_address: bool = False,
        *,
        poison: bool,
    ) -> ObservedCall:
        """A call whose outputs are read; with gradients from now on where the program needs them, like the reference
        in `outcome.run_program`."""
        saved_sizes, self.client.output_sizes_bytes = self.client.output_sizes_bytes, output_sizes_bytes
        try:
            result = self.client.call(inputs, read_outputs=True, poison=poison, seed=seed, same_address=same_address)
        except TaskError as error:
            if self.client.requires_grad or "grad" not in error.message:
                raise
            self.client.requires_grad = True
            result = self.client.call(inputs, read_outputs=True, poison=poison, seed=seed, same_address=same_address)
        finally:
            self.client.output_sizes_bytes = saved_sizes
        assert result.observed
        return result.observed


def make_isolation(problem: str, target: str, device: str) -> Isolation:
    """Read access to the folders of the problem and the candidate, and a compile cache for this candidate."""
    file_names = [split_target(one)[0] for one in (problem, target)]
    files = [path for file_name in file_names if (path := Path(file_name)).is_file()]
    readable = (*(str(path.parent) for path in files), str(Path.cwd()))
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    return Isolation(readable, str(cache_dir("untrusted").absolute() / digest(text)[:16]), allow_cuda=device == "cuda")


class InProcessRunner:
    """A callable in this process: trusted, without limits."""

    accepts_state = False
    protections: tuple[str, ...] = ("none: in-process callable",)

    def __init__(self, candidate: Candidate | Callable[..., Any], device: str) -> None:
        loaded = candidate if isinstance(candidate, Candidate) else None
        self._program = loaded.program if loaded else candidate
        self.name = loaded.name if loaded else getattr(candidate, "__name__", type(candidate).__name__)
        self.notes = loaded.notes if loaded else ()
        self.device = device

    def __enter__(self) -> InProcessRunner:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        pass

    def load(self, inputs: Args, template: ObservedCall) -> None:
        self.state_kinds = named_state_kinds(self._program)

    def run(
        self,
        inputs: Args,
        state: State | None,
        output_sizes_bytes: list[int],
        *,
        twice: bool,
        seed: int,
        same_address: bool = False,
    ) -> ObservedCall:
        leaves, spec = pytree.tree_flatten(inputs)
        call = CallArguments(extract_storages(leaves), spec, leaves, self.device, output_sizes_bytes, seed)
        return observe(self._program, call, twice=twice)  # pyright: ignore[reportArgumentType]
