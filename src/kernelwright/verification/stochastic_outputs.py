"""Judges outputs of a random program that are not the reference's own draw: by law, from more calls of both.

The first set of each shape is judged by many calls with its inputs under different secret seeds. A candidate could
recognise repeated inputs, so every other checked call is compared with draws of the reference too, one by one: where
the ranks of these calls together are not random, the candidate is rejected, and where one call is far off, its set is
judged by many calls as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.core.cache import digest
from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.measure.clock import wall_s
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.comparison import check_shape_dtype
from kernelwright.verification.accuracy.draw_statistics import Positions, Statistic, measure_repetition
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.law import (
    FALSE_ALARM,
    MAX_COMPARISONS,
    MAX_CONFIRMED_SHARE,
    SENTENCES,
    OutputLaw,
    find_difference,
    find_repetition,
)
from kernelwright.verification.accuracy.near_limit import NEAR_LIMIT_RATIO
from kernelwright.verification.accuracy.smirnov import one_sample_critical, one_sample_distance
from kernelwright.verification.input_set import InputSet

NUM_CALLS, MIN_CALLS, MANY_ELEMENTS = 64, 32, 1 << 16
"""Calls of candidate and reference for one set; the minimum for larger outputs, and after `CALLS_TIMEOUT_S`."""
CALLS_TIMEOUT_S = 10.0
NUM_RELOADED_CALLS = 16
FEW_DRAWS, FEW_OTHER_DRAWS, MANY_OTHER_DRAWS = 6, 8, 256
"""Draws of the reference for a call that is compared alone: for its moments, to be compared with, and to be compared
with where it is far off. So many also confirm an error of elements that take few values."""
NUM_PROBES = 4
"""Draws that show which outputs are random."""
SAME_DRAW_CORRELATION, MIN_PAIRED_ELEMENTS, NUM_PAIRED = 0.9, 64, 8
"""From this correlation with the reference's draws under the same seeds on, the candidate takes the reference's
generator; measured in `NUM_PAIRED` calls, in half of the calls for fewer elements."""
MAX_HISTORY, MIN_RANKS = 8, 6
RANK_FALSE_ALARM = 5e-12
"""For one statistic of up to 20, in one call."""
FAR_OFF = 3.0
"""A call is far off if a statistic is this many ranges of the reference's draws away from their median."""
BY_VALUE_NOTE = "stochastic: judged by value, under the reference's generator"
BY_LAW_NOTE = "stochastic: judged by law"

BY_LAW = "judged by law"
CallCandidate = Callable[[InputSet, int], list[Tensor] | Reason]
"""Calls the candidate with a set's inputs under a seed: its values in the order of the expected ones, or the reason to
reject that call's structure."""


class LawResult(NamedTuple):
    """Decision on a call: the reason to reject it, or None; and the accuracy of what could be judged by value."""

    reason: Reason | None
    accuracy: Accuracy | None

    @property
    def is_near_limit(self) -> bool:
        """Whether the reason is an error near its limit, so that more sets have to decide."""
        by_value = self.reason is not None and BY_LAW not in self.reason.detail
        return by_value and budget.is_near_limit(self.accuracy)


@dataclass
class _FirstSet:
    """What is kept of the first set that was judged by many calls, by output: for calls in a new process."""

    input_set: InputSet
    laws: dict[int, OutputLaw]
    candidate: dict[int, Tensor]
    reference: dict[int, Tensor]


@dataclass
class StochasticOutputs:
    """Judges the random outputs of one candidate, call after call.

    Args:
        call: calls the candidate.
        policy: accuracy policy of values.
        reference_varies: the reference returns other values under equal seeds, so it draws from a source of its own.
    Attributes:
        num_draws: calls of the candidate in the largest comparison; 0 where none was needed.
    """

    call: CallCandidate
    policy: str
    reference_varies: bool = False
    num_draws: int = 0
    _first: _FirstSet | None = None
    _judged_kinds: set[object] = field(default_factory=set)
    _outputs: dict[object, list[int]] = field(default_factory=dict)
    _num_comparisons: int = 0
    _num_calls: int = 0
    _positions_seed: int | None = None
    _positions: dict[tuple[int, ...], Positions] = field(default_factory=dict)
    _history: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    _ranks: dict[tuple[str, int], list[Tensor]] = field(default_factory=dict)

    def judge(self, got: list[Tensor], input_set: InputSet, *, is_repeated: bool = False) -> LawResult | None:
        """Decide on a call whose values are rejected; None where values decide: the program's outputs are not random,
        or the candidate takes the reference's generator.

        Args:
            is_repeated: a second call with equal inputs, which the candidate can recognise: these are ranked apart.
        """
        expected = input_set.expected
        if not (expected.draws_random or self.reference_varies) or _has_other_shapes(got, expected):
            return None
        self._num_calls += 1
        self._positions_seed = self._positions_seed or input_set.law_seed
        kind = tuple(tuple(value.shape) for value in expected.reference), input_set.parameters_perturbed
        outputs = self._outputs.get(kind) or self._find_random_outputs(input_set)
        if not outputs:
            return None
        self._outputs[kind] = outputs
        reason, accuracy = self._check_fixed_outputs(got, input_set, outputs)
        if reason and not budget.is_near_limit(accuracy):
            # Where inputs are very large, noise that is added to them has no effect.
            outputs = self._outputs[kind] = sorted({*outputs, *self._find_random_outputs(input_set)})
            reason, accuracy = self._check_fixed_outputs(got, input_set, outputs)
        if reason and not budget.is_near_limit(accuracy):
            return LawResult(reason, accuracy)
        result = self._judge_random_outputs(got, input_set, outputs, (kind, *outputs), is_repeated)
        if result is None or result.reason:
            return result
        return LawResult(reason, _larger(result.accuracy, accuracy))

    def _check_fixed_outputs(
        self, got: list[Tensor], input_set: InputSet, outputs: Sequence[int]
    ) -> tuple[Reason | None, Accuracy | None]:
        """Check by value all outputs but these."""
        fixed = [at for at in range(len(got)) if at not in outputs]
        expected, distribution = _select(input_set.expected, fixed), input_set.distribution
        return budget.check_accuracy([got[at] for at in fixed], expected, distribution=distribution, policy=self.policy)

    def _find_random_outputs(self, input_set: InputSet) -> list[int]:
        """Outputs of which the reference's own values under other seeds would be rejected."""
        expected = input_set.expected
        smallest = min((value.numel() for value in expected.reference if value.numel()), default=0)
        num_probes = NUM_PROBES if smallest >= MIN_PAIRED_ELEMENTS else NUM_CALLS
        probes = self._draw_reference(input_set, "probe", num_probes)

        def differs(at: int, value: Tensor) -> bool:
            alone = _select(expected, [at])
            distribution = input_set.distribution
            return budget.check_accuracy([value], alone, distribution=distribution, policy=self.policy)[0] is not None

        return [at for at in range(len(expected.reference)) if any(differs(at, one[at]) for one in probes)]

    def _judge_random_outputs(
        self, got: list[Tensor], input_set: InputSet, outputs: Sequence[int], kind: object, is_repeated: bool
    ) -> LawResult | None:
        if kind in self._judged_kinds:
            result, is_far_off = self._judge_one_call(got, input_set, outputs, is_repeated)
            if result.reason or not is_far_off or self._num_comparisons >= MAX_COMPARISONS:
                return result
        self._judged_kinds.add(kind)
        return self._judge_many_calls(got, input_set, outputs)

    def _judge_many_calls(self, got: list[Tensor], input_set: InputSet, outputs: Sequence[int]) -> LawResult | None:
        """Compare many calls with the inputs of this set; None where the candidate takes the reference's generator."""
        self._num_comparisons += 1
        start_s, expected = wall_s(), input_set.expected
        largest = max(expected.reference[at].numel() for at in outputs)
        num_calls = MIN_CALLS if largest >= MANY_ELEMENTS else NUM_CALLS
        candidate = {at: [self._take(got[at])] for at in outputs}
        reference = {at: [self._take(expected.reference[at])] for at in outputs}
        num_paired = NUM_PAIRED if largest >= MIN_PAIRED_ELEMENTS else num_calls // 2
        for number in range(1, num_calls):
            if number >= MIN_CALLS and wall_s() - start_s > CALLS_TIMEOUT_S:
                break
            seed = self._derive_seed(input_set, "candidate", number)
            values = self.call(input_set, seed)
            if isinstance(values, Reason):
                return LawResult(values, None)
            if number >= num_paired:
                seed = self._derive_seed(input_set, "reference", number)
            drawn = self._draw(expected, seed)
            if _has_other_shapes(values, expected) or drawn is None:
                return None
            for at in outputs:
                candidate[at].append(self._take(values[at]))
                reference[at].append(self._take(drawn[at]))
        moments = self._draw_reference(input_set, "moments", len(candidate[outputs[0]]) // 2)
        if not moments:
            return None
        self.num_draws = max(self.num_draws, len(candidate[outputs[0]]))
        laws = {at: self._make_law(at, [one[at] for one in moments], input_set) for at in outputs}
        draws = {at: (torch.stack(candidate[at]), torch.stack(reference[at])) for at in outputs}
        if all(_is_same_draw(laws[at], *draws[at], num_paired) for at in outputs):
            return None
        accuracy: Accuracy | None = None
        for at, law in laws.items():
            result = self._check_support(law, draws[at][0], draws[at][1], input_set, at)
            accuracy = _larger(accuracy, result.accuracy)
            if result.reason:
                return result
            difference = find_difference(law, *draws[at], num_paired, FALSE_ALARM / len(outputs))
            if difference:
                return LawResult(self._reject(expected.names[at], difference), accuracy)
            self._remember(at, law, draws[at][0][:1])
        if self._first is None:
            standardized = {
                at: tuple(laws[at].standardize(one) for one in (each[0], each[1][num_paired:]))
                for at, each in draws.items()
            }
            candidate_z, reference_z = ({at: pair[side] for at, pair in standardized.items()} for side in (0, 1))
            self._first = _FirstSet(input_set, laws, candidate_z, reference_z)
        return LawResult(None, accuracy)

    def _judge_one_call(
        self, got: list[Tensor], input_set: InputSet, outputs: Sequence[int], is_repeated: bool
    ) -> tuple[LawResult, bool]:
        """Compare one call with draws of the reference; and whether it is far off, so that many calls must decide."""
        moments = self._draw_reference(input_set, "moments", FEW_DRAWS)
        drawn = self._draw_reference(input_set, "one call", FEW_OTHER_DRAWS)
        if not moments or not drawn:
            return LawResult(None, None), True
        accuracy, is_far_off = None, False
        for at in outputs:
            law = self._make_law(at, [one[at] for one in moments], input_set)
            mine = self._take(got[at]).unsqueeze(0)
            result = self._check_support(law, mine, torch.stack([self._take(one[at]) for one in drawn]), input_set, at)
            accuracy = _larger(accuracy, result.accuracy)
            if result.reason:
                return result, False
            statistics = self._compare_one_call(law, mine, at, drawn)
            if any(_is_far_off(one.values[0], other.values, law.tolerance) for one, other in statistics):
                is_far_off = True
                start_s = wall_s()
                while len(drawn) < MANY_OTHER_DRAWS and wall_s() - start_s < CALLS_TIMEOUT_S / 2:
                    drawn += self._draw_reference(input_set, f"one call, {len(drawn)}", FEW_OTHER_DRAWS)
                statistics = self._compare_one_call(law, mine, at, drawn)
            self._remember(at, law, mine)
            rng = random.Random(self._derive_seed(input_set, "ranks", at))
            for number, (one, other) in enumerate(statistics):
                ranks = _random_ranks(one.values[0], other.values, law.tolerance, rng)
                key = f"{at} {number} {one.name} {is_repeated}", one.values.shape[1]
                if sentence := self._add_ranks(one, key, ranks, other):
                    return LawResult(self._reject(input_set.expected.names[at], sentence), accuracy), False
        return LawResult(None, accuracy), is_far_off

    def _compare_one_call(
        self, law: OutputLaw, mine: Tensor, output_index: int, drawn: list[list[Tensor]]
    ) -> list[tuple[Statistic, Statistic]]:
        """Statistics of one call and of draws of the reference: of themselves, and relative to earlier calls."""
        others = torch.stack([self._take(one[output_index]) for one in drawn])
        statistics = [*zip(law.measure(mine), law.measure(others), strict=True)]
        if history := self._history.get((output_index, *law.positions.shape)):
            earlier, oriented = zip(*history, strict=True)
            both = law.standardize(mine), law.standardize(others)
            sides = [(both, torch.stack(earlier)), (tuple(map(law.standardize.orient, both)), torch.stack(oriented))]
            for draws, earlier_draws in sides:
                measured = (measure_repetition(one, earlier_draws, law.positions) for one in draws)
                statistics += [*zip(*measured, strict=True)]
        return statistics

    def _add_ranks(self, statistic: Statistic, key: tuple[str, int], ranks: Tensor, other: Statistic) -> str:
        """A sentence if the ranks of all calls together are not random."""
        earlier = self._ranks.setdefault(key, [])
        earlier.append(ranks)
        if len(earlier) < MIN_RANKS:
            return ""
        distance = one_sample_distance(torch.stack(earlier))
        worst = int(distance.argmax())
        if float(distance[worst]) <= one_sample_critical(len(earlier), RANK_FALSE_ALARM / (20 * key[1])):
            return ""
        got, want = float(statistic.values[0, worst]), float(other.values[:, worst].double().median())
        return f"in {len(earlier)} calls with other inputs, " + SENTENCES[statistic.name].format(got=got, want=want)

    def check_reloaded(self) -> Reason | None:
        """Compare calls in a new process, in the same order under other seeds: random numbers that only depend on the
        number of the call are the same again."""
        if self._first is None or self._first.input_set.parameters_perturbed:
            return None
        first, values = self._first, {at: list[Tensor]() for at in self._first.laws}
        for number in range(NUM_RELOADED_CALLS):
            got = self.call(first.input_set, self._derive_seed(first.input_set, "reloaded", number))
            if isinstance(got, Reason):
                return got
            for at in first.laws:
                values[at].append(self._take(got[at]))
        alarm = FALSE_ALARM / len(first.laws)
        for at, law in first.laws.items():
            z = law.standardize(torch.stack(values[at]))
            found = find_repetition(law, z, first.candidate[at], first.reference[at], alarm)
            if found:
                worst = max(found.values(), key=lambda one: one.effect)
                detail = f"loaded again, it draws the same random numbers under other seeds: {worst.sentence}"
                return self._reject(first.input_set.expected.names[at], detail)
        return None

    def _check_support(
        self, law: OutputLaw, candidate: Tensor, reference: Tensor, input_set: InputSet, output_index: int
    ) -> LawResult:
        """Check non-finite values, and by value what takes few values."""
        name = input_set.expected.names[output_index]
        if bool(reference.isfinite().all()) and bool(law.draws.isfinite().all()) and not candidate.isfinite().all():
            return LawResult(Reason(code="not-finite", detail=f"{name}: a value is not finite"), None)
        alone = _select(input_set.expected, [output_index])

        def check(law: OutputLaw, draw: Tensor, other: Tensor) -> LawResult:
            return LawResult(*law.check_values(draw, other, alone, input_set.distribution, self.policy))

        result = check(law, candidate[0], reference[-1])
        more = self._draw_many(input_set, output_index) if result.reason else []
        return _confirm(check, law, candidate[0], more) if more else result

    def _draw_many(self, input_set: InputSet, output_index: int) -> list[Tensor]:
        """Up to `MANY_OTHER_DRAWS` draws of one output of the reference, as many as there is time for."""
        drawn, start_s = list[Tensor](), wall_s()
        while len(drawn) < MANY_OTHER_DRAWS and (len(drawn) < MIN_CALLS or wall_s() - start_s < CALLS_TIMEOUT_S / 2):
            draws = self._draw_reference(input_set, f"support, {len(drawn)}", FEW_OTHER_DRAWS)
            if not draws:
                return []
            drawn += [self._take(one[output_index]) for one in draws]
        return drawn

    def _make_law(self, output_index: int, drawn: list[Tensor], input_set: InputSet) -> OutputLaw:
        dtype = input_set.expected.reference[output_index].dtype
        eps = torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0
        positions = self._positions_of(drawn[0])
        draws = torch.stack([self._take(one) for one in drawn])
        return OutputLaw(draws, positions, eps, _make_features(input_set.expected.inputs, drawn[0], positions))

    def _positions_of(self, value: Tensor) -> Positions:
        shape = tuple(torch.view_as_real(value).shape if value.is_complex() else value.shape)
        if shape not in self._positions:
            rng = random.Random(int(digest(str(self._positions_seed), str(shape))[:15], 16))
            self._positions[shape] = Positions(shape, rng)
        return self._positions[shape]

    def _take(self, value: Tensor) -> Tensor:
        return self._positions_of(value).take(torch.view_as_real(value) if value.is_complex() else value)

    def _remember(self, output_index: int, law: OutputLaw, draw: Tensor) -> None:
        history = self._history.setdefault((output_index, *law.positions.shape), [])
        z = law.standardize(draw)
        history.append((z[0], law.standardize.orient(z)[0]))
        del history[:-MAX_HISTORY]

    def _draw_reference(self, input_set: InputSet, purpose: str, count: int) -> list[list[Tensor]]:
        """Draws of the reference under new seeds; none where its outputs differ in number or shape."""
        seeds = (self._derive_seed(input_set, purpose, number) for number in range(count))
        drawn = [self._draw(input_set.expected, seed) for seed in seeds]
        return [one for one in drawn if one is not None] if None not in drawn else []

    def _draw(self, expected: Expected, seed: int) -> list[Tensor] | None:
        result = expected.draw(seed)
        return None if result.names != expected.names or _has_other_shapes(result.values, expected) else result.values

    def _derive_seed(self, input_set: InputSet, purpose: str, number: int) -> int:
        """A seed that the candidate cannot derive from those of its calls."""
        return int(digest(str(input_set.law_seed), purpose, str(self._num_calls), str(number))[:15], 16)

    def _reject(self, name: str, difference: str) -> Reason:
        return Reason(code="inaccurate", detail=f"{name}, {BY_LAW}: {difference}")


def _select(expected: Expected, outputs: Sequence[int]) -> Expected:
    """The expected values of some outputs."""
    rounded = expected.golden_of_rounded_inputs
    return replace(
        expected,
        reference=[expected.reference[at] for at in outputs],
        golden=[expected.golden[at] for at in outputs],
        names=[expected.names[at] for at in outputs],
        _compute_rounded=lambda: [rounded()[at] for at in outputs],
        _cache={},
    )


def _has_other_shapes(values: list[Tensor], expected: Expected) -> bool:
    return len(values) != len(expected.reference) or any(
        check_shape_dtype(value, reference, "") for value, reference in zip(values, expected.reference, strict=True)
    )


def _make_features(inputs: list[Tensor], output: Tensor, positions: Positions) -> list[Tensor]:
    """Standardised values of the floating inputs that have, or expand to, the output's shape, and their sizes."""
    features: list[Tensor] = []
    for value in inputs:
        if not value.dtype.is_floating_point or output.is_complex() or value.numel() < 2:
            continue
        try:
            taken = positions.take(value).nan_to_num(0.0, 0.0, 0.0)
        except RuntimeError:  # another shape
            continue
        for one in (taken, taken.abs()):
            centred = one - one.mean()
            features.append(centred / centred.square().mean().sqrt().clamp_min(1e-30))
    return features


def _is_same_draw(law: OutputLaw, candidate: Tensor, reference: Tensor, num_paired: int) -> bool:
    """Whether the candidate's draws are the reference's under the same seeds."""
    one, other = (law.standardize(draws[:num_paired]).double() for draws in (candidate, reference))
    scale = (one.square().sum() * other.square().sum()).sqrt()
    return bool((one * other).sum() > SAME_DRAW_CORRELATION * scale)


def _is_far_off(values: Tensor, others: Tensor, tolerance: float) -> bool:
    distance = (values - others.median(0).values).abs()
    return bool((distance > FAR_OFF * (others.amax(0) - others.amin(0) + 2 * tolerance)).any())


def _random_ranks(values: Tensor, others: Tensor, tolerance: float, rng: random.Random) -> Tensor:
    """(k,) ranks among the reference's draws, uniform from 0 to 1 if they have the same law; ties in random order."""
    less, equal = (others < values - tolerance).sum(0), ((others - values).abs() <= tolerance).sum(0)
    offset = torch.tensor([rng.random() for _ in range(len(values))], dtype=torch.float64)
    return (less + (equal + 1) * offset) / (len(others) + 1)


def _confirm(
    check: Callable[[OutputLaw, Tensor, Tensor], LawResult], law: OutputLaw, draw: Tensor, more: list[Tensor]
) -> LawResult:
    """Check again a draw whose elements that take few values are wrong.

    Few draws may repeat each of their values by chance: places of shuffled rows do, and so do values of which others
    are rare. Near one of them may then be another correct value. So half of many more draws of the reference show the
    values, and the draw must be worse than the others of them.

    Args:
        check: checks a draw, given the law and another draw of the reference.
        more: at least four more draws of the reference.
    """
    known, (other, *others) = more[: len(more) // 2], more[len(more) // 2 :]
    law = replace(law, draws=torch.stack(known), max_distinct_share=MAX_CONFIRMED_SHARE)
    result, own_ratio, start_s = check(law, draw, other), 0.0, wall_s()
    for number, one in enumerate(others if result.reason else ()):
        if number >= FEW_OTHER_DRAWS and wall_s() - start_s > CALLS_TIMEOUT_S / 2:
            break
        own_ratio = max(own_ratio, _limit_ratio(check(law, one, other)))
    is_worse = own_ratio <= 1 or _limit_ratio(result) > NEAR_LIMIT_RATIO * own_ratio
    return result if is_worse else LawResult(None, None)


def _limit_ratio(result: LawResult) -> float:
    return result.accuracy.error_over_limit if result.accuracy else 0.0


def _larger(one: Accuracy | None, other: Accuracy | None) -> Accuracy | None:
    """The worse accuracy."""
    return max((each for each in (one, other) if each), key=lambda each: each.error_over_limit, default=None)
