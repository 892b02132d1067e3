"""What the parts of a row leave for each other in memory, as Triton text."""

from __future__ import annotations

from kernelwright.compiler.triton.passes import Sweeps
from kernelwright.compiler.triton.reductions import State
from kernelwright.compiler.triton.tile import CudaChoice
from kernelwright.core.records import Record


class Scratch(Record, frozen=True, kw_only=True):
    """Partial results of all rows and parts."""

    name: str
    dtype: str
    rows: int
    parts: int


class Partials:
    """The partial results of rows that are swept so: read by a later launch or, where parts meet, told to those that
    wait."""

    def __init__(self, sweeps: Sweeps, choice: CudaChoice) -> None:
        self.sweeps, self.region, self.tile, self.choice = sweeps, sweeps.region, sweeps.tile, choice

    def scratch(self) -> list[Scratch]:
        if self.choice.meet:
            rows = self.tile.rows * len(self._states)
            return [Scratch(name=self.notes, dtype="int64", rows=rows, parts=self.tile.parts)]
        found = [(f"{state.name}_parts", state.dtype, self.tile.parts) for state in self._states]
        if self.choice.join:
            joined = [self.sweeps.by_value[value] for value in self.sweeps.fold_of]
            found += [(f"{one.value}_joined", one.dtype, 1) for one in joined]
        return [Scratch(name=name, dtype=dtype, rows=self.tile.rows, parts=parts) for name, dtype, parts in found]

    def written_down(self, state: State) -> str:
        place = self._place(state, "part")
        if self.choice.meet:
            return f"tell({place}, {state.name})"
        return f"tl.store({place}, {state.name}{', mask=mask_m' if self.tile.ragged_m else ''})"

    def of_all(self, state: State) -> str:
        place = self._place(state, "parts")
        if self.choice.meet:
            heard = f"hear({place}, there)" + ".to(tl.float32, bitcast=True)" * (state.dtype == "float32")
            return f"tl.where(there, {heard}, {state.neutral})"
        everywhere = not self.tile.ragged_m and self.tile.parts & self.tile.parts - 1 == 0
        return f"tl.load({place})" if everywhere else f"tl.load({place}, mask=there, other={state.neutral})"

    def _place(self, state: State, part: str) -> str:
        row = f"{self.tile.m} * {self.tile.parts} + " if self.tile.rows > 1 else ""
        if not self.choice.meet:
            return f"{self.tile.pointer(f'{state.name}_parts')} + {row}{part}"
        before = self._states.index(state) * self.tile.rows * self.tile.parts
        return f"{self.tile.pointer(self.notes)} + {f'{before} + ' if before else ''}{row}{part}"

    @property
    def notes(self) -> str:
        return f"{self.region.name}_notes"

    @property
    def _states(self) -> list[State]:
        return [state for fold in self.sweeps.folds for state in fold.states]
