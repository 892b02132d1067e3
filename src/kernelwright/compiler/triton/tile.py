"""Where the elements of one tile lie: indices, addresses and masks as Triton text.

A tile is [BLOCK_M, BLOCK_N]: BLOCK_M positions over the outer axes, BLOCK_N over the axes inside. One row alone is a
tile [BLOCK_N], and so are the positions of a region without a row that lie in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Axis, Load, Region, Scan, Store
from kernelwright.compiler.triton.source_lines import Definition
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

VECTOR_BYTES = 16
"""A thread loads so much at once from where it is aligned to it; from rows that begin anywhere one element."""
MAX_INT32_OFFSET = 2**31 - 2**20
"""Offsets from here on are counted in int64, those inside a row apart from those between rows; what is left is room for
a tile that sticks out."""


class TritonConfig(Record, frozen=True, kw_only=True):
    """How a region is run on a GPU.

    Attributes:
        BLOCK_M: positions over the outer axes in a tile, a power of two.
        BLOCK_N: elements of a row in a tile, a power of two; one where positions without a row lie in one order.
        num_warps: of 32 threads each, for one tile.
        num_stages: loads of so many steps of a loop are under way at once.
        num_splits: pieces of a row that run side by side; more than one where rows are few.
        grid_sync: all sweeps are one launch, in which the parts of a row wait for each other: what is read again is
            still in the L2 then, where the rows that run at once fit into it. On as many streams at once as the GPU has
            multiprocessors for `num_splits`: on more, all could wait for what has no place to run.
        combine_kernel: what the parts of each row found is put together once, by a launch of its own; else by every
            part, which takes longer where many rows lie beside each other in many parts.
        register_tiles: steps of a loop, the last of a row or of a part that waits, of which what later sweeps read
            again stays in registers as it was read; as many as there are at most.
        vector_accumulators: elements of one row that a thread loads at once share what a reduction keeps, where each
            lane of a tile keeps its own otherwise: an eighth or a quarter of the registers, and no exchange between
            threads at a step.
        evict_last: what a later sweep reads again asks to stay in the cache, and so does what is read once, beside what
            is written: 0.5 to 4 % faster, unless the instruction that it takes for each load is of one element and
            counts.
    """

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int = 1
    num_splits: int = 1
    grid_sync: bool = False
    combine_kernel: bool = False
    register_tiles: int = 0
    vector_accumulators: bool = False
    evict_last: bool = True


class Tile:
    """The tile of a choice, over the axes of a region.

    Attributes:
        used_tensors: the tensors whose memory the lines printed so far read or write.
    """

    def __init__(self, region: Region, choice: TritonConfig) -> None:
        places = (*region.loads, *region.stores)
        inside = region.row or (_flat_inner_axes(region) if choice.BLOCK_N > 1 else ())
        outer = [axis for axis in region.outer if axis not in inside]
        self.outer = _order_by_stride(outer, places)
        self.inner = list(inside) if _has_scan(region) else _order_by_stride(inside, places)
        self.size_m = prod(axis.size for axis in self.outer)
        self.size_n = prod(axis.size for axis in self.inner)
        self.is_flat = not self.inner
        self.is_single_row = not self.is_flat and (choice.BLOCK_M == 1 or self.size_m == 1)
        self.block_m, self.block_n = choice.BLOCK_M, choice.BLOCK_N
        if self.is_flat:
            self.block_m, self.block_n = 1, choice.BLOCK_M
        elif self.is_single_row:
            self.block_m = 1
        self.num_splits, self.split_size = self._split_row(choice, bool(region.row))
        self.num_steps = -(-self.split_size // self.block_n)
        self.register_tiles = min(choice.register_tiles, self.num_steps)
        self.vector_size = self._compute_vector_size(places) if choice.vector_accumulators else 1
        self._omits_row_mask = False
        self.used_tensors: set[str] = set()
        self.inner_axis_names = frozenset(axis.name for axis in self.inner)
        self.int64_offsets = any(
            _address_span(place, (*region.outer, *region.row)) >= MAX_INT32_OFFSET for place in places
        )
        self.int64_row_offsets = any(_address_span(place, self.inner) >= MAX_INT32_OFFSET for place in places)
        self.num_tiles = -(-self.size_m // self.block_m) if not self.is_flat else -(-self.size_m // self.block_n)
        self.offs_m = "rows" if len(self.outer) != 1 else self.outer[0].name
        self.offs_n = "columns" if len(self.inner) != 1 else self.inner[0].name

    def _split_row(self, choice: TritonConfig, row: bool) -> tuple[int, int]:
        """(parts, elements of one) of a row; without a row the tiles along the inner axes."""
        if self.is_flat or (choice.num_splits == 1 and row):
            return 1, self.size_n
        steps = -(-self.size_n // self.block_n)
        each = -(-steps // choice.num_splits) * self.block_n if row else self.block_n
        return -(-self.size_n // each), each

    def _compute_vector_size(self, places: Iterable[Load | Store]) -> int:
        """How many elements of the narrowest tensor a thread loads at once along a row."""
        if not self.is_single_row:
            raise Unsupported("elements that share what a reduction keeps, in tiles of several rows")
        inside = [place for place in places if any(place.strides.get(axis.name) for axis in self.inner)]
        return min(
            VECTOR_BYTES // min([DTYPE_BYTES[place.dtype] for place in inside], default=VECTOR_BYTES), self.block_n
        )

    # ---- shapes

    def shape(self, outer: bool) -> str:
        """Of values along the row, which differ between rows or not."""
        if self.is_single_row:
            return "[BLOCK_N]"
        return "[BLOCK_M, BLOCK_N]" if outer else "[1, BLOCK_N]"

    @property
    def reduce_args(self) -> str:
        """What a reduction over the row says."""
        return "axis=0" if self.is_single_row else "axis=1, keep_dims=True"

    @property
    def reduce_axis(self) -> int:
        return 0 if self.is_single_row else 1

    @property
    def broadcast_suffix(self) -> str:
        """Behind a range over the elements of a row, to make it part of the tile."""
        return "" if self.is_single_row or self.is_flat else "[None, :]"

    @property
    def needs_mask_m(self) -> bool:
        """Whether the last tile sticks out over the rows."""
        return not self.is_flat and self.size_m % self.block_m > 0

    @property
    def needs_mask_n(self) -> bool:
        """Whether the last tile sticks out over the row, or steps that are held do behind a part that is shorter."""
        size = self.size_m if self.is_flat else self.size_n
        return not self._omits_row_mask and size % (self.block_n * (self.num_steps if self.register_tiles else 1)) > 0

    @contextmanager
    def omit_row_mask(self) -> Iterator[None]:
        """For printing steps that are known to lie within the row, and need no mask."""
        self._omits_row_mask = True
        try:
            yield
        finally:
            self._omits_row_mask = False

    # ---- names and the lines that define them

    def definitions(self, parts: int, backwards: bool) -> list[Definition]:
        """Constants and the indices of a program's rows, of which a kernel keeps those that it uses; `backwards`, the
        last parts come first: they are what the caches still hold of the sweep before."""
        constants = {"M": self.size_m, "N": self.size_n, "BLOCK_M": self.block_m, "BLOCK_N": self.block_n}
        constants |= {"FULL": self.size_n - self.size_n % self.block_n}
        constants |= {"PARTS": parts, "PART": self.split_size, "HELD": self.register_tiles}
        if self.is_flat:
            constants["N"] = self.size_m
        found = [(name, f"{name}: tl.constexpr = {number}") for name, number in constants.items()]
        tile = "tl.program_id(0)"
        if parts > 1:
            program = f"{self.num_tiles * parts - 1} - tl.program_id(0)" if backwards else "tl.program_id(0)"
            found.append(("program", f"program = {program}"))
            found.append(
                ("part", f"part = {'(program % PARTS).to(tl.int64)' if self.int64_row_offsets else 'program % PARTS'}")
            )
            found.append(("start_of_part", "start_of_part = part * PART"))
            tile = "(program // PARTS)"
        return [*found, *self._outer_index_definitions(f"{tile}.to(tl.int64)" if self.int64_offsets else tile)]

    def _outer_index_definitions(self, tile: str) -> list[Definition]:
        if self.is_flat:
            index = f"{tile} * BLOCK_N + tl.arange(0, BLOCK_N)"
        elif self.is_single_row:
            index = tile.strip("()") if tile.endswith("PARTS)") else tile
        else:
            index = f"{tile} * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]"
        found = [(self.offs_m, f"{self.offs_m} = {index}"), *_split_index(self.offs_m, self.outer)]
        size, mask = ("N", "mask_n") if self.is_flat else ("M", "mask_m")
        return [*found, (mask, f"{mask} = {self.offs_m} < {size}")]

    def row_index_definitions(self, start: str) -> list[Definition]:
        """The indices inside the row, from a first one on."""
        if self.is_flat:
            return []
        count = f"tl.arange(0, BLOCK_N){self.broadcast_suffix}" + (".to(tl.int64)" if self.int64_row_offsets else "")
        index = f"{start} + {count}" if start else count
        found = [(self.offs_n, f"{self.offs_n} = {index}"), *_split_index(self.offs_n, self.inner)]
        return [*found, ("mask_n", f"mask_n = {self.offs_n} < N")]

    # ---- addresses

    def use_pointer(self, tensor: str) -> str:
        """The parameter of a kernel that points to a tensor; the tensor is noted in `used_tensors`."""
        self.used_tensors.add(tensor)
        return f"{tensor}_ptr"

    def element_pointer(self, buffer: str, strides: dict[str, int], offset: int = 0) -> str:
        """The pointer to an element."""
        terms = [self.use_pointer(buffer), *[str(offset)] * bool(offset)]
        terms += _address_terms(self.offs_m, self.outer, strides) + _address_terms(self.offs_n, self.inner, strides)
        return " + ".join(terms)

    def gather_pointer(self, load: Load, position: str, outer: bool) -> tuple[str, str]:
        """(pointer, mask) of the element of each row whose position along it is the value `position`, where rows differ
        in it or, not `outer`, all have the same."""
        (axis,) = self.inner
        others = {name: stride for name, stride in load.strides.items() if name != axis.name}
        inside = _scaled_index(f"{position}.to(tl.int64)", load.strides[axis.name])
        there = ["mask_m"] * (outer and self.needs_mask_m) + [f"({position} >= 0) & ({position} < N)"]
        return f"{self.element_pointer(load.buffer, others, load.offset)} + {inside}", " & ".join(there)

    def mask(self, strides: dict[str, int]) -> str:
        """Which elements at such a place are there; empty for all."""
        outer = any(strides.get(axis.name) for axis in self.outer)
        inner = any(strides.get(axis.name) for axis in self.inner)
        if self.is_flat:
            return "mask_n" if outer and self.needs_mask_n else ""
        masks = ["mask_m"] * (outer and self.needs_mask_m) + ["mask_n"] * (inner and self.needs_mask_n)
        return " & ".join(masks)


def contiguous_axes(region: Region) -> list[Axis]:
    """Axes along which memory lies together, by the bytes that do."""
    axes = {axis.name: axis for axis in (*region.outer, *region.row)}
    weight: dict[str, int] = {}
    for place in (*region.loads, *region.stores):
        for name, stride in place.strides.items():
            if stride == 1:
                weight[name] = weight.get(name, 0) + _num_touched(region, place)
    heavy = [name for name in weight if weight[name] * 8 >= max(weight.values())]
    return [axes[name] for name in sorted(heavy, key=lambda name: -weight[name])]


def is_row_contiguous(region: Region) -> bool:
    """Whether memory lies together along rows and not across them."""
    axes, row = contiguous_axes(region), {axis.name for axis in region.row}
    return not axes or axes[0].name in row


def _flat_inner_axes(region: Region) -> tuple[Axis, ...]:
    return tuple(contiguous_axes(region)[:1]) or region.outer[-1:]


def _num_touched(region: Region, place: Load | Store) -> int:
    return prod(axis.size for axis in (*region.outer, *region.row) if place.strides.get(axis.name))


def _address_span(place: Load | Store, axes: Iterable[Axis]) -> int:
    """How far apart its elements lie along some axes."""
    return sum((axis.size - 1) * abs(place.strides.get(axis.name, 0)) for axis in axes)


def _has_scan(region: Region) -> bool:
    return any(isinstance(step, Scan) for step in region.steps)


def _order_by_stride(axes: Sequence[Axis], places: Sequence[Load | Store]) -> list[Axis]:
    """The axis along which the largest tensors lie together comes last; the others keep their order."""
    if len(axes) < 2 or any(place.strides.get(axes[-1].name) == 1 for place in places):
        return list(axes)
    last = next((axis for axis in axes if any(place.strides.get(axis.name) == 1 for place in places)), axes[-1])
    return [*(axis for axis in axes if axis != last), last]


def _split_index(index: str, axes: Sequence[Axis]) -> list[Definition]:
    """Positions along axes from one running number."""
    if len(axes) < 2:
        return []
    found, below = [], 1
    for axis in reversed(axes):
        position = f"{index} // {below}" if below > 1 else index
        below *= axis.size
        found.append((axis.name, f"{axis.name} = {position}" + ("" if axis == axes[0] else f" % {axis.size}")))
    return found[::-1]


def _address_terms(index: str, axes: Sequence[Axis], strides: dict[str, int]) -> list[str]:
    """The parts of an address: one where the axes lie in their order, else one for each axis."""
    steps = [strides.get(axis.name, 0) for axis in axes]
    if len(axes) > 1 and steps[-1] and _are_nested(axes, steps):
        return [_scaled_index(index, steps[-1])]
    return [_scaled_index(axis.name, step) for axis, step in zip(axes, steps, strict=True) if step]


def _are_nested(axes: Sequence[Axis], steps: list[int]) -> bool:
    return all(steps[at] == steps[at + 1] * axes[at + 1].size for at in range(len(axes) - 1))


def _scaled_index(index: str, step: int) -> str:
    return index if step == 1 else f"{index} * {step}"
