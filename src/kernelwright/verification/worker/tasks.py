"""The candidate's side of a verification, called in a nursery's child.

It loads the problem, for its parameters and signature, and the candidate. It imports nothing that knows what is
right, never calls the reference, and learns each set of inputs when it has to compute with it: by `call`, where the
judge can write into this process and read from it, else by `run`, with everything in messages.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.errors import InternalError, KernelwrightError
from kernelwright.measure.trace import device_trace
from kernelwright.problems.compiled import CompiledProgram
from kernelwright.problems.loading import load_candidate, load_problem
from kernelwright.problems.problem import Problem, seeded
from kernelwright.sandbox.exceptions import TaskError, is_out_of_memory, task_error
from kernelwright.verification.attacks.redzone import GUARD_BYTE, Fences, poison_allocator, poison_buffers
from kernelwright.verification.execution import SEED, Call, observe
from kernelwright.verification.transport.control_block import SIZE_BYTES, Extent, Mailbox
from kernelwright.verification.transport.device_memory import Segment, bytes_at, open_handle, register_host, segment_of
from kernelwright.verification.transport.state import kinds_of, state_of
from kernelwright.verification.transport.tensor_codec import (
    PLAIN,
    Packed,
    hold,
    outline,
    pack,
    to_strided,
    unpack,
    views,
)
from kernelwright.verification.worker.self_timer import OwnClock, OwnDeviceClock

ALIGNED_BYTES = 64


@dataclass
class Worker:
    """What this process holds from one task to the next."""

    problem: Problem
    device: str
    program: Callable[..., Any] | None = None
    mailbox: Mailbox = field(default_factory=Mailbox)
    arenas: list[Tensor] = field(default_factory=list)
    """Where inputs lie and lay: somebody may hold a view of them."""
    result: Any = None
    left: list[Tensor] = field(default_factory=list)
    """The result of the last call, and the state that it left: what the judge reads must not be freed meanwhile."""
    fences: Fences | None = None
    clock: OwnClock = field(default_factory=OwnClock)

    def __post_init__(self) -> None:
        self.leaves, self.spec = pytree.tree_flatten(self.problem.example)


_worker: Worker | None = None


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


def worker() -> Worker:
    assert _worker
    return _worker


@ours
def open_problem(payload: dict[str, Any]) -> dict[str, Any]:
    """Loads the problem; `payload`: `problem` (its target), `device`, `folder` (to look for modules in)."""
    global _worker
    sys.path.insert(0, payload["folder"])
    _worker = Worker(load_problem(payload["problem"]), payload["device"])
    if _worker.device != "cpu":
        register_host(_worker.mailbox.address, SIZE_BYTES)
    return {"mailbox": _worker.mailbox.address}


@ours
def load_null(payload: dict[str, Any]) -> None:
    """A program that returns what lies ready: what remains of a call's time is ours. `payload`: `leaves` as
    `crossing.hold` describes them, `sizes` of their blocks in bytes."""
    blocks = [torch.zeros(size, dtype=torch.uint8, device=worker().device) for size in payload["sizes"]]
    ready = views(payload["leaves"], [block.untyped_storage() for block in blocks])
    result = tuple(ready) if len(ready) != 1 else ready[0]
    worker().program = lambda *args, **kwargs: result


@ours
def load(payload: dict[str, Any]) -> dict[str, Any]:
    """Loads the candidate; `payload`: `candidate` (its target)."""
    here = worker()
    candidate = load_candidate(payload["candidate"], here.problem, here.device)
    return held(candidate.program) | {"name": candidate.name, "notes": list(candidate.notes)}


def held(program: Callable[..., Any]) -> dict[str, Any]:
    """Takes a program for the calls to come; what it keeps between calls, and where that lies."""
    here = worker()
    here.program = program
    gc.collect()
    gc.freeze()  # what was loaded is nothing to look through in every call
    segments = segments_of(state_of(program).values())
    return {"state": kinds_of(program), "places": places_of(program), "segments": segments, "pid": os.getpid()}


def places_of(program: Any) -> dict[str, Packed]:
    """Where each parameter and buffer lies, for those that lie in memory as they are."""
    return {name: described for name, value in state_of(program).items() if "extent" in (described := describe(value))}


@ours
def make_arena(payload: dict[str, Any]) -> int:
    """Room for inputs, in which the judge picks another place for every call; its address.

    Args:
        payload: `bytes`; on a device also the `handle` of memory of the judge's.
    """
    if "handle" in payload:
        return open_handle(payload["handle"])
    arena = torch.empty(payload["bytes"] + ALIGNED_BYTES, dtype=torch.uint8).zero_()
    worker().arenas.append(arena)
    return -(-arena.data_ptr() // ALIGNED_BYTES) * ALIGNED_BYTES


@ours
def call(payload: dict[str, Any]) -> dict[str, Any]:
    """One call whose inputs the judge writes into the arena once this is ready, and whose outputs it reads there where
    the mailbox says, the moment it says so.

    Args:
        payload: `number` of the call; `calls` in it, one after the other, each with leaves of its own; `blocks`, each
            [address, bytes]; `leaves`, views of them as `crossing.hold` describes; `gradients` to record; `poison`:
            sizes in bytes of memory to come that shall read as NaN; `rewritten`: the judge has written into parameters
            and buffers; `trace` what runs on the device.
    Returns:
        What the result is, described.
    """
    here = worker()
    here.result, here.left = None, []
    if payload["rewritten"]:
        torch.autograd.graph.increment_version(list(state_of(here.program).values()))
    blocks = [_memory_at(address, size, here.device) for address, size in payload["blocks"]]
    count, each = payload["calls"], len(here.leaves)
    leaves = views(payload["leaves"], blocks, here.leaves * count)
    given = [pytree.tree_unflatten(leaves[at * each :][:each], here.spec) for at in range(count)]
    poisoned = payload["poison"] is not None
    poison_allocator(poisoned)
    here.fences = Fences(here.device, GUARD_BYTE)
    with seeded(SEED), torch.set_grad_enabled(payload["gradients"]), _fenced(here, poisoned):
        poison_buffers(payload["poison"] or [], here.device)
        with device_trace() if payload["trace"] else nullcontext([]) as kernels:
            if here.device != "cpu":
                here.clock = OwnDeviceClock(here.mailbox, payload["number"], checked=poisoned)
            here.result = _timed(here, payload["number"], given)
        told = _told(here) | {"kernels": kernels}
        here.left = list(state_of(here.program).values())
    if broken := here.fences.broken():
        raise TaskError(f"wrote outside output {broken[0]}")
    return told


def _timed(here: Worker, number: int, given: list[Any]) -> Any:
    """The window: from the judge's go to the word that it is done."""
    assert here.program is not None
    here.mailbox.wait(number)
    here.clock.start()
    try:
        results = [here.program(*args, **kwargs) for args, kwargs in given]
        result = results if len(given) > 1 else results[0]
        there = [leaf for leaf in _leaves(result) if isinstance(leaf, Tensor)]
        here.clock.stop(there)
        here.mailbox.tell([extent for leaf in there if (extent := extent_of(leaf))], segments_of(there))
        claimed_ns = here.clock.time_ns()
    except BaseException as fault:
        here.mailbox.finish(number, 0, raised=True)
        if isinstance(fault, (Exception, SystemExit)):
            raise task_error(fault) from fault
        raise
    here.mailbox.finish(number, claimed_ns)
    return result


def _leaves(result: Any) -> list[Any]:
    return [result] if type(result) is Tensor else pytree.tree_leaves(result)


def segments_of(values: Iterable[Tensor]) -> list[Segment]:
    """What of the device's memory these lie in, each once; what cannot be handed on is left out."""
    found: dict[int, Segment] = {}
    for value in values:
        if value.device.type != "cuda" or value.layout != torch.strided or not value.numel():
            continue
        address = value.data_ptr()
        if any(one.base <= address < one.base + one.size for one in found.values()):
            continue
        if segment := segment_of(address):
            found[segment.base] = segment
    return list(found.values())


def extent_of(value: Tensor) -> Extent | None:
    """Where its numbers lie, which stand for their conjugate or negative in a view that says so."""
    if value.device.type not in ("cpu", "cuda") or value.layout != torch.strided:
        return None
    if not value.numel():
        return 0, 0
    reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), reach * value.element_size()


def describe(leaf: Any) -> Packed:
    """A leaf of a result in words: a tensor that lies somewhere, one that has to be sent, a plain value, or a type."""
    if not isinstance(leaf, Tensor):
        return {"plain": leaf} if isinstance(leaf, PLAIN) else {"type": type(leaf).__name__}
    if leaf.device.type not in ("cpu", "cuda"):
        return {"type": type(leaf).__name__, "device": leaf.device.type}
    if extent := extent_of(leaf):
        return {
            "dtype": str(leaf.dtype).removeprefix("torch."),
            "shape": list(leaf.shape),
            "strides": list(leaf.stride()),
            "extent": list(extent),
            "device": leaf.device.type,
            "negated": leaf.is_neg(),
            "conjugated": leaf.is_conj(),
        }
    sent = to_strided(leaf.detach()).resolve_conj().resolve_neg().contiguous()
    return {"sent": pack([sent]), "device": leaf.device.type}


def _told(here: Worker) -> dict[str, Any]:
    found = {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(here.result)[0]}
    return {
        "outline": outline(here.result),
        "leaves": {path: describe(leaf) for path, leaf in found.items()},
        "places": places_of(here.program),
        "segments": segments_of(state_of(here.program).values()),
        "in_order": here.clock.in_order(),
    }


@contextmanager
def _fenced(here: Worker, poisoned: bool) -> Iterator[None]:
    """What lies where is kept for the next call; outputs that we make lie between margins where memory is poisoned."""
    program = here.program
    homes = list(program.modules()) if isinstance(program, torch.nn.Module) else []
    kept = [(home, dict(home._parameters), dict(home._buffers)) for home in homes]
    fenced = program if isinstance(program, CompiledProgram) and poisoned else None
    if fenced and here.fences:
        fenced.empty = here.fences.empty
    try:
        yield
    finally:
        if fenced:
            del fenced.empty
        for home, parameters, buffers in kept:  # a buffer may have been replaced by another tensor
            home._parameters.update(parameters)
            home._buffers.update(buffers)


def _memory_at(address: int, size: int, device: str) -> torch.UntypedStorage:
    """A part of the arena as a storage of its own: a program may look at the storage of what it is given."""
    if device != "cpu":
        return bytes_at(address, size).untyped_storage()
    if not size:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    data = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


@ours
def run(payload: dict[str, Any]) -> dict[str, Any]:
    """One observed call; `payload`: `inputs` (packed leaves), `state` (packed values with `names`, or None),
    `sizes_bytes`, `twice`."""
    here = worker()
    assert here.program is not None
    poison_allocator(True)
    if payload["state"]:
        set_state(here.program, payload["state"]["names"], payload["state"])
    inputs = payload["inputs"]
    if here.device != "cpu":
        inputs = hold(unpack(inputs, here.device))  # crosses to the device once, not for every call
    given = Call(inputs, here.spec, here.leaves, here.device, payload["sizes_bytes"])
    observed = observe(here.program, given, twice=payload["twice"])
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
