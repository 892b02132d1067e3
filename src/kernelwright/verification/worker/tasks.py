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
from kernelwright.measure.trace import trace_device
from kernelwright.problems.compiled import CompiledProgram
from kernelwright.problems.loading import load_candidate, load_problem
from kernelwright.problems.problem import Problem, temporary_seed
from kernelwright.sandbox.exceptions import TaskError, is_out_of_memory, to_task_error
from kernelwright.verification.attacks.redzone import REDZONE_BYTE, RedzoneAllocator, poison_allocator, poison_buffers
from kernelwright.verification.execution import CALL_SEED, CallArguments, observe
from kernelwright.verification.transport.control_block import CONTROL_BLOCK_BYTES, ControlBlock, Extent
from kernelwright.verification.transport.device_memory import (
    Segment,
    find_segment,
    open_ipc_handle,
    register_host_memory,
    view_device_bytes,
)
from kernelwright.verification.transport.state import named_state, named_state_kinds
from kernelwright.verification.transport.tensor_codec import (
    PLAIN_TYPES,
    Packed,
    describe_structure,
    extract_storages,
    pack,
    rebuild_views,
    to_strided,
    unpack,
)
from kernelwright.verification.worker.self_timer import DeviceSelfTimer, SelfTimer

ALIGNMENT_BYTES = 64


@dataclass
class Worker:
    """What this process holds from one task to the next."""

    problem: Problem
    device: str
    program: Callable[..., Any] | None = None
    control_block: ControlBlock = field(default_factory=ControlBlock)
    arenas: list[Tensor] = field(default_factory=list)
    """Where inputs lie and lay: somebody may hold a view of them."""
    result: Any = None
    retained_state: list[Tensor] = field(default_factory=list)
    """The result of the last call, and the state that it left: what the judge reads must not be freed meanwhile."""
    redzones: RedzoneAllocator | None = None
    timer: SelfTimer = field(default_factory=SelfTimer)

    def __post_init__(self) -> None:
        self.leaves, self.spec = pytree.tree_flatten(self.problem.meta_inputs)


_worker: Worker | None = None


def report_internal_errors(task: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
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


def current_worker() -> Worker:
    assert _worker
    return _worker


@report_internal_errors
def open_problem(payload: dict[str, Any]) -> dict[str, Any]:
    """Loads the problem; `payload`: `problem` (its target), `device`, `folder` (to look for modules in)."""
    global _worker
    sys.path.insert(0, payload["folder"])
    _worker = Worker(load_problem(payload["problem"]), payload["device"])
    if _worker.device != "cpu":
        register_host_memory(_worker.control_block.address, CONTROL_BLOCK_BYTES)
    return {"mailbox": _worker.control_block.address}


@report_internal_errors
def load_null_program(payload: dict[str, Any]) -> None:
    """A program that returns what lies ready: what remains of a call's time is ours. `payload`: `leaves` as
    `crossing.hold` describes them, `sizes` of their blocks in bytes."""
    blocks = [torch.zeros(size, dtype=torch.uint8, device=current_worker().device) for size in payload["sizes"]]
    ready = rebuild_views(payload["leaves"], [block.untyped_storage() for block in blocks])
    result = tuple(ready) if len(ready) != 1 else ready[0]
    current_worker().program = lambda *args, **kwargs: result


@report_internal_errors
def load(payload: dict[str, Any]) -> dict[str, Any]:
    """Loads the candidate; `payload`: `candidate` (its target)."""
    here = current_worker()
    candidate = load_candidate(payload["candidate"], here.problem, here.device)
    return install_program(candidate.program) | {"name": candidate.name, "notes": list(candidate.notes)}


def install_program(program: Callable[..., Any]) -> dict[str, Any]:
    """Takes a program for the calls to come; what it keeps between calls, and where that lies."""
    here = current_worker()
    here.program = program
    gc.collect()
    gc.freeze()  # what was loaded is nothing to look through in every call
    segments = find_segments(named_state(program).values())
    return {
        "state": named_state_kinds(program),
        "state_descriptors": describe_state(program),
        "segments": segments,
        "pid": os.getpid(),
    }


def describe_state(program: Any) -> dict[str, Packed]:
    """Where each parameter and buffer lies, for those that lie in memory as they are."""
    return {
        name: described
        for name, value in named_state(program).items()
        if "extent" in (described := describe_leaf(value))
    }


@report_internal_errors
def allocate_arena(payload: dict[str, Any]) -> int:
    """Room for inputs, in which the judge picks another place for every call; its address.

    Args:
        payload: `bytes`; on a device also the `handle` of memory of the judge's.
    """
    if "handle" in payload:
        return open_ipc_handle(payload["handle"])
    arena = torch.empty(payload["bytes"] + ALIGNMENT_BYTES, dtype=torch.uint8).zero_()
    current_worker().arenas.append(arena)
    return -(-arena.data_ptr() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@report_internal_errors
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
    here = current_worker()
    here.result, here.retained_state = None, []
    if payload["rewritten"]:
        torch.autograd.graph.increment_version(list(named_state(here.program).values()))
    blocks = [_storage_at(address, size, here.device) for address, size in payload["blocks"]]
    count, each = payload["calls"], len(here.leaves)
    leaves = rebuild_views(payload["leaves"], blocks, here.leaves * count)
    given = [pytree.tree_unflatten(leaves[at * each :][:each], here.spec) for at in range(count)]
    poisoned = payload["poison"] is not None
    poison_allocator(poisoned)
    here.redzones = RedzoneAllocator(here.device, REDZONE_BYTE)
    with temporary_seed(CALL_SEED), torch.set_grad_enabled(payload["gradients"]), _redzoned_outputs(here, poisoned):
        poison_buffers(payload["poison"] or [], here.device)
        with trace_device() if payload["trace"] else nullcontext([]) as kernels:
            if here.device != "cpu":
                here.timer = DeviceSelfTimer(here.control_block, payload["number"], check_order=poisoned)
            here.result = _run_timed(here, payload["number"], given)
        told = _make_report(here) | {"kernels": kernels}
        here.retained_state = list(named_state(here.program).values())
    if broken := here.redzones.corrupted_blocks():
        raise TaskError(f"wrote outside output {broken[0]}")
    return told


def _run_timed(worker: Worker, number: int, given: list[Any]) -> Any:
    """The window: from the judge's go to the word that it is done."""
    assert worker.program is not None
    worker.control_block.wait_for_start(number)
    worker.timer.start()
    try:
        results = [worker.program(*args, **kwargs) for args, kwargs in given]
        result = results if len(given) > 1 else results[0]
        there = [leaf for leaf in _result_leaves(result) if isinstance(leaf, Tensor)]
        worker.timer.stop(there)
        worker.control_block.publish_outputs(
            [extent for leaf in there if (extent := find_extent(leaf))], find_segments(there)
        )
        claimed_ns = worker.timer.time_ns()
    except BaseException as fault:
        worker.control_block.publish_done(number, 0, raised=True)
        if isinstance(fault, (Exception, SystemExit)):
            raise to_task_error(fault) from fault
        raise
    worker.control_block.publish_done(number, claimed_ns)
    return result


def _result_leaves(result: Any) -> list[Any]:
    return [result] if type(result) is Tensor else pytree.tree_leaves(result)


def find_segments(values: Iterable[Tensor]) -> list[Segment]:
    """What of the device's memory these lie in, each once; what cannot be handed on is left out."""
    found: dict[int, Segment] = {}
    for value in values:
        if value.device.type != "cuda" or value.layout != torch.strided or not value.numel():
            continue
        address = value.data_ptr()
        if any(one.base <= address < one.base + one.size_bytes for one in found.values()):
            continue
        if segment := find_segment(address):
            found[segment.base] = segment
    return list(found.values())


def find_extent(value: Tensor) -> Extent | None:
    """Where its numbers lie, which stand for their conjugate or negative in a view that says so."""
    if value.device.type not in ("cpu", "cuda") or value.layout != torch.strided:
        return None
    if not value.numel():
        return 0, 0
    reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), reach * value.element_size()


def describe_leaf(leaf: Any) -> Packed:
    """A leaf of a result in words: a tensor that lies somewhere, one that has to be sent, a plain value, or a type."""
    if not isinstance(leaf, Tensor):
        return {"plain": leaf} if isinstance(leaf, PLAIN_TYPES) else {"type": type(leaf).__name__}
    if leaf.device.type not in ("cpu", "cuda"):
        return {"type": type(leaf).__name__, "device": leaf.device.type}
    if extent := find_extent(leaf):
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


def _make_report(worker: Worker) -> dict[str, Any]:
    found = {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(worker.result)[0]}
    return {
        "structure": describe_structure(worker.result),
        "leaves": {path: describe_leaf(leaf) for path, leaf in found.items()},
        "state_descriptors": describe_state(worker.program),
        "segments": find_segments(named_state(worker.program).values()),
        "is_stream_ordered": worker.timer.is_stream_ordered(),
    }


@contextmanager
def _redzoned_outputs(worker: Worker, poisoned: bool) -> Iterator[None]:
    """What lies where is kept for the next call; outputs that we make lie between margins where memory is poisoned."""
    program = worker.program
    homes = list(program.modules()) if isinstance(program, torch.nn.Module) else []
    kept = [(home, dict(home._parameters), dict(home._buffers)) for home in homes]
    fenced = program if isinstance(program, CompiledProgram) and poisoned else None
    if fenced and worker.redzones:
        fenced.empty = worker.redzones.empty
    try:
        yield
    finally:
        if fenced:
            del fenced.empty
        for home, parameters, buffers in kept:  # a buffer may have been replaced by another tensor
            home._parameters.update(parameters)
            home._buffers.update(buffers)


def _storage_at(address: int, size: int, device: str) -> torch.UntypedStorage:
    """A part of the arena as a storage of its own: a program may look at the storage of what it is given."""
    if device != "cpu":
        return view_device_bytes(address, size).untyped_storage()
    if not size:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    data = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


@report_internal_errors
def run(payload: dict[str, Any]) -> dict[str, Any]:
    """One observed call; `payload`: `inputs` (packed leaves), `state` (packed values with `names`, or None),
    `output_sizes_bytes`, `twice`."""
    here = current_worker()
    assert here.program is not None
    poison_allocator(True)
    if payload["state"]:
        set_state(here.program, payload["state"]["names"], payload["state"])
    inputs = payload["inputs"]
    if here.device != "cpu":
        inputs = extract_storages(unpack(inputs, here.device))  # crosses to the device once, not for every call
    given = CallArguments(inputs, here.spec, here.leaves, here.device, payload["sizes_bytes"])
    observed = observe(here.program, given, twice=payload["twice"])
    return {
        "structure": observed.structure,
        "paths": list(observed.leaves),
        "leaves": pack(list(observed.leaves.values())),
        "devices": observed.devices,
        "mutated": {"at": list(observed.mutated_inputs), **pack(list(observed.mutated_inputs.values()))},
        "outside": observed.out_of_bounds_inputs,
        "state": {"names": list(observed.changed_state), **pack(list(observed.changed_state.values()))},
        "again": None
        if observed.second_leaves is None
        else pack([observed.second_leaves[path] for path in observed.leaves]),
    }


def set_state(program: Any, names: list[str], packed: dict[str, Any]) -> None:
    """Copies values into the candidate's parameters and buffers of these names."""
    known = named_state(program)
    with torch.no_grad():
        for name, value in zip(names, unpack(packed, "cpu"), strict=True):
            if name in known:
                known[name].copy_(value)
