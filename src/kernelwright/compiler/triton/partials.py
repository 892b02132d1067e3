"""Loads and stores of the partial results that the splits of a row exchange through memory."""

from __future__ import annotations

from kernelwright.compiler.triton.passes import TilePasses
from kernelwright.compiler.triton.reductions import Accumulator
from kernelwright.compiler.triton.tile import TritonConfig
from kernelwright.core.record import Record


class Scratch(Record, frozen=True, kw_only=True):
    """A tensor of partial results, one per row and split."""

    name: str
    dtype: str
    num_rows: int
    num_splits: int


class Partials:
    """The partial results of split rows: read by a later launch or, with `grid_sync`, by programs of the same launch,
    which wait for them."""

    def __init__(self, passes: TilePasses, config: TritonConfig) -> None:
        self.passes, self.region, self.tile, self.config = passes, passes.region, passes.tile, config

    def scratch(self) -> list[Scratch]:
        """The scratch tensors of all kernels of a region."""
        if self.config.grid_sync:
            rows = self.tile.size_m * len(self._accumulators)
            return [Scratch(name=self.workspace, dtype="int64", num_rows=rows, num_splits=self.tile.num_splits)]
        tensors = [(f"{state.name}_partials", state.dtype, self.tile.num_splits) for state in self._accumulators]
        if self.config.combine_kernel:
            combined = [self.passes.by_value[value] for value in self.passes.reduction_of]
            tensors += [(f"{entry.value}_combined", entry.dtype, 1) for entry in combined]
        return [
            Scratch(name=name, dtype=dtype, num_rows=self.tile.size_m, num_splits=num_splits)
            for name, dtype, num_splits in tensors
        ]

    def store_partial(self, state: Accumulator) -> str:
        """The store of an accumulator of one split."""
        pointer = self._partial_pointer(state, "split")
        if self.config.grid_sync:
            return f"store_partial({pointer}, {state.name})"
        return f"tl.store({pointer}, {state.name}{', mask=mask_m' if self.tile.needs_mask_m else ''})"

    def load_partials(self, state: Accumulator) -> list[str]:
        """The lines that load an accumulator of all splits, after a wait with `grid_sync`."""
        name, pointer = f"{state.name}_partials", self._partial_pointer(state, "offs_split")
        if self.config.grid_sync:
            bitcast = ".to(tl.float32, bitcast=True)" * (state.dtype == "float32")
            return [
                f"{name} = wait_partials({pointer}, split_mask)",
                f"{name} = tl.where(split_mask, {name}{bitcast}, {state.identity})",
            ]
        is_unmasked = not self.tile.needs_mask_m and self.tile.num_splits & self.tile.num_splits - 1 == 0
        mask = "" if is_unmasked else f", mask=split_mask, other={state.identity}"
        return [f"{name} = tl.load({pointer}{mask})"]

    def _partial_pointer(self, state: Accumulator, split: str) -> str:
        row = f"{self.tile.offs_m} * {self.tile.num_splits} + " if self.tile.size_m > 1 else ""
        if not self.config.grid_sync:
            return f"{self.tile.use_pointer(f'{state.name}_partials')} + {row}{split}"
        offset = self._accumulators.index(state) * self.tile.size_m * self.tile.num_splits
        return f"{self.tile.use_pointer(self.workspace)} + {f'{offset} + ' if offset else ''}{row}{split}"

    @property
    def workspace(self) -> str:
        """The name of the tensor in which splits exchange partial results within one launch."""
        return f"{self.region.name}_workspace"

    @property
    def _accumulators(self) -> list[Accumulator]:
        return [state for reduction in self.passes.reductions for state in reduction.accumulators]
