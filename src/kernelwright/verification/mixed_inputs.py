"""Inputs whose rows have different distributions, so that a few numbers do not distinguish one set from another, or
a set from a timed call."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args, clone_inputs
from kernelwright.verification.accuracy.distributions import SEED_STRIDE, Distribution, is_redrawable, mix_blocks
from kernelwright.verification.accuracy.domains import Domain
from kernelwright.verification.accuracy.ranges import all_finite
from kernelwright.verification.accuracy.row_groups import RowGroup, draw_rows, find_row_leaves, replace_rows
from kernelwright.verification.probed_inputs import ReferenceRunner
from kernelwright.verification.transport.state import bitwise_equal

NUM_TRIALS = 2
"""Trials of inputs with rows of other distributions."""


class MixedInputs:
    """Mixes rows of the problem's own inputs with rows of other distributions."""

    def __init__(self, reference: ReferenceRunner) -> None:
        self._reference = reference

    def mix_rows(
        self, distribution: Distribution, inputs: Args, own_inputs: Args, index: int
    ) -> tuple[Args, tuple[RowGroup, ...]]:
        """Drawn inputs with some rows of the problem's own; unchanged where the rows of the outputs depend on several
        rows.

        Args:
            inputs: drawn from the distribution.
            index: for the seed, the same for all sets of a plan.
        """
        if not self.row_leaves:
            return inputs, ()
        first = pytree.tree_leaves(inputs)[self.row_leaves[0]]
        generator = torch.Generator(first.device).manual_seed(self._reference.derive_seed("rows", index))
        groups = draw_rows(first.shape[0], distribution, generator)
        if not groups:
            return inputs, ()
        return replace_rows(inputs, own_inputs, self.row_leaves, groups[1].rows), tuple(groups)

    def mix_blocks(self, inputs: Args, seed: int) -> Args:
        """A copy of the problem's own inputs with some rows of other distributions; the inputs themselves where the
        reference does not take these."""
        return _mix_blocks(inputs, self.block_domains, seed)

    @functools.cached_property
    def row_leaves(self) -> list[int]:
        """Leaves of the inputs of which each row determines the same row of every output; none where there are no
        such."""
        inputs, others = self._reference.make_inputs(0), self._reference.make_inputs(1)
        before = self._reference.run_values(inputs)
        for leaves in find_row_leaves(inputs) if before else ():
            first: Tensor = pytree.tree_leaves(inputs)[leaves[0]]
            rows = first.shape[0]
            if any(not value.dim() or value.shape[0] != rows for value in before or ()):
                return []
            seed = self._reference.derive_seed("independent rows", 0)
            generator = torch.Generator(first.device).manual_seed(seed)
            order = torch.randperm(rows, generator=generator, device=first.device)
            kept, replaced = order[: rows // 2], order[rows // 2 :]
            after = self._reference.run_values(replace_rows(inputs, others, leaves, replaced))
            pairs = zip(before or (), after or (), strict=False)
            if before and after and all(_only_these_differ(*pair, kept, replaced) for pair in pairs):
                return leaves
        return []

    @functools.cached_property
    def block_domains(self) -> dict[int, Domain]:
        """Leaves of the inputs that timed calls have rows of other distributions in, with their domains."""
        inputs = self._reference.make_inputs(0)
        domains = {
            at: Domain.of(leaf)
            for at, leaf in enumerate(pytree.tree_leaves(inputs))
            if isinstance(leaf, Tensor) and _can_mix(leaf)
        }
        domains = {at: domain for at, domain in domains.items() if not (domain.ascending or domain.rows_sum_to_one)}
        before = self._reference.run_values(inputs) if domains else None
        for trial in range(NUM_TRIALS):
            mixed = _mix_blocks(inputs, domains, self._reference.derive_seed("mixed", trial))
            after = self._reference.run_values(mixed) if before else None
            if not before or not after or [t.shape for t in after] != [t.shape for t in before]:
                return {}
            if not all(map(all_finite, after)):
                return {}
        return domains


def _mix_blocks(inputs: Args, domains: dict[int, Domain], seed: int) -> Args:
    if not domains:
        return inputs
    mixed = clone_inputs(inputs)
    leaves = pytree.tree_leaves(mixed)
    with torch.no_grad():
        for at, domain in domains.items():
            mix_blocks(leaves[at], domain, seed + SEED_STRIDE * at)
    return mixed


def _can_mix(leaf: Tensor) -> bool:
    return leaf.dtype.is_floating_point and leaf.layout == torch.strided and leaf.numel() > 1 and is_redrawable(leaf)


def _only_these_differ(before: Tensor, after: Tensor, kept: Tensor, replaced: Tensor) -> bool:
    return (
        before.shape == after.shape
        and bitwise_equal(before[kept], after[kept])
        and not bitwise_equal(before[replaced], after[replaced])
    )
