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

from kernelwright.core.errors import ForgedError
from kernelwright.measure.clock_agreement import Window
from kernelwright.measure.trace import DeviceKernel
from kernelwright.problems.problem import Args, tensors
from kernelwright.sandbox import Child
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.attacks.redzone import MARGIN_BYTES, POISON_BYTE
from kernelwright.verification.execution import Observed, changes
from kernelwright.verification.transport.call_report import Leaf, Told, converted, value_of, value_or_fault, view_of
from kernelwright.verification.transport.control_block import Extent, Letter
from kernelwright.verification.transport.device_memory import Segment
from kernelwright.verification.transport.external_timer import Peek, Watch
from kernelwright.verification.transport.remote_memory import Reach
from kernelwright.verification.transport.snapshot import Glance, are_plausible
from kernelwright.verification.transport.state import State, same_bits
from kernelwright.verification.transport.tensor_codec import Packed, hold, views

TASKS = "kernelwright.verification.worker.tasks"
SAME_PLACE_SHARE = 0.3
"""So many calls find their inputs where those of an earlier one lay: what was kept by address is then wrong."""
LATE_S = 0.25
LEAST_EMPTY, MANY_BYTES = 5, 32 << 20
"""So few empty calls are enough where each is given so much that it takes milliseconds."""


@dataclass(frozen=True)
class Answer:
    """What a call gave.

    Attributes:
        observed: None where the outputs were not looked at.
        window: the judge's time of it.
        kernels: as `Told` has them.
    """

    observed: Observed | None
    window: Window
    kernels: list[DeviceKernel]


@dataclass(frozen=True)
class Series:
    """What calls one after the other gave: as `Answer`, of all of them together."""

    observed: list[Observed]
    window: Window
    kernels: list[DeviceKernel]


@dataclass(frozen=True)
class _Seen:
    """What was read while the candidate stood still: outputs, and blocks of inputs with their margins."""

    extents: dict[Extent, Tensor]
    around: list[Tensor]
    finished: bool


@dataclass
class Line:
    """Calls one program in one child.

    Args:
        child: in which `worker.open_problem` has run.
        mailbox: its address there.
        reach: of its memory.
        sizes_bytes: of the outputs to come.
    Attributes:
        watch: by which every call is timed.
        gradients: record them in every call.
        state: parameters and buffers as every call finds them.
    """

    child: Child
    mailbox: int
    reach: Reach
    sizes_bytes: list[int] = field(default_factory=list)
    gradients: bool = False
    state: State = field(default_factory=dict)
    _places: dict[str, Leaf] = field(default_factory=dict)
    _changing: set[str] = field(default_factory=set)
    _expected: list[int] = field(default_factory=list)
    _arena: Extent = (0, 0)
    _starts: list[int] = field(default_factory=list)
    _rewritten: bool = False

    def __post_init__(self) -> None:
        self.watch = Watch(self.child, self.mailbox, self.reach)

    def load(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Has a program loaded by a task that answers as `worker.held` does; gives its answer."""
        told = self.child.build(task, payload)
        self.reach.learn(converted(told["segments"], list[Segment]))
        self._places = converted(told["places"], dict[str, Leaf])
        self.state = self._read_state(self._places)
        return told

    def empty_windows(self, inputs: Sequence[Args], outputs: list[Tensor], calls: int) -> list[Window]:
        """The windows of calls that compute nothing and return as much, for a child without a program yet; of series of
        calls where there are several inputs. Of few where each is given much."""
        held = hold(outputs)
        sizes = [len(block) for block in held["blocks"]]
        self.child.call(f"{TASKS}:load_null", {"leaves": held["leaves"], "sizes": sizes})
        given = sum(one.nbytes for each in inputs for one in tensors(each))
        enough = min(calls, LEAST_EMPTY) if given >= MANY_BYTES else calls
        windows = [self._made(inputs, look=False).window for _ in range(enough)]
        self.watch.remember_writing()
        return windows

    def call(
        self, inputs: Args, *, look: bool, poison: bool = False, peek: Peek | None = None, trace: bool = False
    ) -> Answer:
        """One call with these inputs.

        Args:
            look: read the outputs whole; else only the clock is looked at.
            poison: memory that was never written reads as NaN, at the cost of time.
            peek: asked while the call runs, at the cost of time.
            trace: the worker tells what kernels ran on the device, at the cost of time.
        Raises:
            LimitError, TaskError: the candidate raised, or was stopped.
            ForgedError: it tells what is not so.
        """
        made = self._made([inputs], look=look, poison=poison, peek=peek, trace=trace)
        return Answer(made.observed[0] if made.observed else None, made.window, made.kernels)

    def series(self, inputs: Sequence[Args], *, look: bool, outline: str) -> Series:
        """Calls one after the other in one window, each with inputs of its own; a cache of `cache_bytes` holds none of
        them. For times: the judge leaves the processors alone meanwhile.

        Args:
            outline: of one result.
        Raises:
            LimitError, TaskError, ForgedError: as `call`.
        """
        made = self._made(inputs, look=look, steady=True)
        for one in made.observed:
            one.outline = outline if one.outline == series_outline(outline, len(inputs)) else one.outline
        return made

    def _made(
        self,
        inputs: Sequence[Args],
        *,
        look: bool,
        poison: bool = False,
        peek: Peek | None = None,
        steady: bool = False,
        trace: bool = False,
    ) -> Series:
        """What the calls gave, nothing where nobody looks."""
        self._expected = self.sizes_bytes * len(inputs)
        number = self.watch.next(outputs=len(self._expected))
        packed = hold([leaf for one in inputs for leaf in pytree.tree_leaves(one)])
        blocks = self._placed([len(block) for block in packed["blocks"]])
        order = {
            "number": number,
            "calls": len(inputs),
            "blocks": blocks,
            "leaves": packed["leaves"],
            "gradients": self.gradients or any(leaf.get("gradient") for leaf in packed["leaves"]),
            "poison": self.sizes_bytes if poison else None,
            "rewritten": self._rewritten,
            "trace": trace,
        }
        self._rewritten = False
        with nullcontext() if poison else self.reach.alone():
            self.child.start(f"{TASKS}:call", order)
            if not self.watch.is_ready():
                self._raise_fault()
            with self._writing():
                writes, glance = self._prepared(packed["blocks"], blocks)
                window, letter = self.watch.time(writes, glance, peek=peek, steady=steady)
        if letter is None or letter.raised:
            self._raise_fault()
        seen = self._look(letter, glance, blocks) if look else None
        told = converted(self.child.answer(), Told)
        if (
            seen
            and [leaf.extent for leaf in told.leaves.values() if leaf.extent][: len(letter.extents)] != letter.extents
        ):
            raise ForgedError("outputs lie elsewhere than was said when the call was over")
        self.reach.learn(told.segments)
        state = self._changed_state(told) if look else {}
        self._restore(self._changing)
        observed = _observed(told, seen, packed, inputs, self._read_later) if seen else []
        if observed:
            observed[-1].state = state
        return Series(observed, window, told.kernels)

    def set_state(self, state: State) -> None:
        """Gives parameters and buffers other values for this and later calls, those that the program has."""
        for name, value in state.items():
            if name in self.state:
                self.state[name].copy_(value)
        self._restore(self.state)

    def _restore(self, names: Iterable[str]) -> None:
        for name in names:
            place, self._rewritten = self._places[name], True
            if place.extent and place.extent[1]:
                whole = self.reach.read(place.extent)
                view_of(whole, place).copy_(self.state[name])
                with self._writing():
                    self.reach.write(place.extent[0], whole)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
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
            raise ForgedError(f"memory that the process gave for its inputs is not there: {fault}") from fault

    def _changed_state(self, told: Told) -> State:
        """Parameters and buffers that differ from before the call: in their places, or where they lie now."""
        now = self._read_state(self._places | {name: told.places[name] for name in self._places if name in told.places})
        changed = {name: value for name, value in now.items() if not same_bits(value, self.state[name])}
        self._changing |= changed.keys()
        return changed

    def _read_state(self, places: dict[str, Leaf]) -> State:
        return {name: value_of(place, self._read_all([place])) for name, place in places.items()}

    def _placed(self, sizes: Sequence[int]) -> list[list[int]]:
        """[address, bytes] for blocks of these sizes, with margins: anywhere in the arena, or where some lay."""
        aligned = self.reach.aligned_bytes
        room = sum(self._aligned(size) + 2 * MARGIN_BYTES for size in sizes)
        if self._arena[1] < 2 * room:
            self._arena = self.reach.make_arena(3 * room), 3 * room
            self._starts.clear()
        steps, chance = 1 + (self._arena[1] - room) // aligned, random.SystemRandom()
        known = [start for start in self._starts if start + room <= sum(self._arena)]
        again = known and chance.random() < SAME_PLACE_SHARE
        start = chance.choice(known) if again else self._arena[0] + aligned * chance.randrange(steps)
        self._starts.append(start)
        placed = []
        for size in sizes:
            placed.append([start + MARGIN_BYTES, size])
            start += self._aligned(size) + 2 * MARGIN_BYTES
        return placed

    def _prepared(self, blocks: list[Tensor], places: list[list[int]]) -> tuple[list[tuple[int, Tensor]], Glance]:
        """What is to be written and where, between margins that are; and what will be looked at."""
        for address, size in places:
            after = MARGIN_BYTES + self._aligned(size) - size
            self.reach.clear((address - MARGIN_BYTES, MARGIN_BYTES), (address, size), (address + size, after))
        glance = self.reach.glance(self._expected, [(address, size) for address, size in places])
        return [(address, block) for (address, _), block in zip(places, blocks, strict=True)], glance

    def _aligned(self, size: int) -> int:
        return -(-size // self.reach.aligned_bytes) * self.reach.aligned_bytes

    def _look(self, letter: Letter, glance: Glance, blocks: list[list[int]]) -> _Seen:
        """Reads everything while nothing in the candidate's process can move."""
        self.child.stop()
        try:
            extents = self._read_outputs(letter.extents)
            around = [self.reach.read((at - MARGIN_BYTES, size + 2 * MARGIN_BYTES)) for at, size in blocks]
            self.child.stood()
        finally:
            self.child.resume()
        read = extents | {(at - MARGIN_BYTES, len(whole)): whole for (at, _), whole in zip(blocks, around, strict=True)}
        return _Seen(extents, around, glance.agree_with(read))

    def _read_later(self, leaves: dict[str, Leaf]) -> dict[str, Any]:
        """The leaves as they are a while later: what was late may have come."""
        pause(LATE_S)
        return {path: value_of(leaf, self._read_all([leaf])) for path, leaf in leaves.items()}

    def _read_outputs(self, wanted: list[Extent]) -> dict[Extent, Tensor]:
        """Each that can be read; none where they are larger together than any right ones could be."""
        read = {}
        for extent in wanted if are_plausible(wanted, self._expected) else []:
            with contextlib.suppress(ForgedError):
                read[extent] = self.reach.read(extent)
        return read

    def _read_all(self, leaves: Iterable[Leaf]) -> dict[Extent, Tensor]:
        return {leaf.extent: self.reach.read(leaf.extent) for leaf in leaves if leaf.extent}

    def _raise_fault(self) -> NoReturn:
        """Raises what the worker says went wrong; that it says anything else is a forgery."""
        self.child.answer()
        raise ForgedError("an answer came before the call was over")


def series_outline(outline: str, calls: int) -> str:
    """The structure of what so many calls gave."""
    return outline if calls == 1 else f"[{', '.join([outline] * calls)}]"


def _observed(
    told: Told,
    seen: _Seen,
    packed: Packed,
    inputs: Sequence[Args],
    later: Callable[[dict[str, Leaf]], dict[str, Any]],
) -> list[Observed]:
    """What each call gave."""
    inner = [block[MARGIN_BYTES : len(block) - MARGIN_BYTES].clone() for block in seen.around]
    broken = {at for at, block in enumerate(seen.around) if not _margins_whole(block)}
    after = views(packed["leaves"], [block.untyped_storage() for block in inner])
    mutated, outside = changes(packed, after, lambda: tensors(inputs), broken)
    each, found = len(tensors(inputs[0])), []
    for number in range(len(inputs)):
        prefix = f"[{number}]" if len(inputs) > 1 else ""
        leaves = {path.removeprefix(prefix): one for path, one in told.leaves.items() if path.startswith(prefix)}
        own = range(number * each, (number + 1) * each)
        found.append(
            Observed(
                outline=told.outline,
                leaves={path: value_or_fault(path, leaf, seen.extents) for path, leaf in leaves.items()},
                devices={path: leaf.device for path, leaf in leaves.items()},
                mutated={at - own.start: value for at, value in mutated.items() if at in own},
                outside=[at - own.start for at in outside if at in own],
                finished=seen.finished and told.in_order,
                sent=tuple(path for path, leaf in leaves.items() if leaf.sent is not None),
                later=functools.partial(later, leaves),
            )
        )
    return found


def _margins_whole(block: Tensor) -> bool:
    return all(bool((margin == POISON_BYTE).all()) for margin in (block[:MARGIN_BYTES], block[-MARGIN_BYTES:]))
