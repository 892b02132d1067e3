"""One set of inputs of a verification, with its expected values."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelwright.problems.problem import Args
from kernelwright.verification.accuracy.distributions import Distribution
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.near_limit import InputKind
from kernelwright.verification.accuracy.row_groups import RowGroup
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.transport.state import State


@dataclass(frozen=True)
class InputSet:
    """One set of inputs with its expected values.

    Attributes:
        state: parameters and buffers, if they differ from the previous set's.
        template: what the reference returns, where its structure may differ from that for the problem's own inputs.
        index: index in the plan, for `Reference.redraw_set`.
        repeat_call: call the candidate a second time with the same inputs, and compare the bits.
        same_address: the inputs are where those of the call before were.
        special_effect: for inputs with NaN or infinities, masks of the outputs that depend on these; they may spread to
            others, but not be lost.
        keeps_numbers: where the reference returns numbers for outputs that depend on NaN, NaN may not spread either.
        groups: rows with different distributions; without any, all rows have `distribution`.
        seed: of the random number generators in a call with these inputs; secret until the call.
        law_seed: seeds of more calls are derived from it; the candidate never receives it.
    """

    distribution: Distribution
    inputs: Args
    expected: Expected
    state: State | None
    parameters_perturbed: bool
    template: ObservedCall | None = None
    index: int = 0
    repeat_call: bool = True
    same_address: bool = False
    special_effect: list[torch.Tensor] | None = None
    keeps_numbers: bool = False
    groups: tuple[RowGroup, ...] = ()
    seed: int = 0
    law_seed: int = 0

    @property
    def kind(self) -> InputKind:
        return InputKind(self.distribution.name, self.index)

    @property
    def output_sizes_bytes(self) -> list[int]:
        return [t.numel() * t.element_size() for t in self.expected.reference]
