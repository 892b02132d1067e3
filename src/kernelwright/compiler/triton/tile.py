"""The elements of one tile: indices, pointers and masks.

A tile is [BLOCK_M, BLOCK_N]: BLOCK_M positions over the outer axes, BLOCK_N over the inner axes. A single row is a tile
[BLOCK_N]; a flat tile, of a region without a row whose axes are all contiguous in one order, is [BLOCK_M].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Axis, Load, Region, Scan, Store
from kernelwright.compiler.triton.source_lines import Definition
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

VECTOR_BYTES = 16
"""Bytes of one vector load of a thread. It needs this alignment; rows with any other start are loaded by element."""
MAX_INT32_OFFSET = 2**31 - 2**20
"""Larger offsets are int64, separately inside a row and between rows. The margin covers a partial tile."""


class TritonConfig(Record, frozen=True, kw_only=True):
    """How a region runs on a GPU.

    Attributes:
        BLOCK_M: positions over the outer axes in a tile, a power of two.
        BLOCK_N: elements of a row in a tile, a power of two; 1 for a flat tile.
        num_warps: warps of 32 threads per tile.
        num_stages: loop iterations whose loads are in flight at once.
        num_splits: splits of a row that run in parallel; more than one for few rows.
        grid_sync: run all passes in one launch in which the splits of a row wait for each other. What is reloaded is
            then still in the L2 if the resident rows fit it. All splits of a row have to be resident: the GPU needs
            `num_splits` multiprocessors for each stream that runs such a kernel, otherwise it can deadlock.
        combine_kernel: combine the splits of each row once, in a separate launch; otherwise in each split, which takes
            longer for many adjacent rows in many splits.
        register_tiles: number of tiles, the last of a row or of a grid-synchronised split, of which the values that
            later passes read stay in registers, in the dtype in which they were loaded; at most all tiles.
        vector_accumulators: one accumulator for the elements of a row that a thread loads at once, instead of one per
            lane of the tile: an eighth or a quarter of the registers, and no exchange between threads in each step.
        evict_last: load what a later pass reads with the evict_last policy, and also what is read once in a kernel that
            stores elements: 0.5 to 4 % faster, unless loads are by element and the extra instruction per load counts.
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
    """The tile of a config, over the axes of a region.

    Attributes:
        used_tensors: the tensors that the lines emitted so far load or store.
    """

    def __init__(self, region: Region, config: TritonConfig) -> None:
        accesses = (*region.loads, *region.stores)
        inner = region.row or (flat_inner_axes(region) if config.BLOCK_N > 1 else ())
        outer = [axis for axis in region.outer if axis not in inner]
        self.outer = _order_by_stride(outer, accesses)
        self.inner = list(inner) if _has_scan(region) else _order_by_stride(inner, accesses)
        self.size_m = prod(axis.size for axis in self.outer)
        self.size_n = prod(axis.size for axis in self.inner)
        self.is_flat = not self.inner
        self.is_single_row = not self.is_flat and (config.BLOCK_M == 1 or self.size_m == 1)
        self.block_m, self.block_n = config.BLOCK_M, config.BLOCK_N
        if self.is_flat:
            self.block_n = 1
        elif self.is_single_row:
            self.block_m = 1
        self.num_splits, self.split_size = self._split_row(config, bool(region.row))
        self.num_steps = -(-self.split_size // self.block_n)
        self.register_tiles = min(config.register_tiles, self.num_steps)
        self.vector_size = self._compute_vector_size(accesses) if config.vector_accumulators else 1
        self._omits_row_mask = False
        self.used_tensors: set[str] = set()
        self.inner_axis_names = frozenset(axis.name for axis in self.inner)
        self.int64_offsets = any(
            _address_span(access, (*region.outer, *region.row)) >= MAX_INT32_OFFSET for access in accesses
        )
        self.int64_row_offsets = any(_address_span(access, self.inner) >= MAX_INT32_OFFSET for access in accesses)
        self.num_tiles = -(-self.size_m // self.block_m)
        self.offs_m = "offs_m" if len(self.outer) != 1 else self.outer[0].name
        self.offs_n = "offs_n" if len(self.inner) != 1 else self.inner[0].name

    def _split_row(self, config: TritonConfig, has_row: bool) -> tuple[int, int]:
        """(splits, elements of a split) of a row; without a row, the tiles along the inner axes."""
        if self.is_flat or (config.num_splits == 1 and has_row):
            return 1, self.size_n
        steps = -(-self.size_n // self.block_n)
        split_size = -(-steps // config.num_splits) * self.block_n if has_row else self.block_n
        return -(-self.size_n // split_size), split_size

    def _compute_vector_size(self, accesses: Iterable[Load | Store]) -> int:
        """The number of elements of the narrowest tensor that a thread loads at once along a row."""
        if not self.is_single_row:
            raise Unsupported("vector accumulators need a tile of one row")
        inner = [access for access in accesses if any(access.strides.get(axis.name) for axis in self.inner)]
        return min(
            VECTOR_BYTES // min([DTYPE_BYTES[access.dtype] for access in inner], default=VECTOR_BYTES), self.block_n
        )

    # ---- shapes

    def shape(self, varies_across_rows: bool) -> str:
        """The shape of a value along the row."""
        if self.is_single_row:
            return "[BLOCK_N]"
        return "[BLOCK_M, BLOCK_N]" if varies_across_rows else "[1, BLOCK_N]"

    @property
    def reduce_args(self) -> str:
        """The axis arguments of a reduction over the row."""
        return "axis=0" if self.is_single_row else "axis=1, keep_dims=True"

    @property
    def reduce_axis(self) -> int:
        """The axis of a reduction over the row."""
        return 0 if self.is_single_row else 1

    @property
    def broadcast_suffix(self) -> str:
        """The subscript that broadcasts a range along the row to the tile."""
        return "" if self.is_single_row or self.is_flat else "[None, :]"

    @property
    def needs_mask_m(self) -> bool:
        """Whether the last tile over the outer axes is partial."""
        return self.size_m % self.block_m > 0

    @property
    def needs_mask_n(self) -> bool:
        """Whether the last tile along the row is partial, or register tiles of a shorter split are out of bounds."""
        num_tiles = self.num_steps if self.register_tiles else 1
        return not self._omits_row_mask and self.size_n % (self.block_n * num_tiles) > 0

    @contextmanager
    def omit_row_mask(self) -> Iterator[None]:
        """Emit tiles without a mask along the row, where they are known to be in bounds."""
        self._omits_row_mask = True
        try:
            yield
        finally:
            self._omits_row_mask = False

    # ---- names and the lines that define them

    def definitions(self, num_splits: int, backwards: bool) -> list[Definition]:
        """The constants and the indices of a program's rows.

        Args:
            num_splits: of the kernel.
            backwards: the last programs first, since the caches still hold what the previous pass read last.
        """
        constants = {"M": self.size_m, "N": self.size_n, "BLOCK_M": self.block_m, "BLOCK_N": self.block_n}
        constants |= {"FULL_N": self.size_n - self.size_n % self.block_n}
        constants |= {"NUM_SPLITS": num_splits, "SPLIT_SIZE": self.split_size, "REGISTER_TILES": self.register_tiles}
        lines = [(name, f"{name}: tl.constexpr = {number}") for name, number in constants.items()]
        tile = "tl.program_id(0)"
        if num_splits > 1:
            pid = f"{self.num_tiles * num_splits - 1} - tl.program_id(0)" if backwards else "tl.program_id(0)"
            split = "(pid % NUM_SPLITS).to(tl.int64)" if self.int64_row_offsets else "pid % NUM_SPLITS"
            lines.append(("pid", f"pid = {pid}"))
            lines.append(("split", f"split = {split}"))
            lines.append(("split_start", "split_start = split * SPLIT_SIZE"))
            tile = "(pid // NUM_SPLITS)"
        return [*lines, *self._outer_index_definitions(f"{tile}.to(tl.int64)" if self.int64_offsets else tile)]

    def _outer_index_definitions(self, tile: str) -> list[Definition]:
        if self.is_single_row:
            index = tile.strip("()") if tile.endswith("NUM_SPLITS)") else tile
        else:
            index = f"{tile} * BLOCK_M + tl.arange(0, BLOCK_M){'' if self.is_flat else '[:, None]'}"
        lines = [(self.offs_m, f"{self.offs_m} = {index}"), *_split_index(self.offs_m, self.outer)]
        return [*lines, ("mask_m", f"mask_m = {self.offs_m} < M")]

    def row_index_definitions(self, start: str) -> list[Definition]:
        """The indices along the row from `start` on, or from 0 if it is empty."""
        if self.is_flat:
            return []
        offsets = f"tl.arange(0, BLOCK_N){self.broadcast_suffix}" + (".to(tl.int64)" if self.int64_row_offsets else "")
        index = f"{start} + {offsets}" if start else offsets
        lines = [(self.offs_n, f"{self.offs_n} = {index}"), *_split_index(self.offs_n, self.inner)]
        return [*lines, ("mask_n", f"mask_n = {self.offs_n} < N")]

    # ---- addresses

    def use_pointer(self, tensor: str) -> str:
        """The pointer parameter of a tensor; adds the tensor to `used_tensors`."""
        self.used_tensors.add(tensor)
        return f"{tensor}_ptr"

    def element_pointer(self, buffer: str, strides: dict[str, int], offset: int = 0) -> str:
        """The pointer to the elements of a tile."""
        terms = [self.use_pointer(buffer), *[str(offset)] * bool(offset)]
        terms += _address_terms(self.offs_m, self.outer, strides) + _address_terms(self.offs_n, self.inner, strides)
        return " + ".join(terms)

    def gather_pointer(self, load: Load, position: str, outer: bool) -> tuple[str, str]:
        """The gather of one element per row.

        Args:
            load: the tensor.
            position: the value that is the index along the row.
            outer: whether rows differ in the element.
        Returns:
            (pointer, mask).
        """
        (axis,) = self.inner
        others = {name: stride for name, stride in load.strides.items() if name != axis.name}
        index = _scaled_index(f"{position}.to(tl.int64)", load.strides[axis.name])
        masks = ["mask_m"] * (outer and self.needs_mask_m) + [f"({position} >= 0) & ({position} < N)"]
        return f"{self.element_pointer(load.buffer, others, load.offset)} + {index}", " & ".join(masks)

    def mask(self, axes: Collection[str]) -> str:
        """The mask of an access along some axes; empty if all elements are in bounds."""
        outer = any(axis.name in axes for axis in self.outer)
        inner = any(axis.name in axes for axis in self.inner)
        masks = ["mask_m"] * (outer and self.needs_mask_m) + ["mask_n"] * (inner and self.needs_mask_n)
        return " & ".join(masks)


def contiguous_axes(region: Region) -> list[Axis]:
    """Axes along which tensors are contiguous, most elements first."""
    axes = {axis.name: axis for axis in (*region.outer, *region.row)}
    weight: dict[str, int] = {}
    for access in (*region.loads, *region.stores):
        for name, stride in access.strides.items():
            if stride == 1:
                weight[name] = weight.get(name, 0) + _num_touched(region, access)
    heavy = [name for name in weight if weight[name] * 8 >= max(weight.values())]
    return [axes[name] for name in sorted(heavy, key=lambda name: -weight[name])]


def is_row_contiguous(region: Region) -> bool:
    """Whether memory is contiguous along rows and not across them."""
    axes, row = contiguous_axes(region), {axis.name for axis in region.row}
    return not axes or axes[0].name in row


def is_weighted(region: Region) -> bool:
    """Whether a region has no row, and computes a depthwise convolution."""
    return not region.row and any(map(is_weight, region.loads))


def is_weight(load: Load) -> bool:
    """Whether a load is the weight of each channel at one tap of a window: its windows do not move."""
    return bool(load.windows) and not any(index.steps for index in load.windows)


def flat_inner_axes(region: Region) -> tuple[Axis, ...]:
    """Return the inner axes of a tile where there is no row: one along which memory is contiguous; of a depthwise
    convolution also those before it that share all weights, so that these are loaded once for each row of the tile."""
    inner = tuple(contiguous_axes(region)[:1]) or region.outer[-1:]
    if not is_weighted(region) or inner != region.outer[-1:]:
        return inner
    varying = {axis for load in region.loads if inner[0].name not in load.axes for axis in load.axes}
    start = max((at + 1 for at, axis in enumerate(region.outer) if axis.name in varying), default=0)
    return region.outer[start:]


def _num_touched(region: Region, access: Load | Store) -> int:
    return prod(axis.size for axis in (*region.outer, *region.row) if access.strides.get(axis.name))


def _address_span(access: Load | Store, axes: Iterable[Axis]) -> int:
    """The distance between the first and the last element along some axes."""
    return sum((axis.size - 1) * abs(access.strides.get(axis.name, 0)) for axis in axes)


def _has_scan(region: Region) -> bool:
    return any(isinstance(step, Scan) for step in region.steps)


def _order_by_stride(axes: Sequence[Axis], accesses: Sequence[Load | Store]) -> list[Axis]:
    """Move an axis along which a tensor is contiguous to the end; the others keep their order."""
    if len(axes) < 2 or any(access.strides.get(axes[-1].name) == 1 for access in accesses):
        return list(axes)
    last = next((axis for axis in axes if any(access.strides.get(axis.name) == 1 for access in accesses)), axes[-1])
    return [*(axis for axis in axes if axis != last), last]


def _split_index(index: str, axes: Sequence[Axis]) -> list[Definition]:
    """The indices along axes from a linear index."""
    if len(axes) < 2:
        return []
    lines, stride = [], 1
    for axis in reversed(axes):
        quotient = f"{index} // {stride}" if stride > 1 else index
        stride *= axis.size
        lines.append((axis.name, f"{axis.name} = {quotient}" + ("" if axis == axes[0] else f" % {axis.size}")))
    return lines[::-1]


def _address_terms(index: str, axes: Sequence[Axis], strides: dict[str, int]) -> list[str]:
    """The terms of an offset: a single one if the axes are nested in memory, else one per axis."""
    steps = [strides.get(axis.name, 0) for axis in axes]
    if len(axes) > 1 and steps[-1] and _are_nested(axes, steps):
        return [_scaled_index(index, steps[-1])]
    return [_scaled_index(axis.name, step) for axis, step in zip(axes, steps, strict=True) if step]


def _are_nested(axes: Sequence[Axis], steps: list[int]) -> bool:
    return all(steps[at] == steps[at + 1] * axes[at + 1].size for at in range(len(axes) - 1))


def _scaled_index(index: str, step: int) -> str:
    return index if step == 1 else f"{index} * {step}"
