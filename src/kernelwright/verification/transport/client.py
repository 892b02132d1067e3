"""The judge's end of a call: values go into the candidate's process from outside, outputs come out of it, and the
judge's own clock runs from the one to the other.

The candidate stands still while its inputs are written. The moment it says that it is done, pieces of its outputs are
read at places drawn by chance: what was not there yet is seen when the whole is read afterwards, with every thread of
it stopped. Calls that are looked at and calls that are not are alike to the candidate.

On a device nothing can be stopped, but it can be made to wait: the host launches what it likes, and when it has had
time for that, the judge writes the inputs and lets the device go. Outputs are copied whole at the end, by the judge,
after whatever of the candidate's still ran, for a device takes its processes in turns; hence the inputs are nobody's
to see while the judge still writes.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.errors import TamperingError
from kernelwright.measure.clock_agreement import TimedCall
from kernelwright.measure.trace import DeviceKernel
from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.sandbox import Child
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.attacks.redzone import POISON_BYTE, REDZONE_BYTES
from kernelwright.verification.execution import ObservedCall, find_mutations
from kernelwright.verification.transport.call_report import (
    CallReport,
    LeafDescriptor,
    decode_leaf,
    decode_leaf_or_error,
    parse_untrusted,
    view_as_tensor,
)
from kernelwright.verification.transport.control_block import CallStatus, Extent
from kernelwright.verification.transport.device_memory import Segment
from kernelwright.verification.transport.external_timer import ExternalTimer, PollHook
from kernelwright.verification.transport.remote_memory import RemoteMemory
from kernelwright.verification.transport.snapshot import Snapshot, have_plausible_sizes
from kernelwright.verification.transport.state import State, bitwise_equal
from kernelwright.verification.transport.tensor_codec import Packed, extract_storages, rebuild_views

WORKER_MODULE = "kernelwright.verification.worker.tasks"
ADDRESS_REUSE_SHARE = 0.3
"""So many calls find their inputs where those of an earlier one lay: what was kept by address is then wrong."""
REREAD_DELAY_S = 0.25
MIN_NULL_CALLS, LARGE_INPUT_BYTES = 5, 32 << 20
"""So few empty calls are enough where each is given so much that it takes milliseconds."""


@dataclass(frozen=True)
class CallResult:
    """What a call gave.

    Attributes:
        observed: None where the outputs were not looked at.
        timed_call: the judge's time of it.
        kernels: as `CallReport` has them.
    """

    observed: ObservedCall | None
    timed_call: TimedCall
    kernels: list[DeviceKernel]


@dataclass(frozen=True)
class SeriesResult:
    """What calls one after the other gave: as `CallResult`, of all of them together."""

    observed: list[ObservedCall]
    timed_call: TimedCall
    kernels: list[DeviceKernel]


@dataclass(frozen=True)
class _StoppedRead:
    """What was read while the candidate stood still: outputs, and blocks of inputs with their margins."""

    extents: dict[Extent, Tensor]
    blocks: list[Tensor]
    unchanged: bool


@dataclass
class CandidateClient:
    """Calls one program in one child.

    Args:
        child: in which `worker.open_problem` has run.
        control_block: its address there.
        memory: of its memory.
        output_sizes_bytes: of the outputs to come.
    Attributes:
        timer: by which every call is timed.
        requires_grad: record them in every call.
        state: parameters and buffers as every call finds them.
    """

    child: Child
    control_block: int
    memory: RemoteMemory
    output_sizes_bytes: list[int] = field(default_factory=list)
    requires_grad: bool = False
    state: State = field(default_factory=dict)
    _state_descriptors: dict[str, LeafDescriptor] = field(default_factory=dict)
    _changed_names: set[str] = field(default_factory=set)
    _expected_sizes: list[int] = field(default_factory=list)
    _arena: Extent = (0, 0)
    _arena_starts: list[int] = field(default_factory=list)
    _state_rewritten: bool = False

    def __post_init__(self) -> None:
        self.timer = ExternalTimer(self.child, self.control_block, self.memory)

    def load(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Has a program loaded by a task that answers as `worker.held` does; gives its answer."""
        told = self.child.build(task, payload)
        self.memory.map_segments(parse_untrusted(told["segments"], list[Segment]))
        self._state_descriptors = parse_untrusted(told["state_descriptors"], dict[str, LeafDescriptor])
        self.state = self._read_state(self._state_descriptors)
        return told

    def time_null_calls(self, inputs: Sequence[Args], outputs: list[Tensor], calls: int) -> list[TimedCall]:
        """The windows of calls that compute nothing and return as much, for a child without a program yet; of series of
        calls where there are several inputs. Of few where each is given much."""
        held = extract_storages(outputs)
        sizes = [len(block) for block in held["blocks"]]
        self.child.call(f"{WORKER_MODULE}:load_null_program", {"leaves": held["leaves"], "sizes": sizes})
        given = sum(one.nbytes for each in inputs for one in tensor_leaves(each))
        enough = min(calls, MIN_NULL_CALLS) if given >= LARGE_INPUT_BYTES else calls
        windows = [self._run_series(inputs, read_outputs=False).timed_call for _ in range(enough)]
        self.timer.calibrate_write_time()
        return windows

    def call(
        self,
        inputs: Args,
        *,
        read_outputs: bool,
        poison: bool = False,
        poll_hook: PollHook | None = None,
        trace: bool = False,
    ) -> CallResult:
        """One call with these inputs.

        Args:
            read_outputs: read the outputs whole; else only the clock is looked at.
            poison: memory that was never written reads as NaN, at the cost of time.
            poll_hook: asked while the call runs, at the cost of time.
            trace: the worker tells what kernels ran on the device, at the cost of time.
        Raises:
            LimitError, TaskError: the candidate raised, or was stopped.
            ForgedError: it tells what is not so.
        """
        made = self._run_series([inputs], read_outputs=read_outputs, poison=poison, poll_hook=poll_hook, trace=trace)
        return CallResult(made.observed[0] if made.observed else None, made.timed_call, made.kernels)

    def call_series(self, inputs: Sequence[Args], *, read_outputs: bool, structure: str) -> SeriesResult:
        """Calls one after the other in one window, each with inputs of its own; a cache of `cache_flush_bytes` holds
        none of them. For times: the judge leaves the processors alone meanwhile.

        Args:
            structure: of one result.
        Raises:
            LimitError, TaskError, ForgedError: as `call`.
        """
        made = self._run_series(inputs, read_outputs=read_outputs, undisturbed=True)
        for one in made.observed:
            one.structure = structure if one.structure == series_structure(structure, len(inputs)) else one.structure
        return made

    def _run_series(
        self,
        inputs: Sequence[Args],
        *,
        read_outputs: bool,
        poison: bool = False,
        poll_hook: PollHook | None = None,
        undisturbed: bool = False,
        trace: bool = False,
    ) -> SeriesResult:
        """What the calls gave, nothing where nobody looks."""
        self._expected_sizes = self.output_sizes_bytes * len(inputs)
        number = self.timer.next_call(num_outputs=len(self._expected_sizes))
        packed = extract_storages([leaf for one in inputs for leaf in pytree.tree_leaves(one)])
        blocks = self._place_blocks([len(block) for block in packed["blocks"]])
        order = {
            "number": number,
            "calls": len(inputs),
            "blocks": blocks,
            "leaves": packed["leaves"],
            "gradients": self.requires_grad or any(leaf.get("gradient") for leaf in packed["leaves"]),
            "poison": self.output_sizes_bytes if poison else None,
            "rewritten": self._state_rewritten,
            "trace": trace,
        }
        self._state_rewritten = False
        with nullcontext() if poison else self.memory.lock_device():
            self.child.start_call(f"{WORKER_MODULE}:call", order)
            if not self.timer.wait_until_ready():
                self._raise_worker_error()
            with self._translate_write_errors():
                writes, glance = self._prepare_writes(packed["blocks"], blocks)
                window, letter = self.timer.time_call(writes, glance, poll_hook=poll_hook, undisturbed=undisturbed)
        if letter is None or letter.raised:
            self._raise_worker_error()
        seen = self._read_stopped(letter, glance, blocks) if read_outputs else None
        told = parse_untrusted(self.child.wait_result(), CallReport)
        if (
            seen
            and [leaf.extent for leaf in told.leaves.values() if leaf.extent][: len(letter.extents)] != letter.extents
        ):
            raise TamperingError("outputs lie elsewhere than was said when the call was over")
        self.memory.map_segments(told.segments)
        state = self._read_changed_state(told) if read_outputs else {}
        self._restore_state(self._changed_names)
        observed = _make_observed_calls(told, seen, packed, inputs, self._reread_leaves) if seen else []
        if observed:
            observed[-1].changed_state = state
        return SeriesResult(observed, window, told.kernels)

    def set_state(self, state: State) -> None:
        """Gives parameters and buffers other values for this and later calls, those that the program has."""
        for name, value in state.items():
            if name in self.state:
                self.state[name].copy_(value)
        self._restore_state(self.state)

    def _restore_state(self, names: Iterable[str]) -> None:
        for name in names:
            place, self._state_rewritten = self._state_descriptors[name], True
            if place.extent and place.extent[1]:
                whole = self.memory.read(place.extent)
                view_as_tensor(whole, place).copy_(self.state[name])
                with self._translate_write_errors():
                    self.memory.write(place.extent[0], whole)

    @contextlib.contextmanager
    def _translate_write_errors(self) -> Iterator[None]:
        """The candidate's process may end, or unmap its memory, at any moment: while we write into it, too.

        Raises:
            CrashError: it has ended.
            ForgedError: it lives, and what we write to is not there any more.
        """
        try:
            yield
        except ProcessLookupError:
            self.child.raise_crash()
        except OSError as fault:
            raise TamperingError(f"memory that the process gave for its inputs is not there: {fault}") from fault

    def _read_changed_state(self, report: CallReport) -> State:
        """Parameters and buffers that differ from before the call: in their places, or where they lie now."""
        now = self._read_state(
            self._state_descriptors
            | {
                name: report.state_descriptors[name]
                for name in self._state_descriptors
                if name in report.state_descriptors
            }
        )
        changed = {name: value for name, value in now.items() if not bitwise_equal(value, self.state[name])}
        self._changed_names |= changed.keys()
        return changed

    def _read_state(self, descriptors: dict[str, LeafDescriptor]) -> State:
        return {name: decode_leaf(place, self._read_extents([place])) for name, place in descriptors.items()}

    def _place_blocks(self, sizes: Sequence[int]) -> list[list[int]]:
        """[address, bytes] for blocks of these sizes, with margins: anywhere in the arena, or where some lay."""
        aligned = self.memory.alignment_bytes
        room = sum(self._align_size(size) + 2 * REDZONE_BYTES for size in sizes)
        if self._arena[1] < 2 * room:
            self._arena = self.memory.allocate_arena(3 * room), 3 * room
            self._arena_starts.clear()
        steps, chance = 1 + (self._arena[1] - room) // aligned, random.SystemRandom()
        known = [start for start in self._arena_starts if start + room <= sum(self._arena)]
        again = known and chance.random() < ADDRESS_REUSE_SHARE
        start = chance.choice(known) if again else self._arena[0] + aligned * chance.randrange(steps)
        self._arena_starts.append(start)
        placed = []
        for size in sizes:
            placed.append([start + REDZONE_BYTES, size])
            start += self._align_size(size) + 2 * REDZONE_BYTES
        return placed

    def _prepare_writes(
        self, blocks: list[Tensor], addresses: list[list[int]]
    ) -> tuple[list[tuple[int, Tensor]], Snapshot]:
        """What is to be written and where, between margins that are; and what will be looked at."""
        for address, size in addresses:
            after = REDZONE_BYTES + self._align_size(size) - size
            self.memory.fill_redzones(
                (address - REDZONE_BYTES, REDZONE_BYTES), (address, size), (address + size, after)
            )
        glance = self.memory.make_snapshot(self._expected_sizes, [(address, size) for address, size in addresses])
        return [(address, block) for (address, _), block in zip(addresses, blocks, strict=True)], glance

    def _align_size(self, size: int) -> int:
        return -(-size // self.memory.alignment_bytes) * self.memory.alignment_bytes

    def _read_stopped(self, status: CallStatus, snapshot: Snapshot, blocks: list[list[int]]) -> _StoppedRead:
        """Reads everything while nothing in the candidate's process can move."""
        self.child.stop()
        try:
            extents = self._read_outputs(status.extents)
            around = [self.memory.read((at - REDZONE_BYTES, size + 2 * REDZONE_BYTES)) for at, size in blocks]
            self.child.check_stopped()
        finally:
            self.child.resume()
        read = extents | {
            (at - REDZONE_BYTES, len(whole)): whole for (at, _), whole in zip(blocks, around, strict=True)
        }
        return _StoppedRead(extents, around, snapshot.matches(read))

    def _reread_leaves(self, leaves: dict[str, LeafDescriptor]) -> dict[str, Any]:
        """The leaves as they are a while later: what was late may have come."""
        pause(REREAD_DELAY_S)
        return {path: decode_leaf(leaf, self._read_extents([leaf])) for path, leaf in leaves.items()}

    def _read_outputs(self, extents: list[Extent]) -> dict[Extent, Tensor]:
        """Each that can be read; none where they are larger together than any right ones could be."""
        read = {}
        for extent in extents if have_plausible_sizes(extents, self._expected_sizes) else []:
            with contextlib.suppress(TamperingError):
                read[extent] = self.memory.read(extent)
        return read

    def _read_extents(self, leaves: Iterable[LeafDescriptor]) -> dict[Extent, Tensor]:
        return {leaf.extent: self.memory.read(leaf.extent) for leaf in leaves if leaf.extent}

    def _raise_worker_error(self) -> NoReturn:
        """Raises what the worker says went wrong; that it says anything else is a forgery."""
        self.child.wait_result()
        raise TamperingError("an answer came before the call was over")


def series_structure(structure: str, calls: int) -> str:
    """The structure of what so many calls gave."""
    return structure if calls == 1 else f"[{', '.join([structure] * calls)}]"


def _make_observed_calls(
    report: CallReport,
    read: _StoppedRead,
    packed: Packed,
    inputs: Sequence[Args],
    reread: Callable[[dict[str, LeafDescriptor]], dict[str, Any]],
) -> list[ObservedCall]:
    """What each call gave."""
    inner = [block[REDZONE_BYTES : len(block) - REDZONE_BYTES].clone() for block in read.blocks]
    broken = {at for at, block in enumerate(read.blocks) if not _redzones_intact(block)}
    after = rebuild_views(packed["leaves"], [block.untyped_storage() for block in inner])
    mutated, outside = find_mutations(packed, after, lambda: tensor_leaves(inputs), broken)
    each, found = len(tensor_leaves(inputs[0])), []
    for number in range(len(inputs)):
        prefix = f"[{number}]" if len(inputs) > 1 else ""
        leaves = {path.removeprefix(prefix): one for path, one in report.leaves.items() if path.startswith(prefix)}
        own = range(number * each, (number + 1) * each)
        found.append(
            ObservedCall(
                structure=report.structure,
                leaves={path: decode_leaf_or_error(path, leaf, read.extents) for path, leaf in leaves.items()},
                devices={path: leaf.device for path, leaf in leaves.items()},
                mutated_inputs={at - own.start: value for at, value in mutated.items() if at in own},
                out_of_bounds_inputs=[at - own.start for at in outside if at in own],
                complete_on_return=read.unchanged and report.is_stream_ordered,
                sent_paths=tuple(path for path, leaf in leaves.items() if leaf.sent is not None),
                reread_leaves=functools.partial(reread, leaves),
            )
        )
    return found


def _redzones_intact(block: Tensor) -> bool:
    return all(bool((margin == POISON_BYTE).all()) for margin in (block[:REDZONE_BYTES], block[-REDZONE_BYTES:]))
