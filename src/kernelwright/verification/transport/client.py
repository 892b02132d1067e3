"""The verifier's side of a call: writes inputs into the candidate's process, reads outputs from it, and times the
call with an external timer.

The candidate is stopped while its inputs are written. As soon as it reports the end of the call, randomly chosen
extents of its outputs are read; comparing them with the whole outputs, read later with all threads stopped, shows
late writes. The candidate cannot distinguish calls whose outputs are read from others.

A device cannot be stopped, but its stream can wait: the host launches ahead, and after a delay the verifier writes
the inputs and gives the device start signal. The verifier copies whole outputs at the end. A device shares its time
between processes, so this copy runs after any kernel of the candidate that still ran; for the same reason the inputs
must stay unreadable until they are complete.
"""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.errors import NotFoundError, SetupError, TamperingError
from kernelwright.measure.clock_agreement import TimedCall
from kernelwright.measure.trace import DeviceKernel
from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.sandbox import Child
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.attacks.aliased_output import find_shared_page
from kernelwright.verification.attacks.redzone import REDZONE_BYTES
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.transport.call_chain import ChainedLeaf, make_chain
from kernelwright.verification.transport.call_report import (
    CallReport,
    LeafDescriptor,
    candidate_at_fault,
    decode_leaf,
    parse_untrusted,
    view_as_tensor,
)
from kernelwright.verification.transport.control_block import MAX_EXTENTS, CallStatus, Extent, digest_leaf
from kernelwright.verification.transport.device_memory import Segment
from kernelwright.verification.transport.external_timer import ExternalTimer, PollHook
from kernelwright.verification.transport.kept_outputs import KeptOutputs, overlap
from kernelwright.verification.transport.observed_calls import StoppedRead, make_observed_calls, outputs_by_call
from kernelwright.verification.transport.remote_memory import RemoteMemory
from kernelwright.verification.transport.snapshot import Snapshot, have_plausible_sizes
from kernelwright.verification.transport.state import State, bitwise_equal
from kernelwright.verification.transport.tensor_codec import extract_storages

WORKER_MODULE = "kernelwright.verification.worker.tasks"
ADDRESS_REUSE_SHARE = 0.3
"""Share of calls whose inputs are at the address of an earlier call's: this makes results cached by address wrong."""
REREAD_DELAY_S = 0.25
SEED_BITS = 53
MIN_NULL_CALLS, LARGE_INPUT_BYTES = 5, 32 << 20
"""With inputs of at least this size a call takes milliseconds, so `MIN_NULL_CALLS` are enough."""


@dataclass(frozen=True)
class CallResult:
    """Result of one call.

    Attributes:
        observed: None where the outputs were not read.
        timed_call: the external and the self-reported time.
        kernels: as in `CallReport`.
    """

    observed: ObservedCall | None
    timed_call: TimedCall
    kernels: list[DeviceKernel]


@dataclass(frozen=True)
class SeriesResult:
    """Results of consecutive calls in one timed call; fields as in `CallResult`."""

    observed: list[ObservedCall]
    timed_call: TimedCall
    kernels: list[DeviceKernel]


@dataclass
class CandidateClient:
    """Calls one program in one child.

    Args:
        child: the child, in which `tasks.open_problem` has run.
        control_block: address of the control block in the child.
        memory: access to the child's memory.
        output_sizes_bytes: expected sizes of the outputs.
    Attributes:
        timer: times every call.
        requires_grad: record gradients in every call.
        state: parameters and buffers as they are before every call.
        copies_outputs: every result is copied within the timed call, as a caller does that wants to keep it.
    """

    child: Child
    control_block: int
    memory: RemoteMemory
    output_sizes_bytes: list[int] = field(default_factory=list)
    requires_grad: bool = False
    state: State = field(default_factory=dict)
    copies_outputs: bool = False
    _state_descriptors: dict[str, LeafDescriptor] = field(default_factory=dict)
    _changed_names: set[str] = field(default_factory=set)
    _expected_sizes: list[int] = field(default_factory=list)
    _arena: Extent = (0, 0)
    _arena_starts: list[int] = field(default_factory=list)
    _state_rewritten: bool = False

    def __post_init__(self) -> None:
        self.timer = ExternalTimer(self.child, self.control_block, self.memory)
        self.kept = KeptOutputs(self.memory)

    def load(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Load a program by a task that replies like `tasks.install_program`; returns the reply."""
        with candidate_at_fault(NotFoundError, SetupError):
            return self._load(task, payload)

    def _load(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        reply = self.child.build(task, payload)
        self.memory.map_segments(parse_untrusted(reply["segments"], list[Segment]))
        self._state_descriptors = parse_untrusted(reply["state_descriptors"], dict[str, LeafDescriptor])
        self.state = self._read_state(self._state_descriptors)
        return reply

    def time_null_calls(
        self, inputs: Sequence[Args], outputs: list[Tensor], calls: int, chained: Sequence[ChainedLeaf] = ()
    ) -> list[TimedCall]:
        """Time calls that compute nothing and return outputs of the same sizes, in a child without a program yet;
        with several inputs, series of calls. With large inputs fewer calls are made."""
        packed = extract_storages(outputs)
        sizes = [len(block) for block in packed["blocks"]]
        self.child.call(f"{WORKER_MODULE}:load_null_program", {"leaves": packed["leaves"], "sizes": sizes})
        input_bytes = sum(one.nbytes for each in inputs for one in tensor_leaves(each))
        num_calls = min(calls, MIN_NULL_CALLS) if input_bytes >= LARGE_INPUT_BYTES else calls
        timed_calls = [
            self._run_series(inputs, read_outputs=False, chained=chained).timed_call for _ in range(num_calls)
        ]
        self.timer.calibrate_write_time()
        return timed_calls

    def call(
        self,
        inputs: Args,
        *,
        read_outputs: bool,
        poison: bool = False,
        poll_hook: PollHook | None = None,
        trace: bool = False,
        seed: int | None = None,
        same_address: bool = False,
    ) -> CallResult:
        """Make one call with these inputs.

        Args:
            read_outputs: read the whole outputs; else the call is only timed.
            poison: make memory that was never written read as NaN; slows the call down.
            poll_hook: called while the call runs; slows the call down.
            trace: report the kernels that ran on the device; slows the call down.
            seed: of the random number generators in the call; None draws one, for calls that are not checked.
            same_address: place the inputs where those of the call before were.
        Raises:
            LimitError, TaskError: the candidate raised, or was stopped.
            TamperingError: its reply is not valid.
        """
        with candidate_at_fault():
            series = self._run_series(
                [inputs],
                read_outputs=read_outputs,
                poison=poison,
                poll_hook=poll_hook,
                trace=trace,
                seed=seed,
                same_address=same_address,
            )
        return CallResult(series.observed[0] if series.observed else None, series.timed_call, series.kernels)

    def call_series(
        self,
        inputs: Sequence[Args],
        *,
        read_outputs: bool,
        structure: str,
        seed: int | None = None,
        chained: Sequence[ChainedLeaf] = (),
    ) -> SeriesResult:
        """Make consecutive calls in one timed call, each with its own inputs, after flushing `cache_flush_bytes` from
        the caches. The verifier polls rarely while they run, so that it does not disturb the time.

        Args:
            inputs: where outputs are read, those of the chained leaves are changed to what the calls had.
            structure: of one result.
            seed: of the random number generators before the first call; None draws one.
            chained: for each leaf of the arguments, what the chain of calls does with it; empty without a chain.
        Raises:
            LimitError, TaskError, TamperingError: as `call`.
        """
        with candidate_at_fault():
            series = self._run_series(inputs, read_outputs=read_outputs, undisturbed=True, seed=seed, chained=chained)
        for one in series.observed:
            one.structure = structure if one.structure == series_structure(structure, len(inputs)) else one.structure
        return series

    def _run_series(
        self,
        inputs: Sequence[Args],
        *,
        read_outputs: bool,
        poison: bool = False,
        poll_hook: PollHook | None = None,
        undisturbed: bool = False,
        trace: bool = False,
        chained: Sequence[ChainedLeaf] = (),
        seed: int | None = None,
        same_address: bool = False,
    ) -> SeriesResult:
        """Run consecutive calls; no observed calls without `read_outputs`."""
        self._expected_sizes = self.output_sizes_bytes * len(inputs)
        seed = secrets.randbits(SEED_BITS) if seed is None else seed
        number = self.timer.next_call(len(self._expected_sizes), seed)
        packed = extract_storages([leaf for one in inputs for leaf in pytree.tree_leaves(one)])
        blocks = self._place_blocks([len(block) for block in packed["blocks"]], same_address=same_address)
        chain = make_chain(packed["leaves"], chained, len(inputs))
        request = {
            "number": number,
            "calls": len(inputs),
            "blocks": blocks,
            "leaves": packed["leaves"],
            "gradients": self.requires_grad or any(leaf.get("gradient") for leaf in packed["leaves"]),
            "poison": self.output_sizes_bytes if poison else None,
            "rewritten": self._state_rewritten,
            "trace": trace,
            "kept": self.kept.plan_call(),
            "chain": chain and chain.request(blocks),
            "copies": self.copies_outputs,
            "seed": seed if self.memory.device != "cpu" else 0,  # on the host it comes with the start signal
        }
        self._state_rewritten = False
        with nullcontext() if poison else self.memory.lock_device():
            self.timer.before_request()
            self.child.start_call(f"{WORKER_MODULE}:call", request)
            if not self.timer.wait_until_ready():
                self._raise_worker_error()
            with self._translate_write_errors():
                writes, snapshot = self._prepare_writes(packed["blocks"], blocks)
                timed_call, status = self.timer.time_call(
                    writes, snapshot, poll_hook=poll_hook, undisturbed=undisturbed
                )
        if status is None or status.raised:
            self._raise_worker_error()
        stopped_read = None
        if read_outputs:
            stopped_read = self._read_stopped(number, status, snapshot, blocks, is_series=len(inputs) > 1)
        else:
            self.kept.skip()
        reply = self.child.wait_result()
        report = parse_untrusted(reply, CallReport)
        if (
            stopped_read
            and [leaf.extent for leaf in report.leaves.values() if leaf.extent][: len(status.extents)] != status.extents
        ):
            raise TamperingError("output addresses changed after the call")
        digests = {path: digest_leaf(reply["leaves"][path]) for path, leaf in report.leaves.items() if not leaf.extent}
        if status.num_extents < MAX_EXTENTS and status.digests != [*digests.values()]:
            raise TamperingError("an output that is not in memory changed after the call")
        if chain and stopped_read:
            outputs = outputs_by_call(report, digests, stopped_read, len(inputs))
            chain.repeat(outputs, stopped_read.inputs, packed["blocks"])
        self.memory.map_segments(report.segments)
        state = self._read_changed_state(report) if read_outputs else {}
        self._restore_state(self._changed_names)
        observed = (
            make_observed_calls(report, stopped_read, packed, blocks, inputs, self._reread_leaves)
            if stopped_read
            else []
        )
        if observed:
            observed[-1].changed_state = state
        return SeriesResult(observed, timed_call, report.kernels)

    def set_state(self, state: State) -> None:
        """Set parameters and buffers for this and later calls; names that the program does not have are ignored."""
        for name, value in state.items():
            if name in self.state:
                self.state[name].copy_(value)
        self._restore_state(self.state)

    def _restore_state(self, names: Iterable[str]) -> None:
        for name in names:
            descriptor, self._state_rewritten = self._state_descriptors[name], True
            if descriptor.extent and descriptor.extent[1]:
                whole = self.memory.read(descriptor.extent)
                view_as_tensor(whole, descriptor).copy_(self.state[name])
                with self._translate_write_errors():
                    self.memory.write(descriptor.extent[0], whole)

    @contextlib.contextmanager
    def _translate_write_errors(self) -> Iterator[None]:
        """Translate errors of writes: the candidate's process may exit or unmap its memory at any time.

        Raises:
            CrashError: the process has exited.
            TamperingError: the process runs, and the memory is not mapped any more.
        """
        try:
            yield
        except ProcessLookupError:
            self.child.raise_crash()
        except OSError as error:
            raise TamperingError(f"the process unmapped the memory of its inputs: {error}") from error

    def _read_changed_state(self, report: CallReport) -> State:
        """Parameters and buffers that the call changed, read at their reported addresses, else at the earlier ones."""
        state = self._read_state(
            self._state_descriptors
            | {
                name: report.state_descriptors[name]
                for name in self._state_descriptors
                if name in report.state_descriptors
            }
        )
        changed = {name: value for name, value in state.items() if not bitwise_equal(value, self.state[name])}
        self._changed_names |= changed.keys()
        return changed

    def _read_state(self, descriptors: dict[str, LeafDescriptor]) -> State:
        return {
            name: decode_leaf(descriptor, self._read_extents([descriptor])) for name, descriptor in descriptors.items()
        }

    def _place_blocks(self, sizes: Sequence[int], *, same_address: bool = False) -> list[list[int]]:
        """[address, bytes] for blocks of these sizes between redzones, at a random or a reused address in the arena."""
        alignment_bytes = self.memory.alignment_bytes
        total_bytes = sum(self._align_size(size) + 2 * REDZONE_BYTES for size in sizes)
        if self._arena[1] < 2 * total_bytes:
            self._arena = self.memory.allocate_arena(3 * total_bytes), 3 * total_bytes
            self._arena_starts.clear()
        num_starts, rng = 1 + (self._arena[1] - total_bytes) // alignment_bytes, random.SystemRandom()
        reusable = [start for start in self._arena_starts if start + total_bytes <= sum(self._arena)]
        reuse = reusable and (same_address or rng.random() < ADDRESS_REUSE_SHARE)
        reusable = reusable[-1:] if same_address else reusable
        start = rng.choice(reusable) if reuse else self._arena[0] + alignment_bytes * rng.randrange(num_starts)
        self._arena_starts.append(start)
        placed = []
        for size in sizes:
            placed.append([start + REDZONE_BYTES, size])
            start += self._align_size(size) + 2 * REDZONE_BYTES
        return placed

    def _prepare_writes(
        self, blocks: list[Tensor], addresses: list[list[int]]
    ) -> tuple[list[tuple[int, Tensor]], Snapshot]:
        """Fill the redzones; the addresses and data to write, and the snapshot to be taken."""
        for address, size in addresses:
            after = REDZONE_BYTES + self._align_size(size) - size
            self.memory.fill_redzones(
                (address - REDZONE_BYTES, REDZONE_BYTES), (address, size), (address + size, after)
            )
        snapshot = self.memory.make_snapshot(self._expected_sizes, [(address, size) for address, size in addresses])
        return [(address, block) for (address, _), block in zip(addresses, blocks, strict=True)], snapshot

    def _align_size(self, size: int) -> int:
        return -(-size // self.memory.alignment_bytes) * self.memory.alignment_bytes

    def _read_stopped(
        self, number: int, status: CallStatus, snapshot: Snapshot, blocks: list[list[int]], *, is_series: bool
    ) -> StoppedRead:
        """Read everything while all threads of the candidate's process are stopped."""
        self.child.stop()
        faulty = ""
        try:
            extents = self._read_outputs(status.extents)
            if self.memory.device == "cpu":
                faulty = find_shared_page(self.child.pid, extents)
                faulty = faulty and f"an output {faulty}"
            own, in_state = self._own_extents(extents)
            self.kept.add(number, own, in_state=in_state, is_series=is_series)
            input_blocks = [self.memory.read((at - REDZONE_BYTES, size + 2 * REDZONE_BYTES)) for at, size in blocks]
            self.child.check_stopped()
        finally:
            self.child.resume()
        read = extents | {
            (at - REDZONE_BYTES, len(whole)): whole for (at, _), whole in zip(blocks, input_blocks, strict=True)
        }
        if self.kept.overwritten is not None:
            later = number - self.kept.overwritten
            faulty = faulty or f"the output of an earlier call was overwritten within {later} calls"
        return StoppedRead(extents, input_blocks, snapshot.matches(read), faulty)

    def _own_extents(self, extents: dict[Extent, Tensor]) -> tuple[dict[Extent, Tensor], bool]:
        """Those that are neither in an input nor in the program's state, which the verifier overwrites; and whether
        some are in the state."""
        outside = {extent: value for extent, value in extents.items() if not overlap(extent, self._arena)}
        state = [one.extent for one in self._state_descriptors.values() if one.extent]
        own = {extent: value for extent, value in outside.items() if not any(overlap(extent, other) for other in state)}
        return own, len(own) < len(outside)

    def _reread_leaves(self, leaves: dict[str, LeafDescriptor]) -> dict[str, Any]:
        """The leaves after a delay, in which late writes may have arrived."""
        pause(REREAD_DELAY_S)
        return {path: decode_leaf(leaf, self._read_extents([leaf])) for path, leaf in leaves.items()}

    def _read_outputs(self, extents: list[Extent]) -> dict[Extent, Tensor]:
        """The readable extents; none where their total size is not plausible for correct outputs."""
        read = {}
        for extent in extents if have_plausible_sizes(extents, self._expected_sizes) else []:
            with contextlib.suppress(TamperingError):
                read[extent] = self.memory.read(extent)
        return read

    def _read_extents(self, leaves: Iterable[LeafDescriptor]) -> dict[Extent, Tensor]:
        return {leaf.extent: self.memory.read(leaf.extent) for leaf in leaves if leaf.extent}

    def _raise_worker_error(self) -> NoReturn:
        """Raise the error that the worker reports; any other reply is tampering."""
        self.child.wait_result()
        raise TamperingError("the worker replied before the call was over")


def series_structure(structure: str, calls: int) -> str:
    """The structure of the list of results of a series."""
    return structure if calls == 1 else f"[{', '.join([structure] * calls)}]"
