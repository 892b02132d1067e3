"""Compares the law of a candidate's random output with the reference's, from draws of both.

Every comparison is between statistics of single draws: those of an honest candidate and of the reference are equally
distributed, so Smirnov's test rejects an honest candidate with a known probability, whatever the law and however the
elements depend on each other. Where an element takes few values (dropout: 0 or the scaled input), each value of the
candidate must be one of them within the error budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    measure_draws,
    measure_parts,
    measure_repetition,
    measure_variation,
)
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.smirnov import two_sample_critical, two_sample_distance

FALSE_ALARM = 5e-8
"""Probability that one comparison of an honest candidate's draws rejects it: a verdict makes at most `MAX_COMPARISONS`
of them, and another 2e-7 is for calls that are compared one by one."""
MAX_COMPARISONS = 12
MAX_SUPPORT_ELEMENTS = 1 << 14
MIN_MATCH_SHARE = 0.5
"""An element takes few values if this share of the reference's draws equals one of its earlier draws."""
TOLERANCE, TOLERANCE_EPS = 1e-4, 1 / 8
"""Differences of a statistic that do not count: honest programs round differently."""
SENTENCES = {
    "support": "it returns values that the reference does not: in {got:.3g} of the elements, of the reference's other "
    "draws in {want:.3g}",
    "repetition": "calls under different seeds share their random numbers: correlation or distance {got:.3g}, of "
    "independent calls {want:.3g}",
    "sharing": "elements share their random numbers: correlation up to {got:.3g}, in the reference {want:.3g}",
    "inputs": "its random numbers depend on the inputs: correlation {got:.3g}, in the reference {want:.3g}",
    "mean": "another mean or fraction: {got:.3g} standard deviations from the reference's, which is at {want:.3g}",
    "deviation": "another scale of its random part: moment {got:.3g} of the standardised values, of the reference's "
    "{want:.3g}",
    "distribution": "another distribution of its random part: characteristic function {got:.3g} instead of {want:.3g}",
    "variation": "the whole output's mean or scale varies by {got:.3g} between calls, the reference's by {want:.3g}",
    "part": "another mean or scale in a part of the output: {got:.3g}, in the reference {want:.3g}",
}
"""For each kind of statistic, in the order in which they are reported."""


@dataclass
class OutputLaw:
    """The law of one output for one set of inputs.

    Args:
        draws: (r, n) draws of the reference at `positions`, used for nothing else.
        eps: of the output's dtype; 0 for integers.
        features: (n,) values of inputs, standardised.
    """

    draws: Tensor
    positions: Positions
    eps: float
    features: Sequence[Tensor] = ()

    def __post_init__(self) -> None:
        self.standardize = Standardizer(self.draws, self.eps)
        step = -(-self.draws.shape[1] // MAX_SUPPORT_ELEMENTS) if self.draws.shape[1] else 1
        self._support = slice(None, None, step)

    @property
    def tolerance(self) -> float:
        return TOLERANCE + TOLERANCE_EPS * self.eps

    def measure(self, draws: Tensor, takes_few_values: Tensor) -> list[Statistic]:
        """Statistics of (k, n) draws over all elements."""
        unknown = self._unknown_share(draws[:, self._support], takes_few_values[self._support])
        support = torch.cat([self.standardize.outside_share(draws), unknown], 1)
        z = self.standardize(draws)
        return [Statistic("support", support), *measure_draws(z, self.positions, self.features)]

    def takes_few_values(self, other_draws: Tensor) -> Tensor:
        """(n,) which elements take few values: other draws of the reference mostly equal one of `draws`."""
        count = torch.zeros(self.draws.shape[1], dtype=torch.int64)
        for one in other_draws:
            count += (self.draws == one).any(0)
        return count >= MIN_MATCH_SHARE * len(other_draws)

    def _unknown_share(self, draws: Tensor, takes_few_values: Tensor) -> Tensor:
        """(k, 1): share of the elements that take few values whose value is none of them."""
        known = self.draws[:, self._support]
        wrong = torch.stack([~_is_near(one, _nearest(one, known), known) & takes_few_values for one in draws])
        return wrong.double().mean(1, keepdim=True)

    def check_values(
        self, got: Tensor, takes_few_values: Tensor, expected: Expected, distribution: Distribution, policy: str
    ) -> tuple[Reason | None, Accuracy | None]:
        """Check one draw's elements that take few values against the nearest of them, by the error budget.

        Args:
            got: (n,) one draw.
            expected: of this output alone; its reference's own error is allowed here too.
        """
        reference = expected.reference[0]
        if not (reference.dtype.is_floating_point or reference.is_complex()):
            return None, None
        nearest = _nearest(got, self.draws)
        close = (got - nearest).abs() <= CONSTANT_TOLERANCE * torch.minimum(got.abs(), nearest.abs())
        chosen = takes_few_values & close & got.isfinite() & nearest.isfinite()
        if not bool(chosen.any()):
            return None, None
        golden = nearest[chosen]
        dtype = torch.view_as_real(reference).dtype if reference.is_complex() else reference.dtype
        own_error = self._own_error(expected)[chosen].nan_to_num(0.0, 0.0, 0.0)
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

    def _own_error(self, expected: Expected) -> Tensor:
        pair = (expected.reference[0], expected.golden[0])
        reference, golden = (self.positions.take(torch.view_as_real(t) if t.is_complex() else t) for t in pair)
        return reference - golden


def find_difference(
    law: OutputLaw, candidate: Tensor, reference: Tensor, num_paired: int, false_alarm: float = FALSE_ALARM
) -> str:
    """How the candidate's law differs from the reference's, or an empty string.

    Args:
        candidate, reference: (k, n) draws for the same inputs; the first `num_paired` of both are under the same
            seeds.
        false_alarm: probability of a result for equal laws.
    """
    few = law.takes_few_values(reference)
    z, reference_z = law.standardize(candidate), law.standardize(reference)
    half, alpha = len(candidate) // 2, false_alarm / 3
    pairs = zip(
        law.measure(candidate, few) + measure_parts(z, law.positions),
        law.measure(reference, few) + measure_parts(reference_z, law.positions),
        strict=True,
    )
    found = _compare([*pairs], alpha, law.tolerance)
    found |= find_repetition(law, z[half:], z[:half], reference_z[num_paired:], alpha)
    found |= _compare([(measure_variation(z), measure_variation(reference_z))], alpha, 1e-9)
    return next((found[name] for name in SENTENCES if name in found), "")


def find_repetition(
    law: OutputLaw, z: Tensor, earlier: Tensor, reference_z: Tensor, false_alarm: float
) -> dict[str, str]:
    """Whether draws repeat earlier ones, as the reference's do not: by name of the statistic, a sentence.

    Args:
        z, earlier, reference_z: (k, n) standardised draws, all under different seeds.
    """
    measured = (measure_repetition(draws, earlier, law.positions) for draws in (z, reference_z))
    return _compare([*zip(*measured, strict=True)], false_alarm, law.tolerance)


def _compare(pairs: list[tuple[Statistic, Statistic]], alpha: float, tolerance: float) -> dict[str, str]:
    """A sentence for each kind of statistic that differs."""
    count = sum(one.values.shape[1] for one, _ in pairs)
    found: dict[str, tuple[float, str]] = {}
    for one, other in pairs:
        critical = two_sample_critical(len(one.values), len(other.values), alpha / count)
        distance = two_sample_distance(one.values, other.values, tolerance)
        worst = int(distance.argmax())
        if (excess := float(distance[worst])) > max(critical, found.get(one.name, (0.0, ""))[0]):
            got, want = (float(each.values[:, worst].double().median()) for each in (one, other))
            found[one.name] = excess, SENTENCES[one.name].format(got=got, want=want)
    return {name: sentence for name, (_, sentence) in found.items()}


def _nearest(values: Tensor, known: Tensor) -> Tensor:
    """(n,) for each element the nearest of (r, n) known values."""
    nearest, distance = known[0], (values - known[0]).abs()
    for one in known[1:]:
        difference = (values - one).abs()
        nearest = torch.where(difference < distance, one, nearest)
        distance = torch.minimum(difference, distance)
    return nearest


def _is_near(values: Tensor, nearest: Tensor, known: Tensor) -> Tensor:
    """Whether values are near enough to known ones not to be other values."""
    rms = known.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
    size = torch.maximum(values.abs(), CONSTANT_TOLERANCE * rms)
    return ((values - nearest).abs() <= CONSTANT_TOLERANCE * size) | (values == nearest)
