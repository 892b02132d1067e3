"""Where the elements of one tile lie: indices, addresses and masks as Triton text.

A tile is [BLOCK_M, BLOCK_N]: BLOCK_M positions over the outer axes, BLOCK_N over the axes inside. One row alone is a
tile [BLOCK_N], and so are the positions of a region without a row that lie in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.region import Axis, Load, Region, Scan, Store
from kernelwright.compiler.triton.source_lines import Definition
from kernelwright.core.records import Record
from kernelwright.core.units import DTYPE_BYTES

LINE_BYTES = 16
"""A thread loads so much at once from where it is aligned to it; from rows that begin anywhere one element."""
LARGEST_INT32 = 2**31 - 2**20
"""Offsets from here on are counted in int64, those inside a row apart from those between rows; what is left is room for
a tile that sticks out."""


class CudaChoice(Record, frozen=True, kw_only=True):
    """How a region is run on a GPU.

    Attributes:
        outer: positions over the outer axes in a tile, a power of two.
        inner: elements of a row in a tile, a power of two; one where positions without a row lie in one order.
        warps: of 32 threads each, for one tile.
        stages: loads of so many steps of a loop are under way at once.
        parts: pieces of a row that run side by side; more than one where rows are few.
        meet: all sweeps are one launch, in which the parts of a row wait for each other: what is read again is still in
            the L2 then, where the rows that run at once fit into it. On as many streams at once as the GPU has
            multiprocessors for `parts`: on more, all could wait for what has no place to run.
        join: what the parts of each row found is put together once, by a launch of its own; else by every part, which
            takes longer where many rows lie beside each other in many parts.
        held: steps of a loop, the last of a row or of a part that waits, of which what later sweeps read again stays in
            registers as it was read; as many as there are at most.
        grouped: elements of one row that a thread loads at once share what a reduction keeps, where each lane of a tile
            keeps its own otherwise: an eighth or a quarter of the registers, and no exchange between threads at a step.
        keep: what a later sweep reads again asks to stay in the cache, and so does what is read once, beside what is
            written: 0.5 to 4 % faster, unless the instruction that it takes for each load is of one element and counts.
    """

    outer: int
    inner: int
    warps: int
    stages: int = 1
    parts: int = 1
    meet: bool = False
    join: bool = False
    held: int = 0
    grouped: bool = False
    keep: bool = True


class Tile:
    """The tile of a choice, over the axes of a region.

    Attributes:
        pointed: the tensors whose memory the lines printed so far read or write.
    """

    def __init__(self, region: Region, choice: CudaChoice) -> None:
        places = (*region.loads, *region.stores)
        inside = region.row or (_lanes(region) if choice.inner > 1 else ())
        outer = [axis for axis in region.outer if axis not in inside]
        self.outer = _by_stride(outer, places)
        self.inner = list(inside) if _ordered(region) else _by_stride(inside, places)
        self.rows = prod(axis.size for axis in self.outer)
        self.columns = prod(axis.size for axis in self.inner)
        self.flat = not self.inner
        self.line = not self.flat and (choice.outer == 1 or self.rows == 1)
        self.block_m, self.block_n = choice.outer, choice.inner
        if self.flat:
            self.block_m, self.block_n = 1, choice.outer
        elif self.line:
            self.block_m = 1
        self.parts, self.part_size = self._cut(choice, bool(region.row))
        self.steps = -(-self.part_size // self.block_n)
        self.held = min(choice.held, self.steps)
        self.group = self._group(places) if choice.grouped else 1
        self._within = False
        self.pointed: set[str] = set()
        self.inner_names = frozenset(axis.name for axis in self.inner)
        self.wide = any(_reach(place, (*region.outer, *region.row)) >= LARGEST_INT32 for place in places)
        self.wide_row = any(_reach(place, self.inner) >= LARGEST_INT32 for place in places)
        self.tiles = -(-self.rows // self.block_m) if not self.flat else -(-self.rows // self.block_n)
        self.m = "rows" if len(self.outer) != 1 else self.outer[0].name
        self.n = "columns" if len(self.inner) != 1 else self.inner[0].name

    def _cut(self, choice: CudaChoice, row: bool) -> tuple[int, int]:
        """(parts, elements of one) of a row; without a row the tiles along the inner axes."""
        if self.flat or (choice.parts == 1 and row):
            return 1, self.columns
        steps = -(-self.columns // self.block_n)
        each = -(-steps // choice.parts) * self.block_n if row else self.block_n
        return -(-self.columns // each), each

    def _group(self, places: Iterable[Load | Store]) -> int:
        """How many elements of the narrowest tensor a thread loads at once along a row."""
        if not self.line:
            raise Misfit("elements that share what a reduction keeps, in tiles of several rows")
        inside = [place for place in places if any(place.strides.get(axis.name) for axis in self.inner)]
        return min(LINE_BYTES // min([DTYPE_BYTES[place.dtype] for place in inside], default=LINE_BYTES), self.block_n)

    # ---- shapes

    def shape(self, outer: bool) -> str:
        """Of values along the row, which differ between rows or not."""
        if self.line:
            return "[BLOCK_N]"
        return "[BLOCK_M, BLOCK_N]" if outer else "[1, BLOCK_N]"

    @property
    def axis(self) -> str:
        """What a reduction over the row says."""
        return "axis=0" if self.line else "axis=1, keep_dims=True"

    @property
    def axis_number(self) -> int:
        return 0 if self.line else 1

    @property
    def along(self) -> str:
        """Behind a range over the elements of a row, to make it part of the tile."""
        return "" if self.line or self.flat else "[None, :]"

    @property
    def ragged_m(self) -> bool:
        """Whether the last tile sticks out over the rows."""
        return not self.flat and self.rows % self.block_m > 0

    @property
    def ragged_n(self) -> bool:
        """Whether the last tile sticks out over the row, or steps that are held do behind a part that is shorter."""
        size = self.rows if self.flat else self.columns
        return not self._within and size % (self.block_n * (self.steps if self.held else 1)) > 0

    @contextmanager
    def within_the_row(self) -> Iterator[None]:
        """For printing steps that are known to lie within the row, and need no mask."""
        self._within = True
        try:
            yield
        finally:
            self._within = False

    # ---- names and the lines that define them

    def definitions(self, parts: int, backwards: bool) -> list[Definition]:
        """Constants and the indices of a program's rows, of which a kernel keeps those that it uses; `backwards`, the
        last parts come first: they are what the caches still hold of the sweep before."""
        constants = {"M": self.rows, "N": self.columns, "BLOCK_M": self.block_m, "BLOCK_N": self.block_n}
        constants |= {"FULL": self.columns - self.columns % self.block_n}
        constants |= {"PARTS": parts, "PART": self.part_size, "HELD": self.held}
        if self.flat:
            constants["N"] = self.rows
        found = [(name, f"{name}: tl.constexpr = {number}") for name, number in constants.items()]
        tile = "tl.program_id(0)"
        if parts > 1:
            program = f"{self.tiles * parts - 1} - tl.program_id(0)" if backwards else "tl.program_id(0)"
            found.append(("program", f"program = {program}"))
            found.append(("part", f"part = {'(program % PARTS).to(tl.int64)' if self.wide_row else 'program % PARTS'}"))
            found.append(("start_of_part", "start_of_part = part * PART"))
            tile = "(program // PARTS)"
        return [*found, *self._outer(f"{tile}.to(tl.int64)" if self.wide else tile)]

    def _outer(self, tile: str) -> list[Definition]:
        if self.flat:
            index = f"{tile} * BLOCK_N + tl.arange(0, BLOCK_N)"
        elif self.line:
            index = tile.strip("()") if tile.endswith("PARTS)") else tile
        else:
            index = f"{tile} * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]"
        found = [(self.m, f"{self.m} = {index}"), *_split(self.m, self.outer)]
        size, mask = ("N", "mask_n") if self.flat else ("M", "mask_m")
        return [*found, (mask, f"{mask} = {self.m} < {size}")]

    def columns_from(self, start: str) -> list[Definition]:
        """The indices inside the row, from a first one on."""
        if self.flat:
            return []
        count = f"tl.arange(0, BLOCK_N){self.along}" + (".to(tl.int64)" if self.wide_row else "")
        index = f"{start} + {count}" if start else count
        found = [(self.n, f"{self.n} = {index}"), *_split(self.n, self.inner)]
        return [*found, ("mask_n", f"mask_n = {self.n} < N")]

    # ---- addresses

    def pointer(self, tensor: str) -> str:
        """The parameter of a kernel that points to a tensor; the tensor is noted in `pointed`."""
        self.pointed.add(tensor)
        return f"{tensor}_ptr"

    def place(self, buffer: str, strides: dict[str, int], offset: int = 0) -> str:
        """The pointer to an element."""
        terms = [self.pointer(buffer), *[str(offset)] * bool(offset)]
        terms += _terms(self.m, self.outer, strides) + _terms(self.n, self.inner, strides)
        return " + ".join(terms)

    def picked(self, load: Load, place: str, outer: bool) -> tuple[str, str]:
        """(pointer, mask) of the element of each row whose position along it is the value `place`, where rows differ
        in it or, not `outer`, all have the same."""
        (axis,) = self.inner
        others = {name: stride for name, stride in load.strides.items() if name != axis.name}
        inside = _times(f"{place}.to(tl.int64)", load.strides[axis.name])
        there = ["mask_m"] * (outer and self.ragged_m) + [f"({place} >= 0) & ({place} < N)"]
        return f"{self.place(load.buffer, others, load.offset)} + {inside}", " & ".join(there)

    def mask(self, strides: dict[str, int]) -> str:
        """Which elements at such a place are there; empty for all."""
        outer = any(strides.get(axis.name) for axis in self.outer)
        inner = any(strides.get(axis.name) for axis in self.inner)
        if self.flat:
            return "mask_n" if outer and self.ragged_n else ""
        masks = ["mask_m"] * (outer and self.ragged_m) + ["mask_n"] * (inner and self.ragged_n)
        return " & ".join(masks)


def lane_axes(region: Region) -> list[Axis]:
    """Axes along which memory lies together, by the bytes that do."""
    axes = {axis.name: axis for axis in (*region.outer, *region.row)}
    weight: dict[str, int] = {}
    for place in (*region.loads, *region.stores):
        for name, stride in place.strides.items():
            if stride == 1:
                weight[name] = weight.get(name, 0) + _touched(region, place)
    heavy = [name for name in weight if weight[name] * 8 >= max(weight.values())]
    return [axes[name] for name in sorted(heavy, key=lambda name: -weight[name])]


def lanes_along_row(region: Region) -> bool:
    """Whether memory lies together along rows and not across them."""
    axes, row = lane_axes(region), {axis.name for axis in region.row}
    return not axes or axes[0].name in row


def _lanes(region: Region) -> tuple[Axis, ...]:
    return tuple(lane_axes(region)[:1]) or region.outer[-1:]


def _touched(region: Region, place: Load | Store) -> int:
    return prod(axis.size for axis in (*region.outer, *region.row) if place.strides.get(axis.name))


def _reach(place: Load | Store, axes: Iterable[Axis]) -> int:
    """How far apart its elements lie along some axes."""
    return sum((axis.size - 1) * abs(place.strides.get(axis.name, 0)) for axis in axes)


def _ordered(region: Region) -> bool:
    return any(isinstance(step, Scan) for step in region.steps)


def _by_stride(axes: Sequence[Axis], places: Sequence[Load | Store]) -> list[Axis]:
    """The axis along which the largest tensors lie together comes last; the others keep their order."""
    if len(axes) < 2 or any(place.strides.get(axes[-1].name) == 1 for place in places):
        return list(axes)
    last = next((axis for axis in axes if any(place.strides.get(axis.name) == 1 for place in places)), axes[-1])
    return [*(axis for axis in axes if axis != last), last]


def _split(index: str, axes: Sequence[Axis]) -> list[Definition]:
    """Positions along axes from one running number."""
    if len(axes) < 2:
        return []
    found, below = [], 1
    for axis in reversed(axes):
        position = f"{index} // {below}" if below > 1 else index
        below *= axis.size
        found.append((axis.name, f"{axis.name} = {position}" + ("" if axis == axes[0] else f" % {axis.size}")))
    return found[::-1]


def _terms(index: str, axes: Sequence[Axis], strides: dict[str, int]) -> list[str]:
    """The parts of an address: one where the axes lie in their order, else one for each axis."""
    steps = [strides.get(axis.name, 0) for axis in axes]
    if len(axes) > 1 and steps[-1] and _in_order(axes, steps):
        return [_times(index, steps[-1])]
    return [_times(axis.name, step) for axis, step in zip(axes, steps, strict=True) if step]


def _in_order(axes: Sequence[Axis], steps: list[int]) -> bool:
    return all(steps[at] == steps[at + 1] * axes[at + 1].size for at in range(len(axes) - 1))


def _times(index: str, step: int) -> str:
    return index if step == 1 else f"{index} * {step}"
