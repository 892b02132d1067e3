"""The input sets of one verification and their order. Both follow from the problem and the secret seed alone, never
from the candidate."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS, Distribution

PERTURBED_SHARE, SIGNS_SHARE = 1 / 3, 3 / 4
"""Share of the distribution sets with other parameters, and share of these in which signs change too."""
MAX_ARGUMENTS, MAX_CHANGED_INPUTS, MAX_CHANGED_STATE, MIN_CHANGES = 16, 4, 3, 6
"""Largest numbers of arguments that are redrawn alone, and of inputs, parameters and buffers of which one element
changes; with fewer of these than the last number, several places of each change, far apart in every dimension: a result
that is kept by half of the rows or columns is then found."""
NUM_ESSENTIAL = 4
"""The first distributions, which are run even in the slowest verification."""


class Variant(Enum):
    """How the inputs of a set are made."""

    DISTRIBUTION = "every tensor from a distribution"
    ARGUMENT = "one integer, boolean or constant tensor redrawn"
    SKEWED_ARGUMENT = "one such tensor redrawn, most of it equal"
    NAN = "a few NaN"
    INFINITY = "a few infinities"
    ALL_ARGUMENTS = "all of these redrawn"
    TIES = "equal and nearly equal numbers"
    ZERO_ROWS = "some rows of zeros"
    CHANGED_INPUT = "the inputs of the set before, with one element of one tensor changed"
    CHANGED_STATE = "the same with one parameter or buffer"


CHANGES = (Variant.CHANGED_INPUT, Variant.CHANGED_STATE)


@dataclass(frozen=True)
class PlannedSet:
    """One set of the plan.

    Attributes:
        index: its number for `Reference.draw_set`.
        distribution: decides the budget rule and names the set in reports.
        perturbed, signs: parameters have other values, with other signs too.
        target: index of the one tensor that is redrawn or changed, among the leaves of the inputs or among the names
            of the state.
        step: how many single changes come before this one.
        place, num_places: the change's number among those of the same tensor, and how many there are.
    """

    index: int
    variant: Variant
    distribution: Distribution
    perturbed: bool = False
    signs: bool = False
    target: int = 0
    step: int = 0
    place: int = 0
    num_places: int = 1

    @property
    def repeat_call(self) -> bool:
        """Whether the candidate is called a second time with the same inputs, to compare the bits."""
        return self.variant is Variant.DISTRIBUTION

    @property
    def same_address(self) -> bool:
        """Whether the inputs are where those of the set before were: every second change is one in place."""
        return self.variant in CHANGES and self.step % 2 == 0


@dataclass(frozen=True)
class Targets:
    """What can be redrawn or changed alone in a problem: indices among the leaves of its inputs, and how much state.

    Attributes:
        arguments: integer, boolean and constant tensors.
        floating: floating tensors with more than one dimension.
        special: floating tensors that can contain NaN.
        tied: floating tensors that can contain ties; empty where no output is an index.
        changeable: tensors of which one element can change.
        num_state: number of parameters and buffers that can change.
    """

    arguments: Sequence[int] = ()
    floating: Sequence[int] = ()
    special: Sequence[int] = ()
    tied: Sequence[int] = ()
    changeable: Sequence[int] = ()
    num_state: int = 0


def plan_sets(rng: random.Random, targets: Targets, *, perturb: bool) -> list[PlannedSet]:
    """All sets in the order in which they are run.

    The single changes follow each other and one set with the problem's own values. The first set has the problem's own
    parameters.

    Args:
        perturb: whether the candidate accepts other parameters.
    """
    sets = _plan_distributions(rng, perturb) + _plan_probed(rng, targets)
    rng.shuffle(sets)
    first = next(at for at, one in enumerate(sets) if not one.perturbed)
    sets[0], sets[first] = sets[first], sets[0]
    changes = _plan_changes(rng, targets)
    if changes:
        at = next(at for at, one in enumerate(sets) if one.distribution is DISTRIBUTIONS[0] and not one.perturbed) + 1
        sets[at:at] = changes
    return [replace(one, index=index) for index, one in enumerate(sets)]


def shorten(sets: Sequence[PlannedSet], limit: int) -> list[PlannedSet]:
    """The most important `limit` sets, in their order: the first distributions, then arguments, then the others."""

    def importance(one: PlannedSet) -> tuple[int, int]:
        if one.variant is Variant.DISTRIBUTION:
            number = DISTRIBUTIONS.index(one.distribution)
            return (0 if number < NUM_ESSENTIAL else 3), number
        return (1 if one.variant is Variant.ARGUMENT else 2), one.index

    chosen = sorted(sets, key=importance)[:limit]
    return sorted(chosen, key=lambda one: one.index)


def _plan_distributions(rng: random.Random, perturb: bool) -> list[PlannedSet]:
    """One set of each distribution; the first one, the problem's own values, keeps its parameters too. One of the next
    two has others, so that a short plan has such a set."""
    others = range(1, len(DISTRIBUTIONS))
    count = round(PERTURBED_SHARE * len(DISTRIBUTIONS)) if perturb else 0
    early, *more = rng.sample(others[:2], 2)
    perturbed = {early, *rng.sample([*more, *others[2:]], count - 1)} if count else set()
    signs = set(rng.sample(sorted(perturbed), round(SIGNS_SHARE * count)))
    return [
        PlannedSet(0, Variant.DISTRIBUTION, distribution, number in perturbed, number in signs)
        for number, distribution in enumerate(DISTRIBUTIONS)
    ]


def _plan_probed(rng: random.Random, targets: Targets) -> list[PlannedSet]:
    """Arguments, each alone, and special values."""
    arguments = list(targets.arguments)
    if len(arguments) > MAX_ARGUMENTS:
        arguments = rng.sample(arguments, MAX_ARGUMENTS)
    planned = [(Variant.ARGUMENT, at) for at in arguments]
    planned += [(Variant.SKEWED_ARGUMENT, at) for at in arguments]
    if targets.special:
        planned += [(variant, rng.choice(targets.special)) for variant in (Variant.NAN, Variant.INFINITY)]
    if targets.floating:
        planned.append((Variant.ZERO_ROWS, rng.choice(targets.floating)))
    if len(arguments) > 1:
        planned.append((Variant.ALL_ARGUMENTS, arguments[0]))
    if targets.tied:
        planned.append((Variant.TIES, rng.choice(targets.tied)))
    return [PlannedSet(0, variant, _distribution_of(variant), target=at) for variant, at in planned]


def _plan_changes(rng: random.Random, targets: Targets) -> list[PlannedSet]:
    inputs = rng.sample(list(targets.changeable), min(MAX_CHANGED_INPUTS, len(targets.changeable)))
    state = rng.sample(range(targets.num_state), min(MAX_CHANGED_STATE, targets.num_state))
    planned = [(Variant.CHANGED_INPUT, at) for at in inputs] + [(Variant.CHANGED_STATE, at) for at in state]
    rng.shuffle(planned)
    planned = [planned[at % len(planned)] for at in range(max(MIN_CHANGES, len(planned)))] if planned else []
    counts = Counter(planned)
    return [
        PlannedSet(
            0,
            variant,
            _distribution_of(variant),
            target=at,
            step=step,
            place=planned[:step].count((variant, at)),
            num_places=counts[variant, at],
        )
        for step, (variant, at) in enumerate(planned)
    ]


def _distribution_of(variant: Variant) -> Distribution:
    return _DISTRIBUTIONS[variant]


_DISTRIBUTIONS = {
    Variant.ARGUMENT: Distribution("argument redrawn", False, None),
    Variant.SKEWED_ARGUMENT: Distribution("argument redrawn, skewed", False, None),
    Variant.ALL_ARGUMENTS: Distribution("all arguments redrawn", False, None),
    Variant.ZERO_ROWS: Distribution("with rows of zeros", False, None, coarse=True),
    Variant.NAN: Distribution("with NaN", False, None, coarse=True),
    Variant.INFINITY: Distribution("with infinities", False, None, coarse=True),
    Variant.TIES: Distribution("ties", False, None),
    Variant.CHANGED_INPUT: Distribution(
        "one element changed", False, None, hint="a result kept from a call with nearly the same values"
    ),
    Variant.CHANGED_STATE: Distribution(
        "one parameter changed", False, None, hint="a result kept from a call with nearly the same parameters"
    ),
}
