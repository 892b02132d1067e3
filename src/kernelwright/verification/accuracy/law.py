"""Compares the law of a candidate's random output with the reference's, from draws of both.

Every comparison is between statistics of single draws: those of a correct candidate and of the reference are equally
distributed, so Smirnov's test rejects a correct candidate with a known probability, whatever the law and however the
elements depend on each other. Where an element takes few values (dropout: 0 or the scaled input), each value of the
candidate must be one of them within the error budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.distributions import Distribution
from kernelwright.verification.accuracy.draw_statistics import (
    CONSTANT_TOLERANCE,
    Positions,
    Standardizer,
    Statistic,
    compare_pairs,
    measure_distances,
    measure_draws,
    measure_parts,
    measure_repetition,
    measure_shifted_repetition,
    measure_variation,
    measure_windows,
)
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.smirnov import two_sample_critical, two_sample_distance

FALSE_ALARM = 5e-8
"""Probability that one comparison of a correct candidate's draws rejects it: a verdict makes at most `MAX_COMPARISONS`
of them, and another 2e-7 is for calls that are compared one by one."""
MAX_COMPARISONS = 12
MAX_SUPPORT_ELEMENTS = 1 << 14
MAX_DISTINCT_SHARE = 0.5
"""An element takes few values if so many of the reference's draws at most have different ones, and each of these was
drawn twice: where some were drawn once, others were not drawn at all."""
MAX_CONFIRMED_SHARE = 1 / 8
"""The same for draws that confirm an error: up to 16 values in 128 draws, which miss none of 16 equally likely ones in
99.6 % of cases."""
TOLERANCE, TOLERANCE_EPS = 1e-4, 1 / 8
"""Differences of a statistic that do not count: correct programs round differently."""
STRONG_CORRELATION = 0.3
"""Repeated or shared random numbers change other statistics too; from this effect on they are reported first."""
SENTENCES = {
    "support": "it returns values that the reference does not: in {got:.3g} of the elements, of the reference's other "
    "draws in {want:.3g}",
    "mean": "another mean or fraction: {got:.3g} standard deviations from the reference's, which is at {want:.3g}",
    "deviation": "another scale of its random part: moment {got:.3g} of the standardised values, of the reference's "
    "{want:.3g}",
    "distribution": "another distribution of its random part: characteristic function {got:.3g} instead of {want:.3g}",
    "inputs": "its random numbers depend on the inputs: correlation {got:.3g}, in the reference {want:.3g}",
    "sharing": "elements share their random numbers: correlation up to {got:.3g}, in the reference {want:.3g}",
    "repetition": "calls under different seeds share their random numbers: correlation {got:.3g}, of independent calls "
    "{want:.3g}",
    "distance": "calls under different seeds differ by {got:.3g} standard deviations from the nearest other, "
    "independent calls by {want:.3g}",
    "variation": "the whole output's mean or scale varies by {got:.3g} between calls, the reference's by {want:.3g}",
    "windows": "random numbers in a row are equal to others in a row: {got:.3g} of all, in the reference {want:.3g}",
    "part": "another mean or scale in a part of the output: {got:.3g}, in the reference {want:.3g}",
}
"""For each kind of statistic."""


class Difference(NamedTuple):
    """A statistic that differs: by how much, and by how many spreads of the reference's."""

    size: float
    effect: float
    sentence: str


@dataclass
class OutputLaw:
    """The law of one output for one set of inputs.

    Args:
        draws: (r, n) draws of the reference at `positions`, used for nothing else.
        eps: of the output's dtype; 0 for integers.
        features: (n,) values of inputs, standardised.
        max_distinct_share: as `MAX_DISTINCT_SHARE`.
    """

    draws: Tensor
    positions: Positions
    eps: float
    features: Sequence[Tensor] = ()
    max_distinct_share: float = MAX_DISTINCT_SHARE

    def __post_init__(self) -> None:
        self.standardize = Standardizer(self.draws, self.eps)
        step = -(-self.draws.shape[1] // MAX_SUPPORT_ELEMENTS) if self.draws.shape[1] else 1
        self._support = slice(None, None, step)
        self._takes_few_values = _takes_few_values(self.draws, self.max_distinct_share)

    @property
    def tolerance(self) -> float:
        return TOLERANCE + TOLERANCE_EPS * self.eps

    def measure(self, draws: Tensor) -> list[Statistic]:
        """Statistics of (k, n) draws over all elements."""
        unknown = self._unknown_share(draws[:, self._support])
        support = torch.cat([self.standardize.outside_share(draws), unknown], 1)
        z = self.standardize(draws)
        oriented = self.standardize.orient(z)
        return [Statistic("support", support), *measure_draws(z, oriented, self.positions, self.features)]

    def measure_structure(self, draws: Tensor, z: Tensor) -> list[Statistic]:
        """Statistics of (k, n) draws, as they are and standardised, that need many draws, or take long."""
        both = (z, self.standardize.orient(z))
        return [compare_pairs(self.standardize.sums(draws))] + [
            one
            for each in both
            for measure in (measure_distances, measure_parts, measure_windows)
            for one in measure(each, self.positions)
        ]

    def _unknown_share(self, draws: Tensor) -> Tensor:
        """(k, 1): share of the elements that take few values whose value is none of them."""
        known, few = self.draws[:, self._support], self._takes_few_values[self._support]
        floor = CONSTANT_TOLERANCE * known.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
        wrong = torch.stack([~_is_near(one, _nearest(one, known), floor) & few for one in draws])
        return wrong.double().mean(1, keepdim=True)

    def check_values(
        self, got: Tensor, other: Tensor, expected: Expected, distribution: Distribution, policy: str
    ) -> tuple[Reason | None, Accuracy | None]:
        """Check one draw's elements that take few values against the nearest of them, by the error budget.

        Args:
            got: (n,) one draw.
            other: (n,) another draw of the reference: it takes values that are none of the known ones as often.
            expected: of this output alone; its reference's own error is allowed here too.
        """
        reference = expected.reference[0]
        if not (reference.dtype.is_floating_point or reference.is_complex()):
            return None, None
        nearest, close = self._find_nearest(got)
        known, is_known = self._find_nearest(other)
        unknown_error = torch.where(is_known, other - known, 0.0)
        chosen = self._takes_few_values & close & got.isfinite() & nearest.isfinite()
        if not bool(chosen.any()):
            return None, None
        golden = nearest[chosen]
        dtype = torch.view_as_real(reference).dtype if reference.is_complex() else reference.dtype
        own_error = (self._own_error(expected) + unknown_error)[chosen].nan_to_num(0.0, 0.0, 0.0)
        values = replace(
            expected,
            reference=[(golden + own_error).to(dtype)],
            golden=[golden],
            initial_state={},
            mutated_inputs=(),
            _compute_rounded=lambda: [golden],
            _cache={},
        )
        return budget.check_accuracy([got[chosen].to(dtype)], values, distribution=distribution, policy=policy)

    def _find_nearest(self, draw: Tensor) -> tuple[Tensor, Tensor]:
        """For each element of (n,) one draw the nearest known value, and whether that is close."""
        nearest = _nearest(draw, self.draws)
        return nearest, (draw - nearest).abs() <= CONSTANT_TOLERANCE * torch.minimum(draw.abs(), nearest.abs())

    def _own_error(self, expected: Expected) -> Tensor:
        pair = (expected.reference[0], expected.golden[0])
        reference, golden = (self.positions.take(torch.view_as_real(t) if t.is_complex() else t) for t in pair)
        return reference - golden


def _takes_few_values(draws: Tensor, max_distinct_share: float = MAX_DISTINCT_SHARE) -> Tensor:
    """For each element of (k, n) draws, whether they show all of the few values that it takes."""
    is_new = draws.sort(0).values.diff(dim=0) != 0
    edge = is_new.new_ones(1, draws.shape[1])
    drawn_once = torch.cat([edge, is_new]) & torch.cat([is_new, edge])
    return (is_new.sum(0) + 1 <= max_distinct_share * len(draws)) & ~drawn_once.any(0)


def find_difference(
    law: OutputLaw, candidate: Tensor, reference: Tensor, num_paired: int, false_alarm: float = FALSE_ALARM
) -> str:
    """How the candidate's law differs from the reference's, or an empty string.

    Args:
        candidate, reference: (k, n) draws for the same inputs; the first `num_paired` of both are under the same
            seeds.
        false_alarm: probability of a result for equal laws.
    """
    z, reference_z = law.standardize(candidate), law.standardize(reference)
    half, alpha = len(candidate) // 2, false_alarm / 3
    pairs = zip(
        law.measure(candidate) + law.measure_structure(candidate, z),
        law.measure(reference) + law.measure_structure(reference, reference_z),
        strict=True,
    )
    found = _compare([*pairs], alpha, law.tolerance)
    found |= find_repetition(law, z[half:], z[:half], reference_z[num_paired:], alpha)
    orient = law.standardize.orient
    sides = ((z, candidate), (reference_z, reference))
    variations = [measure_variation(one, orient(one), draws) for one, draws in sides]
    found |= _compare([(variations[0], variations[1])], alpha, 1e-9)
    if "support" in found:
        return found["support"].sentence
    strong = [one for name in ("repetition", "sharing") if (one := found.get(name)) and one.size > STRONG_CORRELATION]
    return max(strong or found.values(), key=lambda one: one.effect).sentence if found else ""


def find_repetition(
    law: OutputLaw, z: Tensor, earlier: Tensor, reference_z: Tensor, false_alarm: float
) -> dict[str, Difference]:
    """Whether draws repeat earlier ones, as the reference's do not.

    Args:
        z, earlier, reference_z: (k, n) standardised draws, all under different seeds.
    """

    def measure(draws: Tensor) -> list[Statistic]:
        orient = law.standardize.orient
        pairs = ((draws, earlier[-1]), (orient(draws), orient(earlier[-1])))
        shifted = [measure_shifted_repetition(one, last, law.positions) for one, last in pairs]
        return measure_repetition(draws, earlier, law.positions) + shifted[0] + shifted[1]

    measured = (measure(draws) for draws in (z, reference_z))
    return _compare([*zip(*measured, strict=True)], false_alarm, law.tolerance)


def _compare(pairs: list[tuple[Statistic, Statistic]], alpha: float, tolerance: float) -> dict[str, Difference]:
    """For each kind of statistic that differs, the one that differs most."""
    count = sum(one.values.shape[1] for one, _ in pairs)
    found: dict[str, Difference] = {}
    for one, other in pairs:
        critical = two_sample_critical(len(one.values), len(other.values), alpha / count)
        distance = two_sample_distance(one.values, other.values, tolerance)
        medians = [each.values.double().median(0).values for each in (one, other)]
        spread = (other.values - medians[1]).abs().double().median(0).values + tolerance
        sizes = (medians[0] - medians[1]).abs()
        effects = torch.where(distance > critical, sizes / spread, -1.0)
        worst = int(effects.argmax())
        size, effect = float(sizes[worst]), float(effects[worst])
        if effect > (found[one.name].effect if one.name in found else -1.0):
            sentence = SENTENCES[one.name].format(got=float(medians[0][worst]), want=float(medians[1][worst]))
            found[one.name] = Difference(size, effect, sentence)
    return found


def _nearest(values: Tensor, known: Tensor) -> Tensor:
    """(n,) for each element the nearest of (r, n) known values."""
    nearest, distance = known[0], (values - known[0]).abs()
    for one in known[1:]:
        difference = (values - one).abs()
        nearest = torch.where(difference < distance, one, nearest)
        distance = torch.minimum(difference, distance)
    return nearest


def _is_near(values: Tensor, nearest: Tensor, floor: Tensor) -> Tensor:
    """Whether values are near enough to known ones not to be other values; `floor` is the smallest size that counts."""
    size = torch.maximum(values.abs(), floor)
    return ((values - nearest).abs() <= CONSTANT_TOLERANCE * size) | (values == nearest)
