"""The candidate's side of a verification, in a child of the fork server.

It loads the problem, for its parameters and signature, and the candidate. It imports nothing that has access to the
expected values, never calls the reference, and receives each input set only for the call: through shared memory in
`call`, where the verifier can read and write this process, else in messages, in `run`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.errors import InternalError, KernelwrightError
from kernelwright.measure.trace import trace_device
from kernelwright.problems.compiled import CompiledProgram
from kernelwright.problems.loading import load_candidate, load_problem
from kernelwright.problems.problem import Problem, seed_on_host, temporary_seed
from kernelwright.sandbox.exceptions import (
    CHANGED_ARGUMENT,
    ChangedArgumentError,
    TaskError,
    find_location,
    format_error,
    is_out_of_memory,
    to_task_error,
)
from kernelwright.verification.attacks.redzone import REDZONE_BYTE, RedzoneAllocator, poison_allocator, poison_buffers
from kernelwright.verification.execution import CallArguments, observe
from kernelwright.verification.transport.call_chain import ChainFunctions, make_blocks
from kernelwright.verification.transport.control_block import (
    CONTROL_BLOCK_BYTES,
    DIGEST,
    ControlBlock,
    Extent,
    digest_leaf,
    word,
)
from kernelwright.verification.transport.device_memory import (
    Segment,
    find_segment,
    open_ipc_handle,
    register_host_memory,
    view_device_bytes,
)
from kernelwright.verification.transport.result_containers import ResultContainers
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
    """State of this process between tasks."""

    problem: Problem
    device: str
    program: Callable[..., Any] | None = None
    control_block: ControlBlock = field(default_factory=ControlBlock)
    arenas: list[Tensor] = field(default_factory=list)
    """Memory of current and earlier inputs: a program may hold a view of it."""
    result: Any = None
    kept: dict[int, Any] = field(default_factory=dict)
    """Results of earlier calls by number, alive as long as the verifier keeps them."""
    retained_state: list[Tensor] = field(default_factory=list)
    """The last call's result and state: the verifier reads them, so they must not be freed before the next call."""
    redzones: RedzoneAllocator | None = None
    timer: SelfTimer = field(default_factory=SelfTimer)
    containers: ResultContainers = field(default_factory=ResultContainers)
    """Made before the candidate is loaded."""
    holds_candidate: bool = False
    chain: ChainFunctions | None = None

    def __post_init__(self) -> None:
        self.leaves, self.spec = pytree.tree_flatten(self.problem.meta_inputs)


_worker: Worker | None = None


def report_internal_errors(task: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Report an exception in this module as an internal error, which does not reject a candidate.

    Once a candidate is loaded, whatever raises is its fault: it may have replaced anything that this module calls.
    """

    @functools.wraps(task)
    def run(payload: dict[str, Any]) -> Any:
        try:
            return task(payload)
        except Exception as error:
            if isinstance(error, KernelwrightError) or is_out_of_memory(error):
                raise
            if _worker and _worker.holds_candidate:
                raise TaskError(
                    f"{format_error(error)}, while its result was read", where=find_location(error)
                ) from error
            raise InternalError(f"{type(error).__name__} in the candidate's process: {error}") from error

    return run


def current_worker() -> Worker:
    """The worker of this process; `open_problem` must have run."""
    assert _worker
    return _worker


@report_internal_errors
def open_problem(payload: dict[str, Any]) -> dict[str, Any]:
    """Load the problem; `payload`: `problem` (its target), `device`, `folder` (added to the module search path),
    `chain_library` (empty for none)."""
    global _worker
    sys.path.insert(0, payload["folder"])
    _worker = Worker(load_problem(payload["problem"]), payload["device"])
    if payload["chain_library"]:
        _worker.chain = ChainFunctions(payload["chain_library"])
    if _worker.device != "cpu":
        register_host_memory(_worker.control_block.address, CONTROL_BLOCK_BYTES)
    return {"control_block": _worker.control_block.address}


@report_internal_errors
def load_null_program(payload: dict[str, Any]) -> None:
    """Install a program that returns preallocated outputs: its time is the overhead of a call. `payload`: `leaves`
    from `extract_storages`, `sizes` of their blocks in bytes."""
    blocks = [torch.zeros(size, dtype=torch.uint8, device=current_worker().device) for size in payload["sizes"]]
    outputs = rebuild_views(payload["leaves"], [block.untyped_storage() for block in blocks])
    result = tuple(outputs) if len(outputs) != 1 else outputs[0]
    current_worker().program = lambda *args, **kwargs: result


@report_internal_errors
def load(payload: dict[str, Any]) -> dict[str, Any]:
    """Load the candidate; `payload`: `candidate` (its target)."""
    worker = current_worker()
    candidate = load_candidate(payload["candidate"], worker.problem, worker.device)
    worker.holds_candidate = True
    return install_program(candidate.program) | {"name": candidate.name, "notes": list(candidate.notes)}


def install_program(program: Callable[..., Any]) -> dict[str, Any]:
    """Set the program of the calls to come; its state, and where that is located in memory."""
    worker = current_worker()
    worker.program = program
    gc.collect()
    gc.freeze()  # keeps the garbage collector from scanning loaded objects in every call
    segments = find_segments(named_state(program).values())
    return {
        "state": named_state_kinds(program),
        "state_descriptors": describe_state(program),
        "segments": segments,
        "pid": os.getpid(),
    }


def describe_state(program: Any) -> dict[str, Packed]:
    """Descriptors of the parameters and buffers that can be read from memory."""
    return {
        name: described
        for name, value in named_state(program).items()
        if "extent" in (described := describe_leaf(value))
    }


@report_internal_errors
def allocate_arena(payload: dict[str, Any]) -> int:
    """Memory for inputs, in which the verifier picks a new location for every call; its address.

    Args:
        payload: `bytes`; on a device also the IPC `handle` of memory that the verifier has allocated.
    """
    if "handle" in payload:
        return open_ipc_handle(payload["handle"])
    arena = torch.empty(payload["bytes"] + ALIGNMENT_BYTES, dtype=torch.uint8).zero_()
    current_worker().arenas.append(arena)
    return -(-arena.data_ptr() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@report_internal_errors
def call(payload: dict[str, Any]) -> dict[str, Any]:
    """One call: the verifier writes the inputs into the arena once this process is ready, and reads the outputs at
    the addresses in the control block as soon as the call is marked as done.

    Args:
        payload: `number` of the call; `calls` in it, one after the other, each with its own leaves; `blocks`, each
            [address, bytes]; `leaves`, views of them from `extract_storages`; `gradients` to record; `poison`: sizes
            in bytes of allocations to come that must read as NaN; `rewritten`: the verifier has written to parameters
            and buffers; `trace` the kernels on the device; `seed` of the random number generators on a device (on the
            host it comes with the start signal); `chain` of the calls, None or as in `CallChain.request`; `kept`, as in
            `KeptOutputs.plan_call`; `copies`: keep a copy of each result, made within the timed call.
    Returns:
        The description of the result.
    """
    worker = current_worker()
    if payload["kept"]["keep"] is not None:
        worker.kept[payload["kept"]["keep"]] = worker.result
    for number in payload["kept"]["release"]:
        worker.kept.pop(number, None)
    worker.result, worker.retained_state = None, []
    if payload["rewritten"]:
        torch.autograd.graph.increment_version(list(named_state(worker.program).values()))
    blocks = [_storage_at(address, size, worker.device) for address, size in payload["blocks"]]
    count, leaves_per_call = payload["calls"], len(worker.leaves)
    leaves = rebuild_views(payload["leaves"], blocks, worker.leaves * count)
    given = [
        pytree.tree_unflatten(leaves[at * leaves_per_call :][:leaves_per_call], worker.spec) for at in range(count)
    ]
    given_leaves = worker.containers.leaves(given)
    poisoned = payload["poison"] is not None
    poison_allocator(poisoned)
    worker.redzones = RedzoneAllocator(worker.device, REDZONE_BYTE)
    with (
        temporary_seed(payload["seed"]),
        torch.set_grad_enabled(payload["gradients"]),
        _redzoned_outputs(worker, poisoned),
    ):
        poison_buffers(payload["poison"] or [], worker.device)
        with trace_device() if payload["trace"] else nullcontext([]) as kernels:
            if worker.device != "cpu":
                worker.timer = DeviceSelfTimer(worker.control_block, payload["number"], check_order=poisoned)
            chain = payload["chain"] and RunningChain(worker, payload["chain"])
            worker.result = _run_timed(worker, payload["number"], given, chain, copies=payload["copies"])
        with _own_code_only():
            report = _make_report(worker) | {"kernels": kernels}
        worker.retained_state = list(named_state(worker.program).values())
    if corrupted := worker.redzones.corrupted_blocks():
        raise TaskError(f"wrote outside output {corrupted[0]}")
    if worker.containers.have_changed(given, given_leaves):
        raise ChangedArgumentError(CHANGED_ARGUMENT)
    return report


def _own_code_only() -> AbstractContextManager[Any]:
    """Read tensors without calling the `__torch_function__` of their classes."""
    return torch._C.DisableTorchFunctionSubclass()


class RunningChain:
    """The chain of the series that is running; see `transport.call_chain`."""

    def __init__(self, worker: Worker, payload: dict[str, Any]) -> None:
        assert worker.chain
        self._functions, self._leaves = worker.chain, worker.containers.leaves
        self._digest: int = payload["seed"]
        self._blocks = [(make_blocks(one), len(one)) for one in payload["blocks"]]
        self._written = payload["written"]

    def change_inputs(self, call: int) -> None:
        """Change the inputs of a call by the outputs of those before it."""
        if call:
            self._functions.derive(*self._blocks[call], self._digest)

    def add_outputs(self, call: int, result: Any) -> None:
        """Add what a call returned, and what it left in the inputs that the program writes to, to the digest."""
        for leaf in self._leaves(result):
            if isinstance(leaf, Tensor) and find_extent(leaf):
                elements = leaf.detach().contiguous()  # without the memory between them, which the program can choose
                self._add(elements.data_ptr(), elements.nbytes)
            else:
                digest = bytes(word(digest_leaf(describe_leaf(leaf))))
                self._add(digest, len(digest))
        for extent in self._written[call]:
            self._add(*extent)

    def _add(self, data: int | bytes, size_bytes: int) -> None:
        self._digest = self._functions.absorb(self._digest, data, size_bytes)


def _run_calls(worker: Worker, given: list[Any], chain: RunningChain | None, *, copies: bool) -> list[Any]:
    assert worker.program is not None
    if chain is None and not copies:
        return [worker.program(*args, **kwargs) for args, kwargs in given]
    results = []
    for at, (args, kwargs) in enumerate(given):
        if chain:
            chain.change_inputs(at)
        result = worker.program(*args, **kwargs)
        if copies:
            result = pytree.tree_map_only(Tensor, torch.clone, result)
        if chain:
            chain.add_outputs(at, result)
        results.append(result)
    return results


def _run_timed(worker: Worker, number: int, given: list[Any], chain: RunningChain | None, *, copies: bool) -> Any:
    """The timed call: from the start signal until it is marked as done."""
    seed = worker.control_block.wait_for_start(number)
    if worker.device == "cpu":
        seed_on_host(seed)
    worker.timer.start()
    try:
        results = _run_calls(worker, given, chain, copies=copies)
        result = results if len(given) > 1 else results[0]
        with _own_code_only():
            leaves = worker.containers.leaves(result)
            outputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            worker.timer.stop(outputs)
            others = [leaf for leaf in leaves if not isinstance(leaf, Tensor) or not find_extent(leaf)]
            worker.control_block.publish_outputs(
                [extent for leaf in outputs if (extent := find_extent(leaf))]
                + [(DIGEST, digest_leaf(describe_leaf(leaf))) for leaf in others],
                find_segments(outputs),
            )
        claimed_ns = worker.timer.time_ns()
    except BaseException as error:
        worker.control_block.publish_done(number, 0, raised=True)
        if isinstance(error, (Exception, SystemExit)):
            raise to_task_error(error) from error
        raise
    worker.control_block.publish_done(number, claimed_ns)
    return result


def find_segments(values: Iterable[Tensor]) -> list[Segment]:
    """Device allocations that contain these tensors, each once; those that cannot be shared are left out."""
    segments: dict[int, Segment] = {}
    for value in values:
        if value.device.type != "cuda" or value.layout != torch.strided or not value.numel():
            continue
        address = value.data_ptr()
        if any(one.base <= address < one.base + one.size_bytes for one in segments.values()):
            continue
        if segment := find_segment(address):
            segments[segment.base] = segment
    return list(segments.values())


def find_extent(value: Tensor) -> Extent | None:
    """Address and bytes of a tensor's elements; conjugate and negative bits are not applied."""
    if value.device.type not in ("cpu", "cuda") or value.layout != torch.strided:
        return None
    if not value.numel():
        return 0, 0
    if value.is_contiguous():
        return value.data_ptr(), value.nbytes
    num_elements = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), num_elements * value.element_size()


def describe_leaf(leaf: Any) -> Packed:
    """Descriptor of a leaf: a tensor in memory, a tensor to be sent, a plain value, or a type name."""
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
    leaves = worker.containers.leaves_by_path(worker.result)
    return {
        "structure": describe_structure(worker.result, worker.containers),
        "leaves": {path: describe_leaf(leaf) for path, leaf in leaves.items()},
        "state_descriptors": describe_state(worker.program),
        "segments": find_segments(named_state(worker.program).values()),
        "is_stream_ordered": worker.timer.is_stream_ordered(),
    }


@contextmanager
def _redzoned_outputs(worker: Worker, poisoned: bool) -> Iterator[None]:
    """Restore replaced buffers after the call; allocate C++ and CUDA outputs between redzones if memory is poisoned."""
    program = worker.program
    modules = list(program.modules()) if isinstance(program, torch.nn.Module) else []
    saved = [(owner, dict(owner._parameters), dict(owner._buffers)) for owner in modules]
    redzoned = program if isinstance(program, CompiledProgram) and poisoned else None
    if redzoned and worker.redzones:
        redzoned.empty = worker.redzones.empty
    try:
        yield
    finally:
        if redzoned:
            del redzoned.empty
        for owner, parameters, buffers in saved:  # a buffer may have been replaced by another tensor
            owner._parameters.update(parameters)
            owner._buffers.update(buffers)


def _storage_at(address: int, size: int, device: str) -> torch.UntypedStorage:
    """A part of the arena as its own storage: a program may access the storage of its inputs."""
    if device != "cpu":
        return view_device_bytes(address, size).untyped_storage()
    if not size:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    data = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


@report_internal_errors
def run(payload: dict[str, Any]) -> dict[str, Any]:
    """One observed call; `payload`: `inputs` (packed leaves), `state` (packed values with `names`, or None),
    `sizes_bytes` of the outputs, `seed`, `twice`."""
    worker = current_worker()
    assert worker.program is not None
    poison_allocator(True)
    if payload["state"]:
        set_state(worker.program, payload["state"]["names"], payload["state"])
    inputs = payload["inputs"]
    if worker.device != "cpu":
        inputs = extract_storages(unpack(inputs, worker.device))  # copied to the device once, not for every call
    arguments = CallArguments(
        inputs, worker.spec, worker.leaves, worker.device, payload["sizes_bytes"], payload["seed"]
    )
    observed = observe(worker.program, arguments, twice=payload["twice"])
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
    """Copy values into the candidate's parameters and buffers of these names."""
    known = named_state(program)
    with torch.no_grad():
        for name, value in zip(names, unpack(packed, "cpu"), strict=True):
            if name in known:
                known[name].copy_(value)
