"""What the parts of a row leave for each other in memory, as Triton text."""

from __future__ import annotations

from kernelwright.compiler.triton.passes import TilePasses
from kernelwright.compiler.triton.reductions import Accumulator
from kernelwright.compiler.triton.tile import TritonConfig
from kernelwright.core.record import Record


class Scratch(Record, frozen=True, kw_only=True):
    """Partial results of all rows and parts."""

    name: str
    dtype: str
    num_rows: int
    num_splits: int


class Partials:
    """The partial results of rows that are swept so: read by a later launch or, where parts meet, told to those that
    wait."""

    def __init__(self, sweeps: TilePasses, choice: TritonConfig) -> None:
        self.passes, self.region, self.tile, self.config = sweeps, sweeps.region, sweeps.tile, choice

    def scratch(self) -> list[Scratch]:
        if self.config.grid_sync:
            rows = self.tile.size_m * len(self._accumulators)
            return [Scratch(name=self.workspace, dtype="int64", num_rows=rows, num_splits=self.tile.num_splits)]
        found = [(f"{state.name}_parts", state.dtype, self.tile.num_splits) for state in self._accumulators]
        if self.config.combine_kernel:
            joined = [self.passes.by_value[value] for value in self.passes.reduction_of]
            found += [(f"{one.value}_joined", one.dtype, 1) for one in joined]
        return [
            Scratch(name=name, dtype=dtype, num_rows=self.tile.size_m, num_splits=parts) for name, dtype, parts in found
        ]

    def store_partial(self, state: Accumulator) -> str:
        place = self._partial_pointer(state, "part")
        if self.config.grid_sync:
            return f"tell({place}, {state.name})"
        return f"tl.store({place}, {state.name}{', mask=mask_m' if self.tile.needs_mask_m else ''})"

    def load_partials(self, state: Accumulator) -> str:
        place = self._partial_pointer(state, "parts")
        if self.config.grid_sync:
            heard = f"hear({place}, there)" + ".to(tl.float32, bitcast=True)" * (state.dtype == "float32")
            return f"tl.where(there, {heard}, {state.identity})"
        everywhere = not self.tile.needs_mask_m and self.tile.num_splits & self.tile.num_splits - 1 == 0
        return f"tl.load({place})" if everywhere else f"tl.load({place}, mask=there, other={state.identity})"

    def _partial_pointer(self, state: Accumulator, part: str) -> str:
        row = f"{self.tile.offs_m} * {self.tile.num_splits} + " if self.tile.size_m > 1 else ""
        if not self.config.grid_sync:
            return f"{self.tile.use_pointer(f'{state.name}_parts')} + {row}{part}"
        before = self._accumulators.index(state) * self.tile.size_m * self.tile.num_splits
        return f"{self.tile.use_pointer(self.workspace)} + {f'{before} + ' if before else ''}{row}{part}"

    @property
    def workspace(self) -> str:
        return f"{self.region.name}_notes"

    @property
    def _accumulators(self) -> list[Accumulator]:
        return [state for fold in self.passes.reductions for state in fold.accumulators]
